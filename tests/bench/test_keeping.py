"""What records, checks, table and checkpoints take of a run, measured on a tiny one."""

import pytest

from cmbpo.bench.clock import UPDATE, TimedTrainer
from cmbpo.bench.keeping import KEPT, SAVE, kept
from cmbpo.runs.tables import read_table
from cmbpo.tasks.point_circle import PointCircle
from tests.tiny import tiny


@pytest.mark.slow
def test_updates_are_kept_as_train_keeps_them_and_their_time_is_told_apart():
    settings = tiny("trpo", policy__normalise=False, checkpoint_every=4)
    trainer = TimedTrainer(settings, PointCircle())
    with kept(trainer) as run:
        for _ in range(4):
            run.step()
        folder = run._folder.folder
        assert len(read_table(folder / "progress.csv")["TotalEnvSteps"]) == 4
        names = {path.name for path in (folder / "checkpoints").iterdir()}
        assert names == {"3.npz", "4.npz"}, "each has one, of which the newest two stay"
    assert not folder.exists()
    assert not trainer.clock.cpu, "what is kept has a clock of its own"
    spent = run.clock.cpu
    alone = spent[KEPT] - spent[UPDATE] - spent[SAVE]
    assert min(alone, spent[UPDATE], spent[SAVE]) > 0.0
    whole, keeping = run.seconds()
    assert keeping == pytest.approx(alone + spent[SAVE] / 4, abs=1e-9)
    assert whole == pytest.approx(keeping + spent[UPDATE])
