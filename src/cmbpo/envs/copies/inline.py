"""One copy of the user's environment in this very process, and its answers as rows of numbers."""

import sys
from collections.abc import Callable
from functools import partial

import gymnasium
import numpy as np
from jaxtyping import Float

from cmbpo.envs.adapter import EnvAdapter, adapted
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.simulated import unsaid


class InlineCopy:
    """The copy of this number; what is asked of it is done when the answer is fetched.

    `base` is the user's environment itself.
    """

    def __init__(self, make: Callable[..., gymnasium.Env], number: int, settings: EnvSettings):
        """Make it."""
        # The first copy, which the task was made of, has said what there is to say.
        with unsaid():
            self._env = adapted(make, settings.cost_key, copy=number, timeout=settings.timeout)
        self.base = self._env.unwrapped
        self._asked = partial(width, self._env)

    def reset(self, seed: int) -> None:
        """Ask it to start an episode."""
        self._asked = partial(begin, self._env, seed)

    def step(self, act: Float[np.ndarray, " act"]) -> None:
        """Ask it to advance by one step."""
        self._asked = partial(advance, self._env, act)

    def answer(self) -> Float[np.ndarray, " numbers"]:
        """What comes of the last question; the first is how wide an observation is."""
        return self._asked()

    def close(self) -> None:
        """Close it when it ends."""

    def end(self, patience: float = 0.0) -> None:
        """Let go of it."""
        del patience
        close(self._env)


def width(env: EnvAdapter) -> Float[np.ndarray, " one"]:
    """Entries of an observation."""
    return np.array(env.observation_space.shape, np.float64)


def begin(env: EnvAdapter, seed: int) -> Float[np.ndarray, " obs"]:
    """The first observation of the episode with this seed."""
    return env.reset(seed=seed)[0]


def advance(env: EnvAdapter, act: Float[np.ndarray, " act"]) -> Float[np.ndarray, " numbers"]:
    """A step as one row: observation, reward, costs, whether it terminated, was truncated."""
    obs, reward, terminated, truncated, info = env.step(act)
    n, cost = len(obs), info["cost"]
    row = np.empty(n + len(cost) + 3)
    row[:n], row[n], row[n + 1 : -2] = obs, reward, cost
    row[-2], row[-1] = terminated, truncated
    return row


def close(env: EnvAdapter) -> None:
    """Close the environment; nothing depends on it any more, so that failing is only said."""
    try:
        env.close()
    except EnvironmentFailure as failure:
        sys.stderr.write(f"{failure}\n")
