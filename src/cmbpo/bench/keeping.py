"""What it costs to record, check, show and save a run, beside the run itself."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console

from cmbpo.bench.clock import UPDATE, Clock, TimedTrainer
from cmbpo.runs.run_folder import Run
from cmbpo.training import display, loop
from cmbpo.training.keeper import Keeper

KEPT, SAVE = "kept update", "save"
"""An update as `train` makes it, `UPDATE` and `SAVE` inside it; and one checkpoint."""


class TimedKeeper(Keeper):
    """Counts to a clock what checkpoints take."""

    clock: Clock

    def save(self) -> None:
        """Write a checkpoint."""
        with self.clock.measure(SAVE):
            super().save()


class KeptRun:
    """Updates of a trainer as `train` makes them, each of them with a checkpoint.

    They have a clock of their own; the trainer's stands still meanwhile. The table is drawn on a
    terminal that nobody sees.
    """

    def __init__(self, trainer: TimedTrainer, folder: Run):
        """Nothing is kept yet."""
        self.clock = Clock()
        self._trainer, self._folder = trainer, folder
        self._keeper = TimedKeeper(trainer, folder)
        self._keeper.clock = self.clock
        self._every = trainer.settings.checkpoint_every
        self._view = display.LiveDisplay(
            Console(file=io.StringIO(), force_terminal=True, width=100),
            trainer.task.name,
            total_steps=trainer.settings.total_steps,
            horizon=trainer.task.horizon,
        )

    def step(self) -> None:
        """One policy update."""
        trainer, bare = self._trainer, self._trainer.clock
        trainer.clock = self.clock
        with self.clock.measure(KEPT), self._view:
            loop.make_update(trainer, self._folder, self._keeper, self._view)
            if trainer.update % self._every:
                self._keeper.save()
        trainer.clock = bare

    def seconds(self) -> tuple[float, float]:
        """CPU seconds of all updates, with as many checkpoints as `train` makes; those of keeping.

        What an update does for itself is in the first only.
        """
        spent = self.clock.cpu
        whole = spent[KEPT] - spent[SAVE] * (1.0 - 1.0 / self._every)
        return whole, whole - spent[UPDATE]


@contextmanager
def kept(trainer: TimedTrainer) -> Iterator[KeptRun]:
    """A trainer's run in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cmbpo-bench-") as log_dir:
        settings = replace(loop.with_limits(trainer.settings, trainer.task), log_dir=log_dir)
        with Run.create(settings, {"horizon": trainer.task.horizon}) as folder:
            yield KeptRun(trainer, folder)
