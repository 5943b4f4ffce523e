"""A checkpoint is taken by its own run, as it is set, and by no other."""

import dataclasses
import json
import shutil

import pytest

from cmbpo.runs.config import read_config, rewrite_config
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.overrides import with_values
from tests.runs.stand_in import trained


@pytest.fixture
def folder(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    return run.folder


def edited(folder, **changes):
    """Change settings in config.json as an editor does; `__` for the dot of a group."""
    config = read_config(folder)
    for name, value in changes.items():
        *groups, last = name.split("__")
        place = config["settings"]
        for group in groups:
            place = place[group]
        place[last] = value
    rewrite_config(folder, config)


@pytest.mark.parametrize("changes", [{"seed": 9}, {}])
def test_the_checkpoint_of_another_run_is_refused_and_stays(folder, settings, changes):
    with Run.create(dataclasses.replace(settings, **changes)) as other:
        trained(other, range(1, 9))
    foreign = other.folder / "checkpoints" / "8.npz"
    copied = shutil.copy(foreign, folder / "checkpoints")
    why = ", as seed = 9 shows" if changes else ""
    with pytest.raises(RunError, match=rf"8\.npz belongs to another run{why}: move it back"):
        Run.open(folder).load({"update": 0})
    records = (folder / "progress.csv").read_bytes()
    with Run.resume(folder) as run, pytest.raises(RunError, match="belongs to another run"):
        run.restore({"update": 0})
    assert (folder / "progress.csv").read_bytes() == records
    assert foreign.read_bytes() == (folder / "checkpoints" / "8.npz").read_bytes()
    del copied


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 4}, r"config\.json has seed = 4, but .*4\.npz was made with 3"),
        ({"rollout__lanes": 7}, r"has rollout\.lanes = 7, but .* made with 500"),
        ({"cost_limit": [3.0]}, r"has cost_limit = \[3\.0\], but .* made with null"),
    ],
)
def test_an_edited_setting_is_named(folder, change, sentence):
    edited(folder, **change)
    for opened in (Run.open(folder), Run.resume(folder)):
        with opened, pytest.raises(RunError, match=sentence):
            opened.load({"update": 0})


def test_what_nothing_learned_depends_on_may_change(folder):
    edited(folder, total_steps=9_000, log_dir="elsewhere", device="cpu", checkpoint_every=3)
    edited(folder, env__copies="processes")
    assert Run.open(folder).load({"update": 0}) == {"update": 4}


def test_a_run_may_be_moved_and_copied(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    with Run.resume(copy) as run:
        assert run.restore({"update": 0}) == {"update": 4}


def test_checkpoints_of_versions_that_noted_no_identity_are_taken(settings, monkeypatch):
    with Run.create(settings) as run:
        monkeypatch.setattr(Run, "_notes", lambda self, **more: more)
        trained(run, range(1, 5))
        monkeypatch.undo()
    config = read_config(run.folder)
    del config["id"]
    rewrite_config(run.folder, config)
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) == {"update": 4}
        trained(run, range(5, 9))
    assert Run.open(run.folder).load({"update": 0}) == {"update": 8}


def test_settings_come_back_as_they_were_whatever_they_are(settings):
    odd = with_values(settings, {"cost_limit": (1e300, 0.1), "policy.hidden": (7, 9)})
    with Run.create(odd) as run:
        trained(run, range(1, 5))
        assert json.loads((run.folder / "config.json").read_text())["id"] == run.config["id"]
    assert Run.open(run.folder).load({"update": 0}) == {"update": 4}
