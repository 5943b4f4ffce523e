"""One step of a task for many copies: what the single environment and the simulator share."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int

from cmbpo.tasks.task import SimulatedTask

BLOWN_UP = 1e4
"""No position (m, rad) or speed (m/s, rad/s) of a sound simulation comes near this number."""

_IGNORE = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda message: None)


@contextmanager
def unsaid() -> Iterator[None]:
    """Inside, MuJoCo neither prints nor logs its warnings."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_IGNORE)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


class Outcome(NamedTuple):
    """What a step led to, before any reset."""

    state: Float[np.ndarray, "N state"]
    obs: Float[np.ndarray, "N obs"]
    reward: Float[np.ndarray, " N"]
    cost: Float[np.ndarray, "N cost"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    blown_up: Bool[np.ndarray, " N"]
    terms: dict[str, Float[np.ndarray, " N"]]


class World:
    """A task and the threads that advance its physics."""

    restorable = True

    def __init__(self, task: SimulatedTask, threads: int):
        """Compile the scene and prepare `threads` threads."""
        self.task = task
        self._physics = task.physics(threads)

    def begin(
        self, rows: Int[np.ndarray, " ended"], random: Sequence[np.random.Generator]
    ) -> tuple[Float[np.ndarray, "ended state"], Float[np.ndarray, "ended obs"]]:
        """States at the start of an episode, each from its own generator, and what is seen."""
        state = np.stack([self.task.start(own) for own in random])
        return state, self.observe(state)

    def observe(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, "N obs"]:
        """The observations of states at the start of an episode."""
        return self.task.observe(state, self._physics.measure(state))

    def step(
        self,
        state: Float[np.ndarray, "N state"],
        obs: Float[np.ndarray, "N obs"],
        act: Float[np.ndarray, "N act"],
    ) -> Outcome:
        """Advance all copies by one step.

        A copy whose physics blew up is observed as not-a-number throughout and earns nothing, so
        that the task's own functions end it and charge its cost.
        """
        task = self.task
        within = np.minimum(np.maximum(act, -1.0), 1.0)
        next_state, measured = self._advance(state, task.control(state, within))
        sound = np.abs(next_state).max(axis=1) < BLOWN_UP
        blown_up = ~(sound & np.isfinite(measured.sum(axis=1)))
        trouble = blown_up.any()
        if trouble:
            next_state[blown_up] = state[blown_up]
            measured[blown_up] = 0.0
        next_obs = task.observe(next_state, measured)
        terms = task.reward_terms(state, within, next_state, measured)
        if trouble:
            next_obs[blown_up] = np.nan
            terms = {name: np.where(blown_up, 0.0, term) for name, term in terms.items()}
        reward = sum(terms.values(), np.zeros(len(state)))
        cost = task.costs(obs, act, next_obs)
        terminated = task.terminated(obs, act, next_obs)
        terms |= task.cost_terms(next_obs, cost, terminated)
        truncated = np.zeros(len(state), bool)
        return Outcome(next_state, next_obs, reward, cost, terminated, truncated, blown_up, terms)

    def close(self) -> None:
        """Nothing to let go of."""

    def _advance(self, state: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Step the physics; what MuJoCo would say of it is reported by `blown_up`."""
        with unsaid():
            return self._physics.step(state, control)


def checked(act: object, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """The action as an array of doubles, if it has this shape and is finite."""
    array = np.asarray(act, np.float64)
    if array.shape != shape:
        raise ValueError(f"the action has shape {array.shape}; allowed: {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"the action is {array}; allowed: finite numbers")
    return array
