"""Many copies of a MuJoCo model, advanced in threads: rows of states in, rows of states out.

What happens to a row depends on that row and its controls alone, so that results are the same to
the bit for any number of copies and threads. The solver therefore starts cold at every call.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

import mujoco
import mujoco.rollout
import numpy as np
from jaxtyping import Float

_State = mujoco.mjtState
_ROW = _State.mjSTATE_TIME | _State.mjSTATE_QPOS | _State.mjSTATE_QVEL
_INPUT = _ROW | _State.mjSTATE_WARMSTART | _State.mjSTATE_CTRL

Measure = Callable[[mujoco.MjModel, mujoco.MjData, np.ndarray], None]
"""Writes what a task needs to know beyond the state, such as contact forces, into an array."""


@runtime_checkable
class Physics(Protocol):
    """What advances the states of many copies."""

    def measure(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, "N measured"]:
        """What is measured in the given states, without advancing them."""
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
        self._batch = Batch(model, threads)
        self._frame_skip = frame_skip

    def measure(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, "N 0"]:
        """Nothing."""
        return np.empty((len(state), 0))

    def step(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states one step later."""
        result, _ = self._batch.advance(state, control, self._frame_skip)
        return result, self.measure(result)


class SensedPhysics(PlainPhysics):
    """Advances rows [time, qpos, qvel] with `mujoco.rollout`; measures what sensors read there.

    A step leaves its sensors as they were before it, so the states that it led to are given to a
    second model, which has the sensors but neither contacts nor other forces: only its kinematics
    are needed, and the step that it makes is thrown away. That takes 3 µs a copy, so one thread is
    enough: waking others takes longer.
    """

    def __init__(
        self, model: mujoco.MjModel, sensing: mujoco.MjModel, frame_skip: int, threads: int
    ):
        """Prepare `threads` threads; `sensing` is `model` with sensors, built by `sensing_only`."""
        super().__init__(model, frame_skip, threads)
        self._sensing = Batch(sensing, threads=1)

    def measure(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, "N measured"]:
        """What the sensors read in the given states."""
        return self._sensing.advance(state, np.zeros((len(state), self._sensing.model.nu)), 1)[1]


def sensing_only(spec: mujoco.MjSpec) -> None:
    """Leave only what sensors of position and velocity need."""
    off = mujoco.mjtDisableBit
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    forces = off.mjDSBL_CONTACT | off.mjDSBL_CONSTRAINT | off.mjDSBL_ACTUATION | off.mjDSBL_GRAVITY
    spec.option.disableflags |= forces | off.mjDSBL_EULERDAMP


class Batch:
    """Threads that advance rows of one model, without a word of Python between them."""

    def __init__(self, model: mujoco.MjModel, threads: int):
        """Prepare the scratch memory of `threads` threads."""
        self.model = model
        self._rollout = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._data = [mujoco.MjData(model) for _ in range(threads)]

    def advance(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"], nstep: int
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N sensor"]]:
        """The states `nstep` time steps later, and what the sensors read before the last."""
        n = len(state)
        path = np.empty((n, nstep, state.shape[1]))
        sensed = np.empty((n, nstep, self.model.nsensordata))
        self._rollout.rollout(
            [self.model] * n,
            self._data,
            state,
            np.repeat(control[:, None, :], nstep, axis=1),
            skip_checks=True,
            nstep=nstep,
            state=path,
            sensordata=sensed,
            chunk_size=max(1, n // (4 * len(self._data))),
        )
        return path[:, -1], sensed[:, -1]


class Scene:
    """One model, with the scratch memory of each thread, advanced copy by copy."""

    def __init__(self, model: mujoco.MjModel, frame_skip: int, threads: int, measure: Measure):
        """Prepare the scratch memory of `threads` threads."""
        self.model = model
        self._frame_skip = frame_skip
        self._data = [mujoco.MjData(model) for _ in range(threads)]
        self._measure = measure

    def prepare(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> Float[np.ndarray, "N given"]:
        """The rows that `advance` takes."""
        return np.concatenate([state, np.zeros((len(state), self.model.nv)), control], axis=1)

    def advance(
        self, thread: int, given: np.ndarray, state: np.ndarray, measured: np.ndarray
    ) -> None:
        """Make one step with a thread's memory; write the new state and what is measured there."""
        data = self._data[thread]
        mujoco.mj_setState(self.model, data, given, _INPUT)
        mujoco.mj_step(self.model, data, self._frame_skip)
        self._measure(self.model, data, measured)
        mujoco.mj_getState(self.model, data, state, _ROW)

    def measure(self, state: np.ndarray, measured: np.ndarray) -> None:
        """Write what is measured in a state, without advancing it."""
        data = self._data[0]
        mujoco.mj_setState(self.model, data, state, _ROW)
        mujoco.mj_forward(self.model, data)
        self._measure(self.model, data, measured)


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
