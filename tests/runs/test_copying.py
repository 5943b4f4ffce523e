"""A run is copied whole, beside what stands there, or not at all."""

import shutil

import numpy as np
import pytest

from cmbpo.runs.copying import copy_run
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.verify import main as verify
from tests.tiny import tiny


@pytest.fixture
def run(tmp_path):
    with Run.create(tiny("cpo", tmp_path / "runs")) as run:
        for update in (1, 2, 3):
            run.record({"TotalEnvSteps": update, "Train/Epoch": update})
            run.save({"x": np.full(3, float(update))}, update)
    return run


def held(folder) -> float:
    return float(Run.open(folder).load({"x": np.zeros(3)})["x"][0])


def test_a_copy_is_a_run_folder_that_goes_on_by_itself(run, tmp_path):
    copy = copy_run(run.folder, tmp_path / "new" / "mine")
    assert verify(copy)
    assert held(copy) == 3.0
    shutil.rmtree(run.folder)
    with Run.resume(copy) as again:
        state = again.restore({"x": np.zeros(3)})
        again.record({"TotalEnvSteps": 4, "Train/Epoch": 4})
        again.save(state, 4)
    assert Run.open(copy).last_step() == 4
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine"]


def test_an_earlier_copy_is_replaced_and_anything_else_is_kept(run, tmp_path):
    mine = tmp_path / "mine"
    copy_run(run.folder, mine)
    copy_run(run.folder, mine)
    assert not (tmp_path / "mine.old").exists()
    with Run.resume(mine) as further:
        further.save(further.restore({"x": np.zeros(3)}), 4)
    copy_run(run.folder, mine)
    assert Run.open(tmp_path / "mine.old").checkpoints()[0].name == "4.npz", "it had gone on"
    mine = tmp_path / "letter"
    mine.write_text("mine")
    copy_run(run.folder, mine)
    assert held(mine) == 3.0
    assert (tmp_path / "letter.old").read_text() == "mine"


def test_a_run_is_not_copied_onto_itself_nor_without_a_checkpoint(run, tmp_path):
    for place in (run.folder, run.folder.parent):
        with pytest.raises(RunError, match="holds the run itself"):
            copy_run(run.folder, place)
    for path in run.checkpoints():
        path.unlink()
    with pytest.raises(RunError, match="no checkpoint yet"):
        copy_run(run.folder, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
