"""The tasks are listed and drawn."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import cmbpo.tasks
from cmbpo.tasks import listing
from tests.tasks.drawing.test_painter import software_rendering
from tests.tasks.test_tasks import NAMES, SIZES


def test_the_list_names_all_tasks_with_their_sizes(capsys):
    listing.show()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name, (n_obs, n_act) in SIZES.items():
        task = cmbpo.tasks.get(name)
        limit = f"{task.cost_limits[0]:g}"
        assert [name, str(n_obs), str(n_act), "1000", f"{task.dt:g}", limit] in rows


def test_the_list_says_what_each_task_is_about(capsys):
    listing.show()
    printed = " ".join(capsys.readouterr().out.split())
    for name in NAMES:
        about = (cmbpo.tasks.get(name).__doc__ or "").partition("\n")[0]
        assert f"{name}: {' '.join(about.split())}" in printed


def test_a_task_that_does_not_exist_is_not_drawn(tmp_path):
    with pytest.raises(ValueError, match="there is no task 'Moon'"):
        listing.draw("Moon", Path(tmp_path / "a.png"))


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"ant\.txt' has the suffix '\.txt'; allowed: \.png, \.jpg"
    ):
        listing.draw("PointCircle", tmp_path / "ant.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not software_rendering(), reason="neither EGL nor OSMesa is installed")
def test_a_picture_is_of_the_kind_that_its_name_says(tmp_path):
    code = (
        "import pathlib\n"
        "from cmbpo.tasks.listing import KINDS, draw\n"
        "for kind in KINDS:\n"
        "    draw('PointCircle', pathlib.Path('a' + kind), width=200, height=100, steps=1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    found = {}
    for path in tmp_path.iterdir():
        with Image.open(path) as picture:
            found[path.suffix] = picture.format
    assert found == {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


@pytest.mark.skipif(not software_rendering(), reason="neither EGL nor OSMesa is installed")
@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_drawn(name, tmp_path):
    """In a process of its own: OpenGL's libraries warn, and keep state."""
    code = (
        "import numpy as np, pathlib\n"
        "from cmbpo.tasks.environment import TaskEnv\n"
        "from cmbpo.tasks.listing import draw\n"
        f"draw({name!r}, pathlib.Path('out.png'), width=200, height=100, steps=1)\n"
        f"env = TaskEnv({name!r}, render_mode='rgb_array', width=200, height=100)\n"
        "env.reset(seed=0)\n"
        "frame = env.render()\n"
        "assert frame.shape == (100, 200, 3) and frame.dtype == np.uint8 and frame.std() > 5\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
