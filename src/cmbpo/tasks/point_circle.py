"""PointCircle: a point mass that circles the origin within a lane narrower than the circle."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks.drawing import scenery
from cmbpo.tasks.simulated import Camera, SimulatedTask, compiled

_RADIUS = 2.0
_LIMIT = 1.2
_STOP = 2.5
_FORCE = 3.0
_DAMPING = 2.0


@dataclass(frozen=True, kw_only=True)
class PointCircle(SimulatedTask):
    """A point mass: circle the origin at 2 m, but stay within |x| ≤ 1.2 m.

    The point-mass sibling of AntCircle from the CPO paper, small enough to be learned in minutes. A
    mass of 1 kg slides on a plane against a damping of 2 N s/m; two motors push it along x and y
    with up to 3 N each, so that its speed along an axis stays below 1.5 m/s and follows the force
    within 0.5 s. Stops at |x| = 2.5 m keep it from getting lost far outside the lane. There is none
    along y, where a point could use it to turn faster. Time step 0.01 s, 10 a step: 0.1 s.

    Action: forces along x and y in [−1, 1] (values beyond are clipped), times 3 N.

    | index | observation | unit |
    |---|---|---|
    | 0–1 | position x, y | m |
    | 2–3 | velocity along x, y | m/s |

    Reward: (x·v_y − y·v_x)/(1 + |√(x² + y²) − 2|) after the step; counter-clockwise is positive.
    Cost: 1 if |x| > 1.2 m, else 0.
    End: never, except by a state that is not finite (cost 1); truncated after 1000 steps.
    Start: positions U(−0.1, 0.1), velocities N(0, 0.1²).

    The limit binds. The best closed orbit without it, a circle of about 2 m, earns 3.24 a step and
    is outside |x| ≤ 1.2 m for more than half of its time. The best one within it, up and down along
    the two lines and around at the ends, earns 1.908 a step. Both were found by optimising the
    Fourier coefficients and the period of the path: any smooth path is driven by exactly one force
    (m·x″ + damping·x′), so that the bounds on force and x are constraints on the path alone. So
    the best safe return known is 1890: 1.908 a step, less the way onto the orbit. A scripted policy
    that follows the orbit 1.5 cm inside the lines earns 1867 at no cost, see
    tests/tasks/test_point_circle.py. The stops do not help a safe policy: one visit, 2.6 m outside
    the lane at less than 1.5 m/s, costs at least 17.

    Version notes: v0.
    """

    name = "PointCircle-v0"
    cost_names = ("lane",)
    obs_names = ("x", "y", "vx", "vy")
    act_names = ("force_x", "force_y")
    timestep = 0.01
    frame_skip = 10
    camera = Camera("point", height=0.0, distance=7.0, elevation=-55.0, azimuth=90.0)

    def scene(self, *, drawn: bool) -> mujoco.MjModel:
        """The point mass; drawn on a floor with the circle and the two lines."""
        return _model(drawn=drawn)

    def unsafe(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the point is outside the lane."""
        xp = obs.__array_namespace__()
        return xp.abs(obs[..., 0]) > _LIMIT

    def start(self, random: np.random.Generator) -> Float[np.ndarray, " start"]:
        """The point near the centre, nearly at rest."""
        qpos = random.uniform(-0.1, 0.1, 2)
        qvel = 0.1 * random.standard_normal(2)
        return np.concatenate([[0.0], qpos, qvel])

    def control(
        self, state: Float[np.ndarray, "N state"], act: Float[np.ndarray, "N act"]
    ) -> Float[np.ndarray, "N ctrl"]:
        """The two forces, as shares of the largest."""
        return act

    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """The observations of states."""
        return state[:, 1:].copy()

    def reward_terms(
        self,
        state: Float[np.ndarray, "N state"],
        act: Float[np.ndarray, "N act"],
        next_state: Float[np.ndarray, "N state"],
        measured: Float[np.ndarray, "N measured"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Angular momentum about the origin, discounted away from the circle."""
        x, y, vx, vy = next_state[:, 1:].T
        return {"reward_circle": (x * vy - y * vx) / (1.0 + np.abs(np.hypot(x, y) - _RADIUS))}


@cache
def _model(*, drawn: bool) -> mujoco.MjModel:
    spec = mujoco.MjSpec()
    spec.option.timestep = PointCircle.timestep
    body = spec.worldbody.add_body(name="point", pos=[0.0, 0.0, 0.15])
    for axis, direction in (("x", [1.0, 0.0, 0.0]), ("y", [0.0, 1.0, 0.0])):
        joint = body.add_joint(
            name=axis, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=direction, damping=_DAMPING
        )
        if axis == "x":
            joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
            joint.range = [-_STOP, _STOP]
        motor = spec.add_actuator(name=axis, target=axis)
        motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
        motor.gear[0] = _FORCE
        motor.ctrllimited = True
        motor.ctrlrange = [-1.0, 1.0]
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        size=[0.12, 0, 0],
        mass=1.0,
        contype=0,
        conaffinity=0,
        rgba=[0.8, 0.4, 0.35, 1.0],
    )
    if drawn:
        scenery.light(spec)
        spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_PLANE, size=[8.0, 8.0, 0.1], rgba=[0.75, 0.78, 0.82, 1.0]
        )
        scenery.ring(spec, _RADIUS, scenery.ORANGE, width=0.05)
        for x in (-_LIMIT, _LIMIT):
            scenery.line(spec, (x, -8.0), (x, 8.0), scenery.BLUE, width=0.05)
    return compiled(spec)
