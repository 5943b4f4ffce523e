"""Copies of the user's own environment, in Gymnasium's vector environments."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from functools import partial

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from jaxtyping import Float, Int

from cmbpo.envs.adapter import EnvAdapter, adapt
from cmbpo.interruption import HANGUP
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.simulated import unsaid
from cmbpo.tasks.task import Outcome


class VectorCopies:
    """N copies of an environment, in line or in processes; the physics stays in the copies.

    Each episode begins with a seed drawn from its copy's generator, so that it depends on nothing
    before it. The `state` of a copy is empty: what a copy holds inside cannot be had in general,
    and so running episodes are lost when training is interrupted.
    """

    restorable = False

    def __init__(self, make: Callable[..., gymnasium.Env], num_envs: int, *, settings: EnvSettings):
        """Make the copies."""
        makers = [partial(_copy, make, settings.cost_key)] * num_envs
        self._envs: SyncVectorEnv | AsyncVectorEnv
        if settings.copies == "processes":
            # JAX has threads, which a fork would lose in the middle of what they do.
            start = multiprocessing.get_context("forkserver")
            start.set_forkserver_preload(["cmbpo.envs.adapter"])
            self._envs = AsyncVectorEnv(
                makers, context="forkserver", autoreset_mode=AutoresetMode.DISABLED
            )
        else:
            self._envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)

    def begin(
        self, rows: Int[np.ndarray, " ended"], random: Sequence[np.random.Generator]
    ) -> tuple[Float[np.ndarray, "ended state"], Float[np.ndarray, "ended obs"]]:
        """Start an episode in these copies, each with a seed from its own generator."""
        mask = np.zeros(self._envs.num_envs, bool)
        mask[rows] = True
        seeds: list[int | None] = [None] * self._envs.num_envs
        for row, own in zip(rows, random, strict=True):
            seeds[row] = int(own.integers(2**31))
        obs, _ = self._envs.reset(seed=seeds, options={"reset_mask": mask})
        return np.empty((len(rows), 0)), obs[rows]

    def step(
        self,
        state: Float[np.ndarray, "N state"],
        obs: Float[np.ndarray, "N obs"],
        act: Float[np.ndarray, "N act"],
    ) -> Outcome:
        """Advance all copies by one step.

        Where a number is not finite, the step is terminal, earns nothing and costs at least 1.
        """
        del obs
        next_obs, reward, terminated, truncated, info = self._envs.step(act)
        cost = np.asarray(info["cost"], np.float64)
        sound = np.isfinite(next_obs).all(axis=1) & np.isfinite(cost).all(axis=1)
        sound &= np.isfinite(reward)
        if not sound.all():
            next_obs[~sound] = np.nan
            reward = np.where(sound, reward, 0.0)
            least = np.where(np.isfinite(cost), np.maximum(cost, 1.0), 1.0)
            cost = np.where(sound[:, None], cost, least)
        return Outcome(state, next_obs, reward, cost, terminated | ~sound, truncated, ~sound, {})

    def close(self) -> None:
        """Close the copies and end their processes."""
        if not self._envs.closed:
            self._envs.close()


def _copy(make: Callable[[], gymnasium.Env], cost_key: tuple[str, ...]) -> EnvAdapter:
    if multiprocessing.parent_process() is not None:
        # An interruption reaches every process; what to do about it is for the main one to say.
        for number in filter(None, (signal.SIGINT, HANGUP)):
            signal.signal(number, signal.SIG_IGN)
    # The first copy, which the task was made of, has said what there is to say.
    with unsaid():
        return adapt(make(), cost_key)
