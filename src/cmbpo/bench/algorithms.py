"""Environment steps per CPU-second of the model-free algorithms, learning included."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from cmbpo import columns, tasks
from cmbpo.bench import table
from cmbpo.bench.clock import SIMULATOR, UPDATE, TimedTrainer
from cmbpo.bench.keeping import KeptRun, kept
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS, TASKS, algorithm_name, task_name
from cmbpo.settings.schema import TrainSettings
from cmbpo.training import device

MODEL_FREE = tuple(name for name, row in ALGORITHMS.items() if row.data == "real")
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
    for algo in map(algorithm_name, algos):
        if ALGORITHMS[algo].data == "replay":
            raise ValueError(f"--algos {algo}; allowed: those without a replay buffer")
    chosen = [
        [preset(algo, task_name(env)) for algo in algos or MODEL_FREE] for env in envs or TASKS
    ]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    device.use("cpu")
    rows = [row for settings in chosen for row in measure(settings, updates=updates)]
    notes = (
        f"Default presets on {cores} CPU cores, {updates} updates each after the first {COMPILING},"
        " the algorithms of a task in turn. Seconds are CPU seconds of all threads per 10,000"
        " steps: in the simulator, in the policy's choice of actions and their record, in all"
        " that follows, and in records, checks, table and checkpoints, which the others are"
        " without. Ratio: learning over simulating, in CPU and in wall time. Keep %: what an update"
        " with records and all takes more than the one without before it, in CPU time, the median."
    )
    table.show("Algorithms", rows, notes=notes, json_file=json)


def measure(settings: Sequence[TrainSettings], *, updates: int) -> list[table.Row]:
    """One row for each of the settings; all make their updates in turn."""
    trainers = [TimedTrainer(s, tasks.get(s.env_id)) for s in settings]
    for trainer in trainers:
        trainer.warm_up()
        for _ in range(COMPILING):
            trainer.step()
        trainer.reset_clock()
    before = [trainer.env_steps for trainer in trainers]
    with ExitStack() as stack:
        runs = [stack.enter_context(kept(trainer)) for trainer in trainers]
        turns = [
            [_more(trainer, run) for trainer, run in zip(trainers, runs, strict=True)]
            for _ in range(updates)
        ]
        return [
            _row(trainer, run, (trainer.env_steps - steps) / 2) | {"keep %": median(more)}
            for trainer, run, steps, more in zip(
                trainers, runs, before, zip(*turns, strict=True), strict=True
            )
        ]


def _more(trainer: TimedTrainer, run: KeptRun) -> float:
    """An update alone, then one with all that is kept: what the second takes more, in per cent."""
    alone, whole = trainer.clock.cpu[UPDATE], run.seconds()[0]
    trainer.step()
    run.step()
    return 100.0 * ((run.seconds()[0] - whole) / (trainer.clock.cpu[UPDATE] - alone) - 1.0)


def _row(trainer: TimedTrainer, run: KeptRun, steps: float) -> dict[str, str | int | float | None]:
    cpu, wall = trainer.clock.cpu, trainer.clock.wall
    per = 1e4 / steps
    learning, learning_wall = (
        cpu[UPDATE] - cpu[columns.COLLECT],
        wall[UPDATE] - wall[columns.COLLECT],
    )
    return {
        "task": trainer.task.name.removesuffix("-v0"),
        "algorithm": trainer.settings.algo,
        "steps /CPU-s": steps / cpu[UPDATE],
        "steps /s": steps / wall[UPDATE],
        "simulate": per * cpu[SIMULATOR],
        "act": per * (cpu[columns.COLLECT] - cpu[SIMULATOR]),
        "learn": per * learning,
        "keep": per * run.seconds()[1],
        "ratio CPU": learning / cpu[SIMULATOR],
        "ratio wall": learning_wall / wall[SIMULATOR],
    }
