"""Many copies of a MuJoCo model, advanced in threads: rows of states in, rows of states out.

What happens to a row depends on that row and its controls alone, so that results are the same to
the bit for any number of copies and threads. The solver therefore starts cold at every call, or
from what the row itself holds.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Protocol, runtime_checkable

import mujoco
import mujoco.rollout
import numpy as np
from jaxtyping import Float

_State = mujoco.mjtState
_ROW = _State.mjSTATE_TIME | _State.mjSTATE_QPOS | _State.mjSTATE_QVEL
WARM_ROW = _ROW | _State.mjSTATE_WARMSTART
"""Rows that hold the solver's warm start as well."""
_INPUT = WARM_ROW | _State.mjSTATE_CTRL

Measure = Callable[[mujoco.MjModel, mujoco.MjData, np.ndarray], None]
"""Writes what a task needs to know beyond the state, such as contact forces, into an array."""


@runtime_checkable
class Physics(Protocol):
    """What advances the states of many copies."""

    def begin(
        self, start: Float[np.ndarray, "N start"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states at the start of an episode, with all that is kept, and what is measured."""
        ...

    def step(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states one step later, and what is measured there."""
        ...


class PlainPhysics:
    """Advances rows [time, qpos, qvel] with `mujoco.rollout`; measures nothing."""

    def __init__(self, model: mujoco.MjModel, frame_skip: int, threads: int):
        """Prepare `threads` threads that make `frame_skip` time steps a call."""
        self._model = model
        self._frame_skip = frame_skip
        self._rollout = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._data = [mujoco.MjData(model) for _ in range(threads)]

    def begin(
        self, start: Float[np.ndarray, "N start"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states as they are, and what is measured there."""
        return start, self.measure(start)

    def measure(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, "N measured"]:
        """Nothing."""
        return np.empty((len(state), 0))

    def step(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states one step later, and what is measured there."""
        n, nstep = len(state), self._frame_skip
        path = np.empty((n, nstep, state.shape[1]))
        self._rollout.rollout(
            [self._model] * n,
            self._data,
            state,
            np.repeat(control[:, None, :], nstep, axis=1),
            skip_checks=True,
            nstep=nstep,
            state=path,
            # Four portions a thread: a copy with many contacts holds up only its own.
            chunk_size=max(1, n // (4 * len(self._data))),
        )
        result = path[:, -1]
        return result, self.measure(result)


class CentredPhysics(PlainPhysics):
    """Advances rows [time, qpos, qvel] with `mujoco.rollout`; measures the centre of mass.

    A step of MuJoCo ends with its kinematics as they were before it. They are computed for the
    states that it led to in models of many robots side by side: one call for all takes 1.6 µs a
    copy, and a loop in Python over the copies would hold up every thread.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        robot: Callable[[], mujoco.MjSpec],
        frame_skip: int,
        threads: int,
    ):
        """Prepare `threads` threads for `model`, whose only robot is what `robot` builds."""
        super().__init__(model, frame_skip, threads)
        self._crowds = [Crowd(robot, size) for size in (1, 8, 32)]

    def measure(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, "N 6"]:
        """Position and velocity of the centre of mass, m and m/s."""
        largest = self._crowds[-1].size
        measured = np.empty((len(state), 6))
        for first in range(0, len(state), largest):
            some = slice(first, first + largest)
            rows = len(state[some])
            crowd = next(crowd for crowd in self._crowds if crowd.size >= rows)
            crowd.centres(state[some], measured[some])
        return measured


class Crowd:
    """One model of several robots that never touch: their kinematics in one call."""

    def __init__(self, robot: Callable[[], mujoco.MjSpec], size: int):
        """Prepare the memory of `size` robots."""
        self.size = size
        self._model = _crowded(robot, size)
        self._data = mujoco.MjData(self._model)
        self._roots = np.flatnonzero(self._model.body_parentid == 0)[1:]

    def centres(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N 6"]
    ) -> None:
        """Write position and velocity of the centres of mass of up to `size` robots."""
        model, data, n = self._model, self._data, len(state)
        nq = model.nq // self.size
        data.qpos.reshape(self.size, -1)[:n] = state[:, 1 : 1 + nq]
        data.qvel.reshape(self.size, -1)[:n] = state[:, 1 + nq :]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)
        mujoco.mj_subtreeVel(model, data)
        measured[:, :3] = data.subtree_com[self._roots[:n]]
        measured[:, 3:] = data.subtree_linvel[self._roots[:n]]


@cache
def _crowded(robot: Callable[[], mujoco.MjSpec], size: int) -> mujoco.MjModel:
    """A scene of `size` robots, compiled once: that takes a tenth of a second."""
    spec = robot()
    for i in range(1, size):
        spec.attach(robot(), prefix=f"{i}/", frame=spec.worldbody.add_frame())
    return spec.compile()


class Scene:
    """One model, with the scratch memory of each thread, advanced copy by copy."""

    def __init__(
        self,
        model: mujoco.MjModel,
        frame_skip: int,
        threads: int,
        measure: Measure,
        *,
        warm: bool = False,
    ):
        """Prepare the scratch memory of `threads` threads; `warm`: rows hold a warm start."""
        self.model = model
        self._warm = warm
        self._frame_skip = frame_skip
        self._data = [mujoco.MjData(model) for _ in range(threads)]
        self._measure = measure

    def prepare(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> Float[np.ndarray, "N given"]:
        """The rows that `advance` takes."""
        # The zeros are the solver's warm start: what a copy did before must not matter.
        cold = np.zeros((len(state), 0 if self._warm else self.model.nv))
        return np.concatenate([state, cold, control], axis=1)

    def advance(
        self, thread: int, given: np.ndarray, state: np.ndarray, measured: np.ndarray
    ) -> None:
        """Make one step with a thread's memory; write the new state and what is measured there."""
        data = self._data[thread]
        mujoco.mj_setState(self.model, data, given, _INPUT)
        mujoco.mj_step(self.model, data, self._frame_skip)
        self._measure(self.model, data, measured)
        mujoco.mj_getState(self.model, data, state, WARM_ROW if self._warm else _ROW)


class Crew:
    """Threads that share the rows of a step; the calling thread is one of them."""

    def __init__(self, threads: int):
        """Start all but the calling thread."""
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._threads = threads

    def share(self, rows: int, work: Callable[[int, int], None]) -> None:
        """Call `work(thread, row)` for each row; each thread takes the next row that is left."""
        left = iter(range(rows))

        def shift(thread: int) -> None:
            for row in left:
                work(thread, row)

        helpers = []
        if self._pool is not None:
            helpers = [self._pool.submit(shift, k) for k in range(1, min(self._threads, rows))]
        shift(0)
        for helper in helpers:
            helper.result()
