"""The Python interface: an agent is built from an algorithm and a task, learns, and acts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmbpo.envs.find import find_task, name_of
from cmbpo.envs.making import Environment
from cmbpo.evaluation import evaluate as evaluation
from cmbpo.networks import Actor
from cmbpo.runs.run_folder import Run
from cmbpo.settings.overrides import changed
from cmbpo.settings.presets import preset as preset_of
from cmbpo.settings.schema import TrainSettings
from cmbpo.settings.trust import require_for_training
from cmbpo.training import loop

Callback = Callable[[Mapping[str, Any]], None]


class Agent:
    """A policy with the settings it is, or was, trained with."""

    def __init__(
        self,
        algo: str = "cmbpo",
        env: Environment = "PointCircle-v0",
        *,
        preset: str = "default",
        **changes: Any,
    ):
        """Take the settings of a preset with `changes` by name; the rest of it stays.

        `env` is the id of a task or of an environment of your own, such an environment, or a
        function that makes one. A setting of a group is changed as the command line does it:
        `Agent("cmbpo", "AntSafe-v0", seed=3, policy={"hidden": (64, 64)})`.
        """
        self._hold(changed(preset_of(algo, name_of(env), preset), changes), env, trusted=True)

    @classmethod
    def of_settings(
        cls, settings: TrainSettings, env: Environment | None = None, *, trusted: bool = True
    ) -> "Agent":
        """An agent with exactly these settings; `env` where it was made in Python.

        Settings of somebody else's are not `trusted`: no module is imported because they name it.
        """
        agent = cls.__new__(cls)
        agent._hold(settings, settings.env_id if env is None else env, trusted=trusted)
        return agent

    def _hold(self, settings: TrainSettings, env: Environment, *, trusted: bool) -> None:
        self.settings = settings
        self._env = None if isinstance(env, str) else env
        self._trusted = trusted
        self.task = find_task(settings, self._env, trusted=trusted)
        self.policy: Actor | None = None
        self.folder: Path | None = None
        self._random = np.random.default_rng()

    def learn(self, callbacks: Sequence[Callback] = ()) -> "Agent":
        """Train. Each callback gets the row of `progress.csv` after each update."""
        if not self._trusted:
            require_for_training(self.settings)
        self.folder, self.policy = loop.run(self.settings, callbacks=callbacks, env=self._env)
        return self

    def predict(self, obs: ArrayLike, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or the actions for a batch, as the environment takes it.

        It is within the bounds of the action space, in its units.
        """
        policy = self._trained()
        seen, length = np.asarray(obs, float), len(self.task.obs_names)
        if seen.shape[-1:] != (length,) or not np.isfinite(seen).all():
            raise ValueError(
                f"the observation has the shape {seen.shape} and"
                f" {np.count_nonzero(~np.isfinite(seen))} numbers that are not finite; allowed:"
                f" {length} finite numbers, or rows of so many"
            )
        seed = int(self._random.integers(2**31))
        act = evaluation.act(policy, seen, deterministic, seed)
        return self.task.in_units(act)

    def evaluate(self, episodes: int = 20, seed: int = 1_000_000) -> "evaluation.Evaluation":
        """Run whole episodes without learning."""
        limits = self.settings.cost_limit
        return evaluation.evaluate(
            self._trained(), self.task, episodes=episodes, seed=seed, cost_limits=limits
        )

    def _trained(self) -> Actor:
        if self.policy is None:
            raise ValueError("this agent has no policy yet: call learn() first, or cmbpo.load(run)")
        return self.policy


def load(
    folder: str | Path,
    env: Environment | None = None,
    *,
    trust: bool = False,
    best: bool = False,
) -> Agent:
    """The agent of a run folder, with the policy of its newest good checkpoint.

    `env` is only asked for where the run's environment was made in Python. A run whose environment
    is in a module of its maker's imports it only with `trust=True`. With `best=True` the policy is
    the one that earned most within the limit.
    """
    run = Run.open(folder)
    settings = replace(run.settings, env_id=env) if isinstance(env, str) else run.settings
    agent = Agent.of_settings(settings, env, trusted=trust or env is not None)
    agent.folder = run.folder
    agent.policy = evaluation.load_policy(run, agent.task, best=best)
    return agent
