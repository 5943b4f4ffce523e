"""Copies of a MuJoCo model advanced one by one, as Gymnasium's environments are."""

import mujoco
import numpy as np
from jaxtyping import Float

from cmbpo.tasks.physics.threads import WARM_ROW, Crew, Measure, Scene


class SteppedPhysics:
    """Advances rows [time, qpos, qvel, warm start, x, y] as Gymnasium's environments do.

    The solver starts from where it ended, and MuJoCo's numbers are read as a step leaves them: a
    Runge–Kutta step ends with the kinematics of its last stage, not of the state that it led to.
    The first two of these numbers are a place, which the row keeps until the next step. What
    happens to a row still depends on it and its controls alone.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        frame_skip: int,
        threads: int,
        *,
        read: Measure,
        measured: int,
        forces: bool,
    ):
        """`read` writes `measured` numbers; with `forces`, those of contacts are computed first."""
        self._model = model
        self._measured = measured
        self._read = read
        self._scene = Scene(
            model, frame_skip, threads, _with_forces(read) if forces else read, warm=True
        )
        self._crew = Crew(threads)
        self._resting = mujoco.MjData(model)

    def begin(
        self, start: Float[np.ndarray, "N start"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """Rows of a cold solver and of where the robots are; no control or force acts yet."""
        cold = np.concatenate([start, np.zeros((len(start), self._model.nv))], axis=1)
        measured = np.zeros((len(start), self._measured))
        for row, out in zip(cold, measured, strict=True):
            mujoco.mj_setState(self._model, self._resting, row, WARM_ROW)
            mujoco.mj_forward(self._model, self._resting)
            self._read(self._model, self._resting, out)
        return np.concatenate([cold, measured[:, :2]], axis=1), measured

    def step(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states one step later, and what is read there."""
        result = np.empty_like(state)
        measured = np.empty((len(state), self._measured))
        given = self._scene.prepare(state[:, :-2], control)

        def work(thread: int, row: int) -> None:
            self._scene.advance(thread, given[row], result[row, :-2], measured[row])

        self._crew.share(len(state), work)
        result[:, -2:] = measured[:, :2]
        return result, measured


def _with_forces(read: Measure) -> Measure:
    def measure(model: mujoco.MjModel, data: mujoco.MjData, out: np.ndarray) -> None:
        mujoco.mj_rnePostConstraint(model, data)
        read(model, data, out)

    return measure
