"""The short form of the campaign: a stand-in run, killed and without power at every operation."""

import contextlib
import os
import warnings
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from chaos import disk, file_operations, planted, records
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from tests.runs.stand_in import episode, row

UPDATES = 5


def trained(run: Run, updates: range) -> None:
    """A row and an episode each, and every second time a checkpoint."""
    for update in updates:
        run.record_episodes([episode(update)])
        run.record(row(update))
        if update % 2 == 0:
            run.save({"update": update}, update)


def begun(log: Path) -> tuple[list[disk.Moment], Path]:
    """The moments of a whole stand-in run, and its folder within `log`."""
    with disk.recorded(log) as recorder:
        settings = TrainSettings(log_dir=str(log), env_id="AntSafe-v0", seed=3)
        with Run.create(settings, {"horizon": 1000}) as run, promising(recorder):
            trained(run, range(1, UPDATES + 1))
    return recorder.moments, run.folder.relative_to(log)


@contextlib.contextmanager
def promising(recorder: disk.Recorder):
    """Note which checkpoint is said to be saved."""
    save = Run.save

    def saving(self, state, update, *args, **kwargs):
        save(self, state, update, *args, **kwargs)
        recorder.promised = update

    with mock.patch.object(Run, "save", saving):
        yield


def gone_on(folder: Path, promised: int) -> records.Cells:
    """The records after the run was brought to its end."""
    unsynced = mock.patch.object(os, "fsync", return_value=None)
    with unsynced, warnings.catch_warnings(), Run.resume(folder) as run:
        warnings.simplefilter("error")
        state = run.restore({"update": 0}, start_anew=not run.checkpoints())
        update = 0 if state is None else state["update"]
        assert update >= promised
        trained(run, range(update + 1, UPDATES + 1))
    return records.cells(folder)


def problems(place: Path, moments: list[disk.Moment], inside: Path, wanted: records.Cells):
    """What goes wrong, moment by moment."""
    random = Random(0)
    for i, (moment, after) in enumerate(pairwise(moments)):
        for cut, left in (
            ("killed", disk.killed(moment, after, random)),
            ("without power", disk.powerless(moment, random)),
        ):
            folder = disk.laid_out(left, place / f"{cut}-{i}") / inside
            try:
                if not (folder / "config.json").exists():
                    assert not moment.promised
                    continue
                records.require_same(gone_on(folder, moment.promised), wanted)
            except Exception as problem:
                yield f"{cut} after operation {i}, {moment.operation}: {problem!r}"


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    log = tmp_path_factory.mktemp("unbroken")
    return records.cells(log / begun(log)[1])


def test_a_run_outlives_a_kill_and_a_power_cut_at_every_file_operation(tmp_path, wanted):
    moments, inside = begun(tmp_path / "log")
    assert len(moments) > 50
    assert list(problems(tmp_path, moments, inside, wanted)) == []


BUGS = {
    bug.name: bug
    for bug in planted.PLANTED
    if bug.try_one is file_operations.cut_off and "account" not in bug.name
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, tmp_path, wanted):
    with BUGS[bug].plant():
        moments, inside = begun(tmp_path / "log")
        assert next(problems(tmp_path, moments, inside, wanted), None) is not None
