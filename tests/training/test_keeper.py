"""Whatever ends a run, its last whole update is kept, and the failure says how to go on."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from cmbpo.runs.errors import NonFiniteError, RunError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import examine
from cmbpo.settings.schema import TrainSettings
from cmbpo.training import loop
from tests.tiny import rows
from tests.training.stand_in import START, STEPS, StandIn


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    monkeypatch.setattr(loop, "make_trainer", StandIn)
    monkeypatch.setattr(loop, "plot_run", lambda folder: folder / "curves.png")
    monkeypatch.setattr(StandIn, "fail", staticmethod(lambda update: None))
    monkeypatch.setattr(StandIn, "cost", staticmethod(lambda update: 0.0))


def settings(folder: Path, updates: int = 10) -> TrainSettings:
    return TrainSettings(
        algo="cpo", log_dir=str(folder), total_steps=10 + STEPS * updates, device="cpu"
    )


@pytest.fixture
def unbroken(tmp_path):
    return loop.run(settings(tmp_path / "unbroken"))[0]


def only_run(place: Path) -> Path:
    (folder,) = place.glob("*/seed-*")
    return folder


def records(folder: Path) -> tuple:
    """Rows, episodes, checkpoint and best policy of a run, without its times and its id."""
    run = Run.open(folder)
    newest = run.load(START, under="learner/policy"), run.checkpoints()[0].name
    best = run.load_best(START)
    facts = {n: best.notes[n] for n in ("update", "env_steps", "return", "cost")}
    stds = [float(policy.log_std[0]) for policy in (newest[0], best.state)]
    return rows(folder), (folder / "episodes.csv").read_bytes(), newest[1], stds, facts


class BrokenError(Exception):
    """What a user's environment may raise."""


@pytest.mark.parametrize(
    "failure",
    [
        BrokenError("motor 3"),
        KeyboardInterrupt(),
        SystemExit(3),
        NonFiniteError("V"),
        MemoryError(),
    ],
)
def test_a_failing_update_leaves_the_one_before_and_the_run_goes_on_as_if_unbroken(
    failure, unbroken, tmp_path, monkeypatch
):
    """Checkpoints are 20 updates apart: without the last whole one, all would be lost."""

    def fail(update: int) -> None:
        if update == 7:
            raise failure

    monkeypatch.setattr(StandIn, "fail", staticmethod(fail))
    with pytest.raises(type(failure)) as stop:
        loop.run(settings(tmp_path))
    folder = only_run(tmp_path)
    assert str(stop.value).startswith(str(failure))
    assert stop.value.__notes__ == [
        f"{folder} stands at update 6; go on with: cmbpo train --resume {folder}"
    ]
    assert [path.name for path in Run.open(folder).checkpoints()] == ["6.npz", "0.npz"]
    monkeypatch.setattr(StandIn, "fail", staticmethod(lambda update: None))
    loop.resume(folder)
    assert records(folder) == records(unbroken)


def test_a_failure_before_anything_is_whole_has_nothing_to_add(tmp_path, monkeypatch):
    def fail(self, **how) -> None:
        raise BrokenError("no robot")

    monkeypatch.setattr(StandIn, "warm_up", fail)
    with pytest.raises(BrokenError) as stop:
        loop.run(settings(tmp_path))
    assert not hasattr(stop.value, "__notes__")
    monkeypatch.undo()
    monkeypatch.setattr(loop, "make_trainer", StandIn)
    monkeypatch.setattr(loop, "plot_run", lambda folder: folder)
    loop.resume(only_run(tmp_path))
    assert len(rows(only_run(tmp_path))) == 10


def test_a_callback_that_fails_leaves_its_own_update(tmp_path):
    def callback(moment) -> None:
        if moment.row["Train/Epoch"] == 3:
            raise BrokenError

    with pytest.raises(BrokenError):
        loop.run(settings(tmp_path), callbacks=[callback])
    assert Run.open(only_run(tmp_path)).checkpoints()[0].name == "3.npz"
    assert len(rows(only_run(tmp_path))) == 3


def test_a_disk_that_fills_keeps_the_checkpoint_that_is_there_and_goes_on_with_room(
    unbroken, tmp_path, monkeypatch
):
    """The row of update 5 is half written when there is no room for anything any more."""
    record, sync, room = Run.record, os.fsync, [True]

    def fill(self, row) -> None:
        room[0] = row["Train/Epoch"] < 5
        if room[0]:
            return record(self, row)
        with self.progress.path.open("a") as file:
            file.write("510,5,")
        raise RunError("could not write progress.csv: No space left on device")

    def synced(descriptor: int) -> None:
        if not room[0] and ".npz" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "record", fill)
        patch.setattr(os, "fsync", synced)
        with pytest.raises(RunError, match=r"^could not write progress\.csv: No space") as stop:
            loop.run(settings(tmp_path))
    folder = only_run(tmp_path)
    (note,) = stop.value.__notes__
    assert "the last whole update is lost: could not write" in note
    assert f"{folder} stands at update 0; go on with" in note
    assert not list(folder.rglob(".*.tmp"))
    loop.resume(folder)
    assert records(folder) == records(unbroken)


def test_whoever_has_rows_has_a_checkpoint(tmp_path):
    """A run killed before its twentieth update goes on from its warm-up, not from nothing."""
    seen = []

    def names() -> list[str]:
        return [path.name for path in Run.open(only_run(tmp_path)).checkpoints()]

    loop.run(settings(tmp_path, 3), callbacks=[lambda _: seen.append(names())])
    assert seen == [["0.npz"]] * 3
    assert names() == ["3.npz", "0.npz"]


def test_lost_checkpoints_are_named_and_start_anew_begins_again(unbroken, tmp_path):
    folder, _ = loop.run(settings(tmp_path))
    for path in Run.open(folder).checkpoints():
        path.unlink()
    with pytest.raises(RunError, match="--start-anew"):
        loop.resume(folder)
    loop.resume(folder, start_anew=True)
    assert records(folder) == records(unbroken)
    assert examine((folder / "progress.csv.old").rename(folder / "old.csv")).checked


def test_the_best_policy_within_the_limit_is_kept_and_survives(tmp_path, monkeypatch):
    """Returns are 2 3 0 1 2 3 0 1 2 from update 2 on; 0.2 in 50 steps is 4 in 1000, 0.3 is 6."""
    monkeypatch.setattr(
        StandIn, "cost", staticmethod(lambda update: 0.3 if update in (3, 8) else 0.2)
    )
    folder, _ = loop.run(settings(tmp_path))
    best = Run.open(folder).load_best(START)
    facts = {n: best.notes[n] for n in ("update", "env_steps", "return", "cost")}
    assert facts == {"update": 7, "env_steps": 710, "return": 3.0, "cost": [4.0]}
    assert float(best.state.log_std[0]) == 6.0, "the policy that acted in update 7"
    (folder / "best.npz").unlink()
    loop.resume(folder)
    np.testing.assert_equal(Run.open(folder).load_best(START).notes, best.notes)


def test_without_a_policy_within_the_limit_there_is_no_best(tmp_path, monkeypatch):
    monkeypatch.setattr(StandIn, "cost", staticmethod(lambda update: 0.3))
    folder, _ = loop.run(settings(tmp_path))
    assert not (folder / "best.npz").exists()


def test_the_best_policy_costs_no_write_of_its_own_between_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(StandIn, "take_episodes", lambda self: [])
    folder, seen = None, []

    def look(_) -> None:
        seen.append((only_run(tmp_path) / "best.npz").exists())

    folder, _ = loop.run(settings(tmp_path, 5), callbacks=[look])
    assert not any(seen)
    assert (folder / "best.npz").exists()
