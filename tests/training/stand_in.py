"""A stand-in for a trainer: updates that cost nothing, and fail when they are told to."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from cmbpo.networks import Policy
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training.protocol import Watch, nobody_watches
from cmbpo.training.rows import Row

STEPS = 100
"""Real steps of an update."""

START = Policy(2, 1, hidden=(4,), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(0))


class StandIn:
    """Update k makes a policy of log_std k; `fail` is called in the middle of each update."""

    fail: Callable[[int], None] = staticmethod(lambda update: None)
    cost: Callable[[int], float] = staticmethod(lambda update: 0.0)

    def __init__(self, settings: TrainSettings, task: Task):
        self.settings, self.task = settings, task
        self.update = 0
        self.offending = {"x": np.zeros(1)}
        self.counts = np.zeros(3)
        self.policy = START

    @property
    def env_steps(self) -> int:
        return int(self.counts[0])

    def warm_up(self, *, watch: Watch = nobody_watches) -> None:
        self.counts[0] += 10

    def doubts(self) -> list[str]:
        return []

    def step(self) -> Row:
        self.counts += STEPS
        number = np.array([float(self.update + 1)], np.float32)
        self.policy = eqx.tree_at(lambda p: p.log_std, self.policy, jax.numpy.asarray(number))
        type(self).fail(self.update + 1)
        self.update += 1
        return {
            "TotalEnvSteps": self.env_steps,
            "Train/Epoch": self.update,
            "Metrics/EpRet": float("nan") if self.update == 1 else float(self.update % 4),
            "Metrics/EpCost": type(self).cost(self.update),
            "Metrics/EpLen": 50.0,
            "Constraint/Limit": 5.0,
        }

    def take_sentences(self) -> list[str]:
        return []

    def take_episodes(self) -> list[Row]:
        return [{"env_steps": self.env_steps, "return": 1.0}] if self.update else []

    def state(self) -> dict[str, Any]:
        return {
            "learner": {"policy": self.policy},
            "counts": self.counts.copy(),
            "update": np.array(self.update),
        }

    def as_it_was(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.policy = state["learner"]["policy"]
        self.counts = np.array(state["counts"])
        self.update = int(state["update"])

    def take_over(self, other: Run) -> None:
        self.policy = other.load(self.policy, under="learner/policy")

    def close(self) -> None:
        pass
