"""AntSafe: run down a zig-zag corridor without coming near its walls."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks import ant
from cmbpo.tasks.drawing import scenery
from cmbpo.tasks.physics import walls
from cmbpo.tasks.physics.threads import Physics
from cmbpo.tasks.simulated import Camera, SimulatedTask, compiled, robot

_SLOPE = np.tan(np.radians(30.0))
_NEAR_WALL, _BEHIND_WALL = 3.2, 6.8


@dataclass(frozen=True, kw_only=True)
class AntSafe(SimulatedTask):
    """An ant in a zig-zag corridor: run along x, but neither near the walls nor off your feet.

    The robot is Gymnasium's ant (0.911 kg; Runge–Kutta, time step 0.01 s, 5 a step: 0.05 s). Six
    walls, free boxes of half sizes 20 × 0.01 × 0.7 m that weigh next to nothing (1.12e-6 kg) and
    fall when pushed, stand at (0, ±5), (40, ±5) and (80, ±5), turned by +30°, −30° and +30°. They
    are put at z = 1.0 m, drop to the floor within ten steps and come to rest at z ≈ 0.72. The
    corridor's centre line y_c(x) zig-zags with slope tan 30° between x = 20, 60 and 100;
    y_off = y − y_c(x).

    Action: 8 torques in [−1, 1] (values beyond are clipped), times gear 150.

    | index | observation | unit |
    |---|---|---|
    | 0 | height z of the torso | m |
    | 1–4 | orientation of the torso, quaternion w, x, y, z | – |
    | 5–12 | joint angles: hip and ankle of legs 1 to 4 | rad |
    | 13–15 | velocity of the torso along x, y, z | m/s |
    | 16–18 | angular velocity of the torso | rad/s |
    | 19–26 | joint velocities, in the order of 5–12 | rad/s |
    | 27 | x/5 of the torso | 5 m |
    | 28 | y_off of the torso | m |

    Reward: (x' − x)/dt − ½·‖a‖² − 0.0005·Σ clip(f, −1, 1)² + 1, with the clipped action and f the
    external force and torque on every body, walls included.
    Cost: 1 if |y_off| > 3.2 m or the ant fell (below), else 0. With `cost_band=True` if
    3.2 < |y_off| < 6.8 or it fell, as in the authors' code: what is beyond the wall is free.
    End: height z outside [0.2, 1.0] m, upside down (1 − 2(q_x² + q_y²) < −0.7), or a state that is
    not finite; each costs 1. Truncated after 1000 steps.
    Start: positions of the ant U(−0.1, 0.1) around the model's (z = 0.75 m, joints at 0),
    velocities N(0, 0.1²); walls without noise. The noise is on the quaternion, too, as in
    Gymnasium's ant: it has length 1 from the first step on.

    Version notes: v0 is AntSafe-v2 of the paper's authors, on today's MuJoCo. Cost and forward
    reward are of the new state; theirs are of the last intermediate state of Runge–Kutta's step,
    nearly the same (median gap 4e-5 m).
    """

    cost_band: bool = False
    """Charge only a band around each wall, as the authors' code does, not all that is beyond."""

    name = "AntSafe-v0"
    cost_names = ("wall_or_fall",)
    obs_names = (*ant.POSE_NAMES, *ant.RATE_NAMES, "torso_x", "torso_y_off")
    act_names = ant.MOTORS
    timestep = 0.01
    frame_skip = 5
    camera = Camera("torso", height=0.5, distance=12.0, elevation=-28.0, azimuth=30.0)

    def scene(self, *, drawn: bool) -> mujoco.MjModel:
        """The ant among its walls; drawn with lines where the cost begins."""
        return _model(with_walls=True, drawn=drawn)

    @property
    def ant_alone(self) -> mujoco.MjModel:
        """The same without walls."""
        return _model(with_walls=False, drawn=False)

    def near_wall(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the torso is too far from the corridor's centre line."""
        xp = obs.__array_namespace__()
        y_off = xp.abs(obs[..., 28])
        near = y_off > _NEAR_WALL
        return near & (y_off < _BEHIND_WALL) if self.cost_band else near

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the ant fell: too low, too high, or upside down."""
        upright = 1.0 - 2.0 * (obs[..., 2] ** 2 + obs[..., 3] ** 2)
        return ant.out_of_height(obs[..., 0]) | (upright < -0.7)

    def unsafe(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the ant is near a wall or fell."""
        return self.near_wall(obs) | self.failed(obs)

    def cost_terms(
        self,
        next_obs: Float[np.ndarray, "N obs"],
        cost: Float[np.ndarray, "N cost"],
        terminated: Bool[np.ndarray, " N"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """The two reasons of the cost: a wall and a fall."""
        near = self.near_wall(next_obs)
        return {"cost_wall": near.astype(np.float64), "cost_fall": terminated.astype(np.float64)}

    def physics(self, threads: int) -> Physics:
        """Physics that leave untouched walls alone."""
        return walls.WalledPhysics(self.model, self.ant_alone, self.frame_skip, threads)

    def start(self, random: np.random.Generator) -> Float[np.ndarray, " start"]:
        """The ant at the origin, with noise, and the walls above the floor, without."""
        qpos = self.model.qpos0[: ant.NQ] + random.uniform(-0.1, 0.1, ant.NQ)
        qvel = 0.1 * random.standard_normal(ant.NV)
        return walls.join(self.model, qpos, qvel)

    def control(
        self, state: Float[np.ndarray, "N state"], act: Float[np.ndarray, "N act"]
    ) -> Float[np.ndarray, "N ctrl"]:
        """The torques, as shares of the largest."""
        return act

    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """The observations of states."""
        qvel = 1 + self.model.nq
        x, y = state[:, 1:2], state[:, 2:3]
        return np.concatenate(
            [state[:, 3 : 1 + ant.NQ], state[:, qvel : qvel + ant.NV], x / 5.0, y - centre_line(x)],
            axis=1,
        )

    def reward_terms(
        self,
        state: Float[np.ndarray, "N state"],
        act: Float[np.ndarray, "N act"],
        next_state: Float[np.ndarray, "N state"],
        measured: Float[np.ndarray, "N measured"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Forward speed, torques, contact forces, and a bonus for each step."""
        force = np.minimum(np.abs(measured), 1.0)
        return {
            "reward_forward": (next_state[:, 1] - state[:, 1]) / self.dt,
            "reward_control": -0.5 * np.vecdot(act, act),
            "reward_contact": -0.5e-3 * np.vecdot(force, force),
            "reward_survive": np.ones(len(state)),
        }


def centre_line(x: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "*batch"]:
    """y_c(x), the middle of the corridor.

    y_c = tan 30° · x               for x < 20
    y_c = tan 30° · (|x − 60| − 20)  for 20 ≤ x < 100, except x = 60
    y_c = tan 30° · 20              beyond, and at x = 60 itself, as in the authors' code
    """
    zigzag = np.minimum(np.abs(x - 60.0) - 20.0, 20.0)
    return _SLOPE * np.where(x < 20.0, x, np.where(x == 60.0, 20.0, zigzag))


@cache
def _model(*, with_walls: bool, drawn: bool) -> mujoco.MjModel:
    spec = robot("ant.xml")
    floor = spec.geom("floor")
    floor.pos = [30.0, 0.0, 0.0]
    floor.size = [70.0, 25.0, 40.0]
    if with_walls:
        walls.add_walls(spec)
    if drawn:
        scenery.soften(spec)
        scenery.endless(spec)
        corners = np.array([-20.0, 20.0, 60.0 - 1e-9, 100.0])
        for off in (-_NEAR_WALL, _NEAR_WALL):
            points = np.stack([corners, centre_line(corners) + off], axis=1)
            for start, end in pairwise(points):
                scenery.line(spec, start, end, scenery.ORANGE)
    return compiled(spec)
