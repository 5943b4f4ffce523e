"""Environment steps per CPU-second of the model-free algorithms, learning included."""

import os
from collections.abc import Sequence
from pathlib import Path

from cmbpo import device, presets
from cmbpo.bench import table
from cmbpo.bench.clock import TimedTrainer
from cmbpo.settings import TrainSettings

ALGORITHMS = tuple(name for name in presets.ALGORITHMS if name != "cmbpo")
COMPILING = 2
"""First updates, in which programs are compiled; they are not measured."""


def main(
    json: Path | None = None,
    *,
    envs: Sequence[str] = (),
    algos: Sequence[str] = (),
    updates: int = 5,
    cores: int = 2,
) -> None:
    """Measure the default presets and print the table."""
    for name, value in (("updates", updates), ("cores", cores)):
        if value < 1:
            raise ValueError(f"{name} is {value}; allowed: at least 1")
    chosen = [
        [presets.preset(algo, presets.task_name(env)) for algo in algos or ALGORITHMS]
        for env in envs or presets.TASKS
    ]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    device.use("cpu")
    rows = [row for settings in chosen for row in measure(settings, updates=updates)]
    notes = (
        f"Default presets on {cores} CPU cores, {updates} updates each after the first {COMPILING},"
        " the algorithms of a task in turn. Seconds are CPU seconds of all threads per 10,000"
        " steps: in the simulator, in the policy's choice of actions and their record, and in all"
        " that follows. Ratio: learning over simulating, in CPU and in wall time."
    )
    table.show("Algorithms", rows, notes=notes, json_file=json)


def measure(settings: Sequence[TrainSettings], *, updates: int) -> list[table.Row]:
    """One row for each of the settings; all make their updates in turn."""
    trainers = [TimedTrainer(s) for s in settings]
    for trainer in trainers:
        trainer.warm_up()
        for _ in range(COMPILING):
            trainer.step()
        trainer.reset_clock()
    before = [trainer.ledger.env_steps for trainer in trainers]
    for _ in range(updates):
        for trainer in trainers:
            trainer.step()
    return [
        _row(trainer, trainer.ledger.env_steps - steps)
        for trainer, steps in zip(trainers, before, strict=True)
    ]


def _row(trainer: TimedTrainer, steps: int) -> table.Row:
    cpu, wall = trainer.clock.cpu, trainer.clock.wall
    per = 1e4 / steps
    learning, learning_wall = cpu["Update"] - cpu["Collect"], wall["Update"] - wall["Collect"]
    return {
        "task": trainer.task.name.removesuffix("-v0"),
        "algorithm": trainer.settings.algo,
        "steps /CPU-s": steps / cpu["Update"],
        "steps /s": steps / wall["Update"],
        "simulate": per * cpu["Simulator"],
        "act": per * (cpu["Collect"] - cpu["Simulator"]),
        "learn": per * learning,
        "ratio CPU": learning / cpu["Simulator"],
        "ratio wall": learning_wall / wall["Simulator"],
    }
