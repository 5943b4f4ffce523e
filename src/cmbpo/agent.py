"""The Python interface: an agent is built from an algorithm and a task, learns, and acts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cmbpo import evaluate as evaluation
from cmbpo import tasks, train
from cmbpo.networks import Policy
from cmbpo.presets import preset
from cmbpo.run import Run
from cmbpo.settings import TrainSettings

Callback = Callable[[Mapping[str, Any]], None]


class Agent:
    """A policy with the settings it is, or was, trained with."""

    def __init__(
        self,
        algo: str = "cmbpo",
        env_id: str = "PointCircle-v0",
        *,
        preset_name: str = "default",
        settings: TrainSettings | None = None,
        **changes: Any,
    ):
        """Take the settings of a preset, or `settings`, with `changes` by field name."""
        self.settings = replace(settings or preset(algo, env_id, preset_name), **changes)
        self.task = tasks.get(self.settings.env_id)
        self.policy: Policy | None = None
        self.folder: Path | None = None
        self._random = np.random.default_rng()

    def learn(self, callbacks: Sequence[Callback] = ()) -> "Agent":
        """Train. Each callback gets the row of `progress.csv` after each update."""
        self.folder, self.policy = train.run(self.settings, callbacks=callbacks)
        return self

    def predict(self, obs: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or the actions for a batch, within the action space."""
        seed = int(self._random.integers(2**31))
        act = evaluation.act(self._trained(), np.asarray(obs), deterministic, seed)
        return np.clip(act, self.task.action_space.low, self.task.action_space.high)

    def evaluate(self, episodes: int = 20, seed: int = 1_000_000) -> "evaluation.Evaluation":
        """Run whole episodes without learning."""
        limits = self.settings.cost_limit
        return evaluation.evaluate(
            self._trained(), self.task, episodes=episodes, seed=seed, cost_limits=limits
        )

    def _trained(self) -> Policy:
        if self.policy is None:
            raise ValueError("this agent has no policy yet: call learn() first, or cmbpo.load(run)")
        return self.policy


def load(folder: str | Path) -> Agent:
    """The agent of a run folder, with the policy of its newest good checkpoint."""
    run = Run.open(folder)
    agent = Agent(settings=run.settings)
    agent.folder, agent.policy = run.folder, evaluation.load_policy(run, agent.task)
    return agent
