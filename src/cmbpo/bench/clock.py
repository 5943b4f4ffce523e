"""Seconds of a training run, by what they were spent on."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from cmbpo.settings import TrainSettings
from cmbpo.simulator import SimStep
from cmbpo.train import Row, Trainer


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
    """A run whose clock knows each phase, `Simulator` inside Collect, and `Update` as a whole."""

    def __init__(self, settings: TrainSettings):
        """Nothing is collected or compiled yet."""
        super().__init__(settings)
        self.clock = Clock()
        simulate = self.simulator.step

        def step(act: np.ndarray) -> SimStep:
            with self.clock.measure("Simulator"):
                return simulate(act)

        self.simulator.step = step

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is spent inside to the phase `name`."""
        with self.clock.measure(name), super().phase(name):
            yield

    def step(self) -> Row:
        """One policy update."""
        with self.clock.measure("Update"):
            return super().step()

    def reset_clock(self) -> None:
        """Forget what was spent so far, such as the time that compilation took."""
        self.clock = Clock()
