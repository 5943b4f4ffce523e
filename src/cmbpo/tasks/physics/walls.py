"""The walls of AntSafe, which cost no time while nothing touches them.

Six boxes that stand on the floor give 24 permanent contacts, and a step that solves for them takes
3.5 times as long as one of the ant alone. Yet an ant that touches no wall moves as if there were
none, and walls that nothing touches do one of two things: after a reset they drop onto their edges,
always in the same way, and then they rest. So a copy whose ant cannot reach a wall within a step
advances the ant alone. The whole scene is advanced where the ant might touch a wall and where walls
are moving, until a step no longer moves them.
"""

import mujoco
import numpy as np
from jaxtyping import Float, Int

from cmbpo.tasks import ant
from cmbpo.tasks.physics.threads import Crew, Scene

HALF_SIZES = np.array([20.0, 0.01, 0.7])
_YAW = np.radians([30.0, 30.0, -30.0, -30.0, 30.0, 30.0])
_CENTRES = np.array([[0, 5], [0, -5], [40, 5], [40, -5], [80, 5], [80, -5]], np.float64)
_DROP_HEIGHT = 1.0

_MOVING, _ASLEEP = -1.0, -2.0
"""The last entry of a state: steps since the walls were dropped, or one of these."""
_STILL = 1e-9
"""Walls that a step moves by less (m, rad, m/s, rad/s) are at rest."""
_REACH = 1.24
"""An outstretched leg (4√2/5 m), its radius (0.08 m), two contact margins (0.02 m), and a bit."""


def add_walls(spec: mujoco.MjSpec) -> None:
    """Put the six walls, above the floor, into a scene."""
    for (x, y), yaw in zip(_CENTRES, _YAW, strict=True):
        wall = spec.worldbody.add_body(
            pos=[x, y, _DROP_HEIGHT], quat=[np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]
        )
        wall.add_freejoint()
        wall.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=HALF_SIZES,
            density=1e-6,
            conaffinity=1,
            rgba=[0.8, 0.4, 0.35, 1.0],
        )


def join(
    scene: mujoco.MjModel, qpos: Float[np.ndarray, " nq"], qvel: Float[np.ndarray, " nv"]
) -> Float[np.ndarray, " state"]:
    """The state at the start of an episode, from the ant's positions and velocities."""
    still = np.zeros(scene.nv - ant.NV)
    return np.concatenate([[0.0], qpos, scene.qpos0[ant.NQ :], qvel, still, [0.0]])


class WalledPhysics:
    """Advances rows [time, qpos, qvel, walls]; measures the external force on each body.

    The last entry of a row counts the steps since the walls were dropped, while they are untouched.
    The forces on walls that nothing touches (below 1e-3 N) are measured as zero.
    """

    def __init__(
        self, scene: mujoco.MjModel, ant_alone: mujoco.MjModel, frame_skip: int, threads: int
    ):
        """Prepare `threads` threads, and record how the walls drop."""
        self._scene = Scene(scene, frame_skip, threads, _measure_forces)
        self._ant = Scene(ant_alone, frame_skip, threads, _measure_forces)
        self._crew = Crew(threads)
        self._measured = 6 * scene.nbody
        self._ant_measured = 6 * ant_alone.nbody
        self._ant_qpos = 1 + ant.NQ
        self._ant_qvel = slice(1 + scene.nq, 1 + scene.nq + ant.NV)
        row = np.arange(1 + scene.nq + scene.nv)
        self._wall_row = np.concatenate(
            [row[self._ant_qpos : self._ant_qvel.start], row[self._ant_qvel.stop :]]
        )
        self._drop = self._record_drop()

    def begin(
        self, start: Float[np.ndarray, "N start"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states as they are, and zeros: at the start of an episode no force is needed."""
        return start, np.zeros((len(start), self._measured))

    def step(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The states one step later, and the forces there."""
        result = state.copy()
        measured = np.zeros((len(state), self._measured))
        velocity = state[:, self._ant_qvel][:, :3]
        # twice the way that the torso makes in a step at its present speed, and a bit
        way = 0.1 + 0.1 * np.sqrt(np.vecdot(velocity, velocity))
        whole = (state[:, -1] == _MOVING) | (self._clearance(state) < _REACH + way)
        self._advance(
            state, control, np.flatnonzero(whole), np.flatnonzero(~whole), result, measured
        )
        shift = result[:, 1:4] - state[:, 1:4]
        # Who went further than assumed might have met a wall: these steps are made again in full.
        further = np.flatnonzero(~whole & ~(np.sqrt(np.vecdot(shift, shift)) < way))
        if len(further):
            result[further] = state[further]
            self._advance(state, control, further, further[:0], result, measured)
        return result, measured

    def step_whole(
        self, state: Float[np.ndarray, "N state"], control: Float[np.ndarray, "N ctrl"]
    ) -> tuple[Float[np.ndarray, "N state"], Float[np.ndarray, "N measured"]]:
        """The same as `step`, but with the whole scene of every copy advanced."""
        result = state.copy()
        measured = np.zeros((len(state), self._measured))
        rows = np.arange(len(state))
        self._advance(state, control, rows, rows[:0], result, measured)
        return result, measured

    def _advance(
        self,
        state: np.ndarray,
        control: np.ndarray,
        whole: Int[np.ndarray, " W"],
        alone: Int[np.ndarray, " A"],
        result: np.ndarray,
        measured: np.ndarray,
    ) -> None:
        """Write the next states of some rows from the whole scene, of others from the ant alone."""
        scenes = self._scene.prepare(state[whole, :-1], control[whole])
        given = np.concatenate(
            [state[alone, : self._ant_qpos], state[alone, self._ant_qvel]], axis=1
        )
        ants = self._ant.prepare(given, control[alone])
        n, few = len(whole), self._ant_measured

        def work(thread: int, job: int) -> None:
            if job < n:
                i = whole[job]
                self._scene.advance(thread, scenes[job], result[i, :-1], measured[i])
            else:
                i = alone[job - n]
                row = given[job - n]
                self._ant.advance(thread, ants[job - n], row, measured[i, :few])

        self._crew.share(n + len(alone), work)
        result[alone, : self._ant_qpos] = given[:, : self._ant_qpos]
        result[alone, self._ant_qvel] = given[:, self._ant_qpos :]
        self._drop_walls(result, alone)
        self._settle_walls(state, result, whole)

    def _drop_walls(self, result: np.ndarray, rows: np.ndarray) -> None:
        age = result[rows, -1]
        dropping = rows[(age >= 0.0) & (age < len(self._drop) - 1)]
        if len(dropping):
            step = result[dropping, -1].astype(int) + 1
            result[dropping[:, None], self._wall_row] = self._drop[step]
            result[dropping, -1] = step

    def _settle_walls(self, state: np.ndarray, result: np.ndarray, rows: np.ndarray) -> None:
        for i in rows:
            before, after = state[i, self._wall_row], result[i, self._wall_row]
            if np.abs(after - before).max() > _STILL:
                result[i, -1] = _MOVING
            else:
                # Put back exactly: rounding would let resting walls creep.
                result[i, self._wall_row] = before
                result[i, -1] = _ASLEEP if state[i, -1] == _MOVING else state[i, -1]

    def _clearance(self, state: Float[np.ndarray, "N state"]) -> Float[np.ndarray, " N"]:
        """Distance from the centre of the torso to the nearest wall."""
        torso = state[:, 1:4]
        distance = _distance_upright(torso)
        elsewhere = np.flatnonzero(state[:, -1] < 0.0)
        if len(elsewhere):
            poses = state[elsewhere, self._ant_qpos : self._ant_qvel.start]
            distance[elsewhere] = _distance(torso[elsewhere], poses.reshape(-1, 6, 7))
        return distance

    def _record_drop(self) -> Float[np.ndarray, "steps walls"]:
        """The walls at each step after a reset, until they rest."""
        model = self._scene.model
        row = join(model, model.qpos0[: ant.NQ], np.zeros(ant.NV))[:-1]
        drop = [row[self._wall_row]]
        forces = np.zeros(self._measured)
        while len(drop) == 1 or np.abs(drop[-1] - drop[-2]).max() > _STILL:
            given = self._scene.prepare(row[None], np.zeros((1, model.nu)))[0]
            self._scene.advance(0, given, row, forces)
            drop.append(row[self._wall_row].copy())
        return np.array(drop)


_COS, _SIN = np.cos(_YAW), np.sin(_YAW)


def _distance_upright(point: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, " N"]:
    """Distance, seen from above, to walls that stand where they were put."""
    x = point[:, 0, None] - _CENTRES[:, 0]
    y = point[:, 1, None] - _CENTRES[:, 1]
    along = np.abs(x * _COS + y * _SIN) - HALF_SIZES[0]
    across = np.abs(y * _COS - x * _SIN) - HALF_SIZES[1]
    return np.hypot(np.maximum(along, 0.0), np.maximum(across, 0.0)).min(axis=1)


def _distance(
    point: Float[np.ndarray, "N 3"], poses: Float[np.ndarray, "N 6 7"]
) -> Float[np.ndarray, " N"]:
    """Distance to walls anywhere, each given by position and quaternion."""
    v = point[:, None, :] - poses[..., :3]
    w, u = poses[..., 3:4], poses[..., 4:]
    turned = v - 2.0 * w * np.cross(u, v) + 2.0 * np.cross(u, np.cross(u, v))
    outside = np.maximum(np.abs(turned) - HALF_SIZES, 0.0)
    return np.linalg.norm(outside, axis=-1).min(axis=1)


def _measure_forces(model: mujoco.MjModel, data: mujoco.MjData, out: np.ndarray) -> None:
    mujoco.mj_rnePostConstraint(model, data)
    out[:] = data.cfrc_ext.ravel()
