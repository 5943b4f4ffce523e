"""The trained policies that come with this package, each with a card that says what it is worth.

They are exported arrays (`cmbpo export`), in `policies/<Task>.npz`, with `policies/<Task>.json`
beside them. `python -m cmbpo.evaluation.shipping RUN` puts one there.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cmbpo.evaluation import numpy_policy
from cmbpo.settings.registry import TASKS, task_name

POLICIES = Path(__file__).with_name("policies")


class Card(NamedTuple):
    """What is known of a policy: episodes that were run after training, on seeds of their own."""

    task: str
    algorithm: str
    env_steps: int
    """Real steps that it was trained with."""
    command: str
    """What trained it."""
    cmbpo: str
    """The version that did, with its commit."""
    episodes: int
    mean_return: float
    cost: tuple[float, ...]
    """Mean cost per `horizon` steps, of each constraint."""
    cost_cvar: tuple[float, ...]
    """Mean cost of the costliest tenth of the episodes, of each constraint."""
    cost_limits: tuple[float, ...]
    horizon: int
    evaluate_command: str
    """What found these numbers, on the run that it is from."""

    def sentence(self) -> str:
        """What to expect of it."""
        costs = ", ".join(
            f"{cost:.3g} (costliest tenth {worst:.3g}, {'above ' * (cost > limit)}limit {limit:g})"
            for cost, worst, limit in zip(self.cost, self.cost_cvar, self.cost_limits, strict=True)
        )
        return (
            f"{self.task}: {self.algorithm} after {self.env_steps:,} real steps; over"
            f" {self.episodes} episodes return {self.mean_return:,.0f}, cost {costs}"
        )


class Shipped(NamedTuple):
    """A policy, from observation to action, and its card."""

    act: Callable[[np.ndarray], np.ndarray]
    card: Card


def names() -> tuple[str, ...]:
    """The tasks that a trained policy comes with."""
    return tuple(name for name in TASKS if (POLICIES / f"{name}.npz").exists())


def find(task: str) -> Shipped:
    """The policy of a task, by any name of that."""
    name = task_name(task)
    if name not in names():
        raise ValueError(
            f"no trained policy of {name} comes with this version; there are:"
            f" {', '.join(names())}. One of your own, from cmbpo train --env-id {name}-v0, is"
            " watched by its run folder"
        )
    return Shipped(numpy_policy.load(POLICIES / f"{name}.npz"), read_card(name))


def read_card(name: str) -> Card:
    """The card of a policy that is there."""
    held = json.loads((POLICIES / f"{name}.json").read_text(encoding="utf-8"))
    values: dict[str, Any] = {n: tuple(x) if isinstance(x, list) else x for n, x in held.items()}
    return Card(**values)
