"""AntCircle: run around a circle that is wider than the allowed lane."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks import ant
from cmbpo.tasks.drawing import scenery
from cmbpo.tasks.physics.threads import CentredPhysics, Physics
from cmbpo.tasks.simulated import Camera, SimulatedTask, compiled, robot

_START = np.array([0.0, 0.0, 0.55, 1.0, 0, 0, 0, 0, 1.0, 0, -1.0, 0, -1.0, 0, 1.0])
_RADIUS = 10.0
_LIMIT = 3.0


@dataclass(frozen=True, kw_only=True)
class AntCircle(SimulatedTask):
    """The ant of the CPO paper: circle the origin at 10 m, but stay within |x| < 3 m.

    The robot is Gymnasium's ant with the settings of the older one that CPO used: time step 0.02 s
    (one a step, Runge–Kutta), motors of gear 1 with torques up to ±150 N m, contacts with
    solref (0.02, 1) and solimp (0.8, 0.8, 0.01). It starts at the centre of the circle. The two
    lines at x = ±3 are only drawn.

    Action: 8 torques in [−1, 1] (values beyond are clipped), times 150 N m.

    | index | observation | unit |
    |---|---|---|
    | 0–2 | position x, y, z of the torso | m |
    | 3–6 | orientation of the torso, quaternion w, x, y, z | – |
    | 7–14 | joint angles: hip and ankle of legs 1 to 4 | rad |
    | 15–17 | velocity of the torso along x, y, z | m/s |
    | 18–20 | angular velocity of the torso | rad/s |
    | 21–28 | joint velocities, in the order of 7–14 | rad/s |
    | 29–31 | centre of mass x, y, z of the ant | m |

    Reward: (x·v_y − y·v_x)/(1 + |√(x² + y²) − 10|), with position and velocity of the centre of
    mass after the step; counter-clockwise is positive. There is no other term.
    Cost: 1 if |x| ≥ 3 m for the centre of mass, else 0. Falling over is not a cost.
    End: torso height z outside [0.2, 1.0] m, or a state that is not finite (cost 1); truncated
    after 1000 steps (20 s).
    Start: z = 0.55 m, ankles bent by 1 rad, plus N(0, 0.01²) on positions and N(0, 0.1²) on
    velocities.

    Version notes: v0 is the CPO paper's Ant-Circle as the CMBPO authors ran it, on today's MuJoCo.
    """

    name = "AntCircle-v0"
    cost_names = ("lane",)
    obs_names = (
        "torso_x",
        "torso_y",
        *ant.POSE_NAMES,
        *ant.RATE_NAMES,
        "com_x",
        "com_y",
        "com_z",
    )
    act_names = ant.MOTORS
    timestep = 0.02
    frame_skip = 1
    camera = Camera("torso", height=0.5, distance=12.0, elevation=-35.0, azimuth=90.0)

    def scene(self, *, drawn: bool) -> mujoco.MjModel:
        """The ant on its floor; drawn with the circle and the two lines."""
        return _model(drawn=drawn)

    def unsafe(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the centre of mass is outside the lane."""
        xp = obs.__array_namespace__()
        return xp.abs(obs[..., 29]) >= _LIMIT

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the torso is too low or too high."""
        return ant.out_of_height(obs[..., 2])

    def physics(self, threads: int) -> Physics:
        """Physics that measure the centre of mass and its velocity."""
        return CentredPhysics(self.model, _spec, self.frame_skip, threads)

    def start(self, random: np.random.Generator) -> Float[np.ndarray, " start"]:
        """The ant at the centre, with noise."""
        qpos = _START + 0.01 * random.standard_normal(ant.NQ)
        qvel = 0.1 * random.standard_normal(ant.NV)
        return np.concatenate([[0.0], qpos, qvel])

    def control(
        self, state: Float[np.ndarray, "N state"], act: Float[np.ndarray, "N act"]
    ) -> Float[np.ndarray, "N ctrl"]:
        """Torques in N m."""
        return 150.0 * act

    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """The observations of states."""
        return np.concatenate([state[:, 1:], measured[:, :3]], axis=1)

    def reward_terms(
        self,
        state: Float[np.ndarray, "N state"],
        act: Float[np.ndarray, "N act"],
        next_state: Float[np.ndarray, "N state"],
        measured: Float[np.ndarray, "N measured"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Angular momentum about the origin, discounted away from the circle."""
        x, y, vx, vy = measured[:, 0], measured[:, 1], measured[:, 3], measured[:, 4]
        return {"reward_circle": (x * vy - y * vx) / (1.0 + np.abs(np.hypot(x, y) - _RADIUS))}


@cache
def _model(*, drawn: bool) -> mujoco.MjModel:
    spec = _spec()
    if drawn:
        scenery.soften(spec)
        scenery.ring(spec, _RADIUS, scenery.ORANGE)
        for x in (-_LIMIT, _LIMIT):
            scenery.line(spec, (x, -40.0), (x, 40.0), scenery.BLUE)
    return compiled(spec)


def _spec() -> mujoco.MjSpec:
    spec = robot("ant.xml")
    spec.option.timestep = AntCircle.timestep
    for geom in spec.geoms:
        geom.solref[:] = [0.02, 1.0]
        geom.solimp[:3] = [0.8, 0.8, 0.01]
    for motor in spec.actuators:
        motor.gear[0] = 1.0
        motor.ctrlrange = [-150.0, 150.0]
    return spec
