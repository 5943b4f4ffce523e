"""The running episode of every copy, and what all real steps earned and cost so far."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

RECENT = 20
"""Episodes that the running means of return and cost are taken over."""


@dataclass(frozen=True)
class Episode:
    """One real episode from reset to end, noted when `env_steps` steps had been taken in all."""

    env_steps: int
    ret: float
    cost: tuple[float, ...]
    length: int
    terminated: bool


class EpisodeMeans(NamedTuple):
    """What the newest whole episodes earned, cost and took; not numbers before the first."""

    ret: float
    cost: np.ndarray
    length: float


class Ledger:
    """The running episode of each copy, and what all episodes earned and cost so far."""

    def __init__(self, num_envs: int, n_cost: int):
        """Nothing earned or spent yet."""
        self.ret = np.zeros(num_envs)
        self.cost = np.zeros((num_envs, n_cost))
        self.length = np.zeros(num_envs, int)
        self.env_steps = 0
        self.cumulative_cost = np.zeros(n_cost)
        self.recent = np.full((RECENT, 2 + n_cost), np.nan)

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays."""
        return {name: np.array(value) for name, value in vars(self).items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from `state`."""
        for name, value in state.items():
            setattr(self, name, int(value) if name == "env_steps" else np.array(value))

    def means(self) -> "EpisodeMeans":
        """Return, costs and length, each the mean over the newest whole episodes."""
        seen = self.recent[~np.isnan(self.recent[:, 0])]
        mean = seen.mean(axis=0) if len(seen) else np.full(self.recent.shape[1], np.nan)
        return EpisodeMeans(ret=mean[0], cost=mean[2:], length=mean[1])

    def drop_running(self) -> None:
        """Forget the episodes that run now, where their physics is lost."""
        for running in (self.ret, self.cost, self.length):
            running[:] = 0

    def note(
        self,
        reward: np.ndarray,
        cost: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        *,
        cut: np.ndarray,
        allotted: np.ndarray,
    ) -> list[Episode]:
        """Add one step of every copy; the episodes that ended with it.

        An episode that was `cut` before its `allotted` steps, by staggering, is no whole episode:
        it is spent, but not reported.
        """
        self.env_steps += len(reward)
        self.cumulative_cost += cost.sum(axis=0)
        self.ret += reward
        self.cost += cost
        self.length += 1
        ended = terminated | truncated
        if not ended.any():
            return []
        # Staggering cuts first episodes short; as episodes they would look cheap.
        whole = np.flatnonzero(terminated | (truncated & (~cut | (self.length >= allotted))))
        episodes = [
            Episode(
                env_steps=self.env_steps,
                ret=float(self.ret[i]),
                cost=tuple(self.cost[i].tolist()),
                length=int(self.length[i]),
                terminated=bool(terminated[i]),
            )
            for i in whole
        ]
        for running in (self.ret, self.cost, self.length):
            running[ended] = 0
        newest = [(e.ret, e.length, *e.cost) for e in episodes]
        if newest:
            self.recent = np.concatenate([self.recent, np.array(newest)])[-RECENT:]
        return episodes
