"""Time of each phase of a CMBPO update, over the least that this machine would need for it."""

import resource
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jax

from cmbpo import columns, tasks
from cmbpo.algorithms.update import region
from cmbpo.bench import table
from cmbpo.bench.algorithms import COMPILING
from cmbpo.bench.clock import UPDATE, TimedTrainer
from cmbpo.data.data_split import HOLDOUT, MAX_HOLDOUT
from cmbpo.settings import presets
from cmbpo.settings.registry import task_name
from cmbpo.settings.schema import TrainSettings
from cmbpo.training.device import use
from cmbpo.training.pace import matrix_rate, simulator_rate, weights


def main(
    json: Path | None = None,
    *,
    env_id: str = "HalfCheetahSafe-v0",
    preset: str = "default",
    updates: int = 8,
    archive_rows: int | None = None,
    device: Literal["auto", "cpu", "gpu"] = "auto",
) -> None:
    """Measure a run of CMBPO and print the table."""
    if updates < 1:
        raise ValueError(f"updates is {updates}; allowed: at least 1")
    backend = use(device)
    settings = presets.preset("cmbpo", task_name(env_id), preset)
    rows, said = measure(settings, updates=updates, archive_rows=archive_rows)
    notes = (
        f"{settings.env_id}, preset {preset}, on {backend}: mean of {updates} updates after the"
        f" first {COMPILING}. Floor: the phase's matrix products at the rate of one large product;"
        f" of Collect, its steps at the simulator's rate. {said} {memory()}"
    )
    table.show("Update", rows, notes=notes, json_file=json)


def measure(
    settings: TrainSettings, *, updates: int, archive_rows: int | None = None
) -> tuple[list[table.Row], str]:
    """A row for each phase and one for the update; and what they were measured against.

    The first fit, which is not measured, is as short as the later ones. `archive_rows` real steps
    are taken before it.
    """
    first = settings.initial_steps if archive_rows is None else archive_rows
    task = tasks.get(settings.env_id)
    trainer = TimedTrainer(replace(settings, initial_steps=first), task)
    trainer.warm_up(epochs=settings.ensemble.most_epochs(first))
    for _ in range(COMPILING):
        trainer.step()
    trainer.reset_clock()
    operations: dict[str, float] = defaultdict(float)
    before = trainer.env_steps
    for _ in range(updates):
        row = trainer.step()
        for phase, number in count(trainer, row).items():
            operations[phase] += number
    taken = trainer.env_steps - before
    plain, precise = matrix_rate("default"), matrix_rate("highest")
    simulated = simulator_rate(task, settings.num_envs)
    floor: dict[str, float] = {phase: operations[phase] / plain for phase in columns.PHASES}
    floor[columns.POLICY] = operations[columns.POLICY] / precise
    floor[columns.COLLECT] = taken / simulated
    floor[UPDATE] = sum(floor.values())
    rows: list[table.Row] = [
        {
            "phase": phase.rpartition("/")[2].lower(),
            "seconds": trainer.clock.wall[phase] / updates,
            "floor": floor[phase] / updates,
            "over floor": trainer.clock.wall[phase] / floor[phase] if floor[phase] else None,
            "CPU seconds": trainer.clock.cpu[phase] / updates,
            "GFLOP": operations[phase] / updates / 1e9 if operations[phase] else None,
        }
        for phase in (*columns.PHASES, UPDATE)
    ]
    said = (
        f"{taken / updates:,.0f} real steps an update, {simulated:,.0f} a second; products at"
        f" {plain / 1e9:,.0f} GFLOP/s, those of Policy, precise, at {precise / 1e9:,.0f}."
    )
    return rows, said


def count(trainer: TimedTrainer, row: dict) -> dict[str, float]:
    """Operations in the matrix products of the newest update, whose log is `row`.

    A network with w weights takes 2w for a value and 6w for a gradient, per example. A product with
    the Fisher matrix pushes a direction through the network and pulls it back: 8w.
    """
    s, learner, task = trainer.settings, trainer.learner, trainer.task
    assert learner.model is not None
    n_obs, n_act, n_cost = len(task.obs_names), len(task.act_names), len(task.cost_names)
    policy = weights(n_obs, *s.policy.hidden, n_act)
    critic = s.critic.members * (1 + n_cost) * weights(n_obs, *s.critic.hidden, 1)
    world = s.ensemble.members * weights(n_obs + n_act, *s.ensemble.hidden, 2 * (n_obs + 1))
    archive = int(learner.model.archive.size)
    held = min(HOLDOUT * archive, MAX_HOLDOUT)
    fitted = int(learner.model.fresh) == 0
    epochs = float(row[columns.FIT_EPOCHS]) if fitted else 0.0
    seen = archive - held
    probes = s.rollout.lanes // 2 * float(row[columns.HORIZON])
    imagined = float(row[columns.IMAGINED_ROWS]) + probes
    step = region(s, task.horizon)
    candidates = float(row[columns.ACCEPTANCE]) or step.backtracks
    systems = 1 + n_cost
    return {
        columns.MODEL: epochs * world * (6.0 * seen + 2.0 * held),
        columns.IMAGINE: imagined * 2.0 * (world + policy),
        columns.ADVANTAGES: s.batch_size * 2.0 * critic,
        columns.POLICY: s.batch_size
        * policy
        * (
            2.0
            + (2.0 + 4.0 * systems)
            + 8.0 * systems * step.cg_iterations * step.fisher_share
            + 2.0 * candidates
        ),
        columns.CRITIC: s.critic.epochs * s.batch_size * 6.0 * critic,
    }


def memory() -> str:
    """The most memory that this process, and the device it learns on, have held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    said = f"Peak memory: {peak / 2**30:.2f} GiB"
    on_device = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return f"{said}, {on_device / 2**30:.2f} GiB on the device." if on_device else f"{said}."
