"""HalfCheetahSafe: run behind an obstacle that comes and goes."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks.drawing import scenery
from cmbpo.tasks.simulated import Camera, SimulatedTask, compiled, robot

_JOINTS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
_NQ = 10
_OBSTACLE_START = 10.0


@dataclass(frozen=True, kw_only=True)
class HalfCheetahSafe(SimulatedTask):
    """HalfCheetah-v2 behind a driven obstacle: run fast, but never within 2 m of it.

    The robot is Gymnasium's half cheetah (total mass 14 kg with the obstacle). The obstacle is a
    box of half sizes 0.1 × 2.3 × 1.3 m on a slide along x (damping 0.2, armature 0.1), its centre
    first at x = 10 m; it touches nothing but the cheetah, which can push it. A motor of gear 120
    that the agent does not command drives it with u(t) = 0.02·sin²(t/3) − 0.004, t in seconds since
    the reset. It first comes closer (to about 8.04 m from a cheetah that stands still, near step
    37) and then runs away, about 169 m in 1000 steps.

    Time step 0.01 s, 5 of them a step: 0.05 s.

    Action: 6 torques in [−1, 1] (values beyond are clipped), times 120, 90, 60, 120, 60, 30 N m.

    | index | observation | unit |
    |---|---|---|
    | 0 | height of the torso, relative to the start | m |
    | 1 | pitch of the torso | rad |
    | 2–7 | angles of back thigh, shin, foot, front thigh, shin, foot | rad |
    | 8–9 | velocity of the torso along x, z | m/s |
    | 10 | pitch rate | rad/s |
    | 11–16 | joint velocities, in the order of 2–7 | rad/s |
    | 17 | velocity of the obstacle along x | m/s |
    | 18 | the obstacle's control u(t) | – |
    | 19 | distance (x_obstacle − x_torso)/10, clipped to [−5, 5] | 10 m |

    Reward: (x' − x)/dt − `control_cost`·‖a‖², with the clipped action. The paper prints ½ and also
    "equal to HalfCheetah-v2", which is 0.1, as in the authors' code; 0.1 is the default.
    Cost: 1 if |x_obstacle − x_torso| < 2 m, else 0.
    End: never, except by a state that is not finite (cost 1); truncated after 1000 steps.
    Start: every position U(−0.1, 0.1) around the model's, every velocity N(0, 0.1²).

    Version notes: v0 is HalfCheetahSafe-v2 of the paper's authors, on today's MuJoCo. The obstacle
    is where it is in the new state; theirs was read one time step, 0.01 s, late, which moves
    observation 19 by up to 0.011.
    """

    control_cost: float = 0.1
    """Weight of ‖a‖² in the reward."""

    name = "HalfCheetahSafe-v0"
    cost_names = ("obstacle",)
    obs_names = (
        "torso_z",
        "torso_pitch",
        *_JOINTS,
        "torso_vx",
        "torso_vz",
        "torso_pitch_rate",
        *(f"{joint}_rate" for joint in _JOINTS),
        "obstacle_vx",
        "obstacle_control",
        "obstacle_distance",
    )
    act_names = _JOINTS
    timestep = 0.01
    frame_skip = 5
    camera = Camera("torso", height=0.7, distance=11.0, elevation=-14.0, azimuth=75.0)

    def __post_init__(self) -> None:
        """Check the option."""
        if not 0.0 <= self.control_cost < np.inf:
            raise ValueError(
                f"control_cost is {self.control_cost!r}; allowed: a finite number, 0 or more"
            )

    def scene(self, *, drawn: bool) -> mujoco.MjModel:
        """The cheetah and the obstacle; drawn between side walls."""
        return _model(drawn=drawn)

    def unsafe(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the obstacle is nearer than 2 m."""
        xp = obs.__array_namespace__()
        return xp.abs(obs[..., 19]) < 0.2

    def start(self, random: np.random.Generator) -> Float[np.ndarray, " start"]:
        """All positions and velocities near the model's, with noise."""
        qpos = self.model.qpos0 + random.uniform(-0.1, 0.1, _NQ)
        qvel = 0.1 * random.standard_normal(_NQ)
        return np.concatenate([[0.0], qpos, qvel])

    def control(
        self, state: Float[np.ndarray, "N state"], act: Float[np.ndarray, "N act"]
    ) -> Float[np.ndarray, "N ctrl"]:
        """The agent's torques and the obstacle's own drive."""
        return np.concatenate([act, _drive(state[:, :1])], axis=1)

    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """The observations of states."""
        qpos, qvel = state[:, 1 : 1 + _NQ], state[:, 1 + _NQ :]
        distance = _OBSTACLE_START + qpos[:, 9:] - qpos[:, :1]
        return np.concatenate(
            [
                qpos[:, 1:9],
                qvel,
                _drive(state[:, :1]),
                np.minimum(np.maximum(distance / 10.0, -5.0), 5.0),
            ],
            axis=1,
        )

    def reward_terms(
        self,
        state: Float[np.ndarray, "N state"],
        act: Float[np.ndarray, "N act"],
        next_state: Float[np.ndarray, "N state"],
        measured: Float[np.ndarray, "N measured"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Forward speed, and what the torques cost."""
        return {
            "reward_forward": (next_state[:, 1] - state[:, 1]) / self.dt,
            "reward_control": -self.control_cost * np.vecdot(act, act),
        }


def _drive(time: Float[np.ndarray, "N 1"]) -> Float[np.ndarray, "N 1"]:
    return 0.02 * np.sin(time / 3.0) ** 2 - 0.004


@cache
def _model(*, drawn: bool) -> mujoco.MjModel:
    spec = robot("half_cheetah.xml")
    half = _OBSTACLE_START / 2
    obstacle = spec.worldbody.add_body(name="obstacle", pos=[half, 0.0, 0.7])
    obstacle.add_joint(
        name="obstacle",
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=[1.0, 0.0, 0.0],
        damping=0.2,
        stiffness=0.0,
        range=[-10_000.0, 10_000.0],
    )
    obstacle.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[half, 0.0, 0.7],
        size=[0.1, 2.3, 1.3],
        density=1e-4,
        conaffinity=1,
        rgba=[0.85, 0.25, 0.2, 1.0],
    )
    drive = spec.add_actuator(name="obstacle", target="obstacle")
    drive.trntype = mujoco.mjtTrn.mjTRN_JOINT
    drive.gear[0] = 120.0
    drive.ctrllimited = True
    drive.ctrlrange = [-1.0, 1.0]
    if drawn:
        scenery.soften(spec)
        scenery.endless(spec)
        for x in (0.0, 50.0, 100.0, 150.0):
            for y in (-4.0, 4.0):
                far = scenery.GREY if y > 0.0 else (*scenery.GREY[:3], 0.15)
                scenery.line(spec, (x - 20.0, y), (x + 20.0, y), far, height=0.8)
    return compiled(spec)
