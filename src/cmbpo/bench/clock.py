"""Seconds of a training run, by what they were spent on."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from cmbpo.columns import Column
from cmbpo.data.real_step import RealStep
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training.rows import Row
from cmbpo.training.trainer import Trainer

SIMULATOR, UPDATE = "simulator", "update"


class Clock:
    """CPU seconds, of all threads together, and wall seconds spent in each part."""

    def __init__(self):
        """Nothing spent yet."""
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Count what is spent inside to `part`."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[part] += time.process_time() - cpu
        self.wall[part] += time.perf_counter() - wall


class TimedTrainer(Trainer):
    """A run whose clock knows each phase, `SIMULATOR` inside the first, and `UPDATE` as a whole."""

    def __init__(self, settings: TrainSettings, task: Task):
        """Nothing is collected or compiled yet."""
        super().__init__(settings, task)
        self.clock = Clock()
        simulate = self.real.simulator.step

        def step(act: np.ndarray) -> RealStep:
            with self.clock.measure(SIMULATOR):
                return simulate(act)

        self.real.simulator.step = step

    @contextmanager
    def phase(self, column: Column) -> Iterator[None]:
        """Count what is spent inside to the phase of this column."""
        with self.clock.measure(column), super().phase(column):
            yield

    def step(self) -> Row:
        """One policy update."""
        with self.clock.measure(UPDATE):
            return super().step()

    def reset_clock(self) -> None:
        """Forget what was spent so far, such as the time that compilation took."""
        self.clock = Clock()
