"""The real side of a run: the copies of the task, their episodes, and what all of it cost."""

from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from cmbpo import columns
from cmbpo.columns import Column
from cmbpo.data import episode_curriculum
from cmbpo.data.collect import collect
from cmbpo.data.ledger import Episode, Ledger
from cmbpo.envs.failures import EnvironmentFailure, told
from cmbpo.envs.simulator import Simulator
from cmbpo.networks import Actor
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.trajectory import Steps


class RealWorld:
    """The copies that a run acts in, and the account of what they earned and cost."""

    def __init__(self, task: Task, settings: TrainSettings):
        """Start all copies; nothing is earned or spent yet."""
        self.task, self.settings = task, settings
        self.limits = np.array(settings.cost_limit or task.cost_limits)
        self.simulator = Simulator(
            task,
            settings.num_envs,
            seed=settings.seed,
            # In lock step, 20 copies × 50 steps would see one phase of the obstacle's cycle.
            stagger=True,
            episode_steps=settings.first_episode,
        )
        self.ledger = Ledger(settings.num_envs, len(self.limits))
        self.simulator.mishaps.when = self._so_far
        self.regret = 0.0
        self.violating_episodes = 0
        self._episodes: list[Episode] = []

    @property
    def env_steps(self) -> int:
        """Real steps so far."""
        return self.ledger.env_steps

    def state(self) -> dict[str, Any]:
        """All that its future depends on."""
        return {
            "simulator": self.simulator.state(),
            "ledger": self.ledger.state(),
            "regret": np.array(self.regret),
            "violating_episodes": np.array(self.violating_episodes),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.simulator.restore(state["simulator"])
        self.ledger.restore(state["ledger"])
        if not self.simulator.restorable:
            self.ledger.drop_running()
        self.regret = float(state["regret"])
        self.violating_episodes = int(state["violating_episodes"])

    def collect(self, policy: Actor, *, steps: int, rows: int, key: PRNGKeyArray) -> Steps:
        """Let the policy act for `steps` steps in every copy."""
        try:
            real, episodes = collect(
                self.simulator, self.ledger, policy, steps=steps, rows=rows, key=key
            )
        except EnvironmentFailure as failure:
            raise EnvironmentFailure(told(str(failure), self._so_far())) from failure
        self._episodes += episodes
        self.violating_episodes += sum(
            any(c > d for c, d in zip(e.cost, self.limits, strict=True)) for e in episodes
        )
        return real

    def _so_far(self) -> str:
        return f"The run had taken {self.env_steps:,} real steps."

    def take_sentences(self) -> list[str]:
        """What is to be said of what went wrong since the last call."""
        return self.simulator.mishaps.take_sentences()

    def lengthen(self, cost: np.ndarray, target: np.ndarray, *, steps: float) -> None:
        """Let episodes that begin from now on be longer or shorter, by what the policy costs.

        `steps` is how many real steps that was seen in.
        """
        horizon = self.task.horizon
        self.simulator.episode_steps = episode_curriculum.next_length(
            self.simulator.episode_steps,
            first=self.settings.first_episode or horizon,
            horizon=horizon,
            cost=cost,
            target=target,
            limit=self.limits,
            growth=self.settings.episode_growth,
            steps=steps,
        )

    def account(self, real_cost: np.ndarray, *, steps: int) -> dict[Column, Any]:
        """The columns of the log that stand first; J_c of the newest `steps` steps adds to regret.

        Regret is Σ max(0, J_c − d), each update counting by its share of an episode.
        """
        over = np.maximum(np.asarray(real_cost, float) - self.limits, 0.0).sum()
        self.regret += float(over) * steps / self.task.horizon
        means, spent = self.ledger.means(), self.ledger.cumulative_cost.sum()
        return {
            columns.RETURN: means.ret,
            columns.COST: means.cost,
            columns.LENGTH: means.length,
            columns.EPISODE_STEPS: int(self.simulator.episode_steps),
            columns.CUMULATIVE_COST: spent,
            columns.COST_RATE: spent / self.env_steps,
            columns.REGRET: self.regret,
            columns.VIOLATING_EPISODES: self.violating_episodes,
            columns.NOT_FINITE: self.simulator.mishaps.not_finite,
            columns.RESTARTS: self.simulator.mishaps.restarts,
            columns.LIMIT: self.limits,
        }

    def take_episodes(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        ended, self._episodes = self._episodes, []
        return ended

    def close(self) -> None:
        """Let go of what the copies run in."""
        self.simulator.close()
