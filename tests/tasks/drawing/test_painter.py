"""Pictures without a screen: how they are drawn, or what to install."""

import subprocess
import sys

import pytest

from cmbpo.tasks.drawing import painter

FAR = """
import mujoco, numpy as np
import cmbpo.tasks
from cmbpo.tasks.drawing.painter import Painter

for name in cmbpo.tasks.names():
    task = cmbpo.tasks.get(name)
    model, painter = task.drawing, Painter(task, 160, 120)
    state = task.start(np.random.default_rng(0))
    tracked = model.body(task.camera.body).id
    robot = np.flatnonzero(model.body_rootid[model.geom_bodyid] == model.body_rootid[tracked])
    for x in (0.0, 5.0, 20.0):
        state[1] = x
        seen = painter.paint(state, "rgb_array").astype(int)
        opaque = model.geom_rgba[robot].copy()
        model.geom_rgba[robot, 3] = 0.0
        empty = painter.paint(state, "rgb_array").astype(int)
        model.geom_rgba[robot] = opaque
        rows, columns = np.nonzero(np.abs(seen - empty).max(axis=2) > 20)
        assert len(rows) > 15, (name, x, len(rows))
        assert abs(rows.mean() - 60) < 15 and abs(columns.mean() - 80) < 15, (name, x)
    painter.close()
"""


def software_rendering() -> bool:
    try:
        painter.backend()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return monkeypatch


def test_the_missing_system_package_is_named(no_screen):
    no_screen.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(RuntimeError, match=r"install the system package libegl1 .* or libosmesa6"):
        painter.backend()


@pytest.mark.parametrize(("library", "how"), [("EGL", "egl"), ("OSMesa", "osmesa")])
def test_what_is_installed_draws(library, how, no_screen):
    no_screen.setattr("ctypes.util.find_library", lambda name: name if name == library else None)
    assert painter.backend() == how


def test_a_screen_or_the_users_choice_comes_first(no_screen):
    no_screen.setenv("DISPLAY", ":0")
    assert painter.backend() == "glfw"
    no_screen.setenv("MUJOCO_GL", "egl")
    assert painter.backend() == "egl"


@pytest.mark.skipif(not software_rendering(), reason="neither EGL nor OSMesa is installed")
def test_the_robot_is_in_the_middle_of_the_picture_however_far_it_has_run():
    """Its pixels are those that change when it is made invisible."""
    subprocess.run([sys.executable, "-c", FAR], check=True)
