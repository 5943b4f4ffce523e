"""The short form of the campaign: a stand-in run, killed and without power at every operation."""

import contextlib
import os
import warnings
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from chaos import disk, records
from chaos.planted import _Otherwise, _old_ones_dropped_first, _rows_twice, _straight
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from tests.runs.stand_in import trained

UPDATES = 13


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
    with warnings.catch_warnings(), Run.resume(folder) as run:
        warnings.simplefilter("error")
        state = run.restore({"update": 0}, start_anew=not run.checkpoints())
        update = 0 if state is None else state["update"]
        assert update >= promised
        trained(run, range(update + 1, UPDATES + 1))
    return records.cells(folder)


def problems(place: Path, moments: list[disk.Moment], inside: Path, wanted: records.Cells):
    """What goes wrong, moment by moment."""
    random = Random(0)
    for i, (moment, after) in enumerate(zip(moments, moments[1:], strict=False)):
        for cut, left in (
            ("killed", disk.killed(moment, after, random)),
            ("without power", disk.powerless(moment, random)),
        ):
            folder = disk.laid_out(left, place / f"{cut}-{i}") / inside
            if not (folder / "config.json").exists():
                assert not moment.promised
                continue
            try:
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
    "a checkpoint written in two steps": mock.patch("cmbpo.runs.array_file.whole_file", _straight),
    "a row written twice": _rows_twice(),
    "files not synced": mock.patch(
        "cmbpo.runs.files.os", _Otherwise(os, fsync=lambda descriptor: None)
    ),
    "folders not synced": mock.patch("cmbpo.runs.files._sync", lambda folder: None),
    "records not synced": mock.patch("cmbpo.runs.tables.CsvTable.sync", lambda self: None),
    "old checkpoints dropped first": _old_ones_dropped_first(),
    "records not cut back": mock.patch(
        "cmbpo.runs.tables.os", _Otherwise(os, truncate=lambda path, size: None)
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, tmp_path, wanted):
    with BUGS[bug]:
        moments, inside = begun(tmp_path / "log")
        assert next(problems(tmp_path, moments, inside, wanted), None) is not None
