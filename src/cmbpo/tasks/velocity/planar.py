"""The velocity tasks of robots in a plane: HalfCheetah, Hopper, Walker2d and Swimmer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks.simulated import Camera, Transition
from cmbpo.tasks.velocity.task import VelocityTask


def _names(pose: tuple[str, ...], joints: tuple[str, ...], rates: tuple[str, ...]):
    return (*pose, *joints, *rates, *(f"{joint}_rate" for joint in joints))


_POSE = ("torso_z", "torso_pitch")
_RATES = ("torso_vx", "torso_vz", "torso_pitch_rate")
_CHEETAH = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
_HOPPER = ("thigh_joint", "leg_joint", "foot_joint")
_WALKER = (*_HOPPER, "thigh_left_joint", "leg_left_joint", "foot_left_joint")
_SWIMMER = ("motor1_rot", "motor2_rot")


@dataclass(frozen=True, kw_only=True)
class HalfCheetahVelocity(VelocityTask):
    """HalfCheetah-v4: run along x, but no faster than 3.2096 m/s.

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

    Reward: v − 0.1·‖a‖² with v = (x' − x)/dt of the torso and the clipped action.
    Cost: 1 if v > 3.2096 m/s, else 0; learned, since x is not observed.
    End: never, except by a state that is not finite (cost 1); truncated after 1000 steps.
    Start: positions U(−0.1, 0.1) around the model's, velocities N(0, 0.1²).

    Version notes: v0 is SafetyHalfCheetahVelocity-v1; differences are those of `VelocityTask`.
    """

    name = "HalfCheetahVelocity-v0"
    obs_names = _names(_POSE, _CHEETAH, _RATES)
    act_names = _CHEETAH
    timestep = 0.01
    frame_skip = 5
    camera = Camera("torso", height=0.5, distance=4.5, elevation=-14.0, azimuth=75.0)
    file = "half_cheetah.xml"
    fastest = 3.2096
    control_weight = 0.1
    noise = 0.1
    normal_rates = True


@dataclass(frozen=True, kw_only=True)
class HopperVelocity(VelocityTask):
    """Hopper-v4: hop along x, but no faster than 0.7402 m/s, and do not fall.

    Time step 0.002 s (Runge–Kutta), 4 of them a step: 0.008 s.

    Action: 3 torques in [−1, 1] (values beyond are clipped), times 200 N m.

    | index | observation | unit |
    |---|---|---|
    | 0 | height z of the torso | m |
    | 1 | pitch of the torso | rad |
    | 2–4 | angles of thigh, leg, foot | rad |
    | 5–6 | velocity of the torso along x, z, clipped to ±10 | m/s |
    | 7 | pitch rate, clipped to ±10 | rad/s |
    | 8–10 | joint velocities, in the order of 2–4, clipped to ±10 | rad/s |

    Reward: v + 1 − 0.001·‖a‖² with v = (x' − x)/dt of the torso and the clipped action.
    Cost: 1 if v > 0.7402 m/s, else 0; learned, since x is not observed. Falling is no cost.
    End: z ≤ 0.7 m, |pitch| ≥ 0.2 rad, an angle or a velocity of 100 or more, or a state that is not
    finite (cost 1); truncated after 1000 steps. Of such velocities, which no sound step was seen to
    reach, the robot alone knows: they are observed as 10.
    Start: positions and velocities U(−0.005, 0.005) around the model's.

    Version notes: v0 is SafetyHopperVelocity-v1; differences are those of `VelocityTask`.
    """

    name = "HopperVelocity-v0"
    obs_names = _names(_POSE, _HOPPER, _RATES)
    act_names = _HOPPER
    timestep = 0.002
    frame_skip = 4
    camera = Camera("torso", height=0.8, distance=4.5, elevation=-14.0, azimuth=75.0)
    file = "hopper.xml"
    fastest = 0.7402
    largest_seen = 10.0
    control_weight = 1e-3
    survival = 1.0
    noise = 5e-3

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the hopper fell, or left the range of sound angles and velocities."""
        xp = obs.__array_namespace__()
        fell = (obs[..., 0] <= 0.7) | (xp.abs(obs[..., 1]) >= 0.2)
        return fell | xp.any(xp.abs(obs[..., 1:]) >= 100.0, axis=-1)

    def ended(self, step: Transition) -> Bool[np.ndarray, " N"]:
        """The same, and where velocities that are observed as 10 are 100 or more."""
        rates = step.next_state[:, 1 + self.model.nq :]
        return super().ended(step) | (np.abs(rates) >= 100.0).any(axis=1)


@dataclass(frozen=True, kw_only=True)
class Walker2dVelocity(VelocityTask):
    """Walker2d-v4: walk along x, but no faster than 2.3415 m/s, and do not fall.

    Time step 0.002 s (Runge–Kutta), 4 of them a step: 0.008 s.

    Action: 6 torques in [−1, 1] (values beyond are clipped), times 100 N m.

    | index | observation | unit |
    |---|---|---|
    | 0 | height z of the torso | m |
    | 1 | pitch of the torso | rad |
    | 2–7 | angles of right thigh, leg, foot, left thigh, leg, foot | rad |
    | 8–9 | velocity of the torso along x, z, clipped to ±10 | m/s |
    | 10 | pitch rate, clipped to ±10 | rad/s |
    | 11–16 | joint velocities, in the order of 2–7, clipped to ±10 | rad/s |

    Reward: v + 1 − 0.001·‖a‖² with v = (x' − x)/dt of the torso and the clipped action.
    Cost: 1 if v > 2.3415 m/s, else 0; learned, since x is not observed. Falling is no cost.
    End: z outside (0.8, 2) m, |pitch| ≥ 1 rad, or a state that is not finite (cost 1); truncated
    after 1000 steps.
    Start: positions and velocities U(−0.005, 0.005) around the model's.

    Version notes: v0 is SafetyWalker2dVelocity-v1; differences are those of `VelocityTask`.
    """

    name = "Walker2dVelocity-v0"
    obs_names = _names(_POSE, _WALKER, _RATES)
    act_names = _WALKER
    timestep = 0.002
    frame_skip = 4
    camera = Camera("torso", height=0.8, distance=4.5, elevation=-14.0, azimuth=75.0)
    file = "walker2d.xml"
    fastest = 2.3415
    largest_seen = 10.0
    control_weight = 1e-3
    survival = 1.0
    noise = 5e-3

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the walker fell or flew off."""
        xp = obs.__array_namespace__()
        return (obs[..., 0] <= 0.8) | (obs[..., 0] >= 2.0) | (xp.abs(obs[..., 1]) >= 1.0)


@dataclass(frozen=True, kw_only=True)
class SwimmerVelocity(VelocityTask):
    """Swimmer-v4: swim along x, but no faster than 0.2282 m/s.

    Time step 0.01 s (Runge–Kutta), 4 of them a step: 0.04 s.

    Action: 2 torques in [−1, 1] (values beyond are clipped), times 150 N m.

    | index | observation | unit |
    |---|---|---|
    | 0 | angle of the front link | rad |
    | 1–2 | angles of the two joints | rad |
    | 3–4 | velocity of the front link along x, y | m/s |
    | 5 | rate of 0 | rad/s |
    | 6–7 | rates of 1–2 | rad/s |

    Reward: v − 0.0001·‖a‖² with v = (x' − x)/dt of the front link and the clipped action.
    Cost: 1 if v > 0.2282 m/s, else 0; learned, since x is not observed. v_y costs nothing.
    End: never, except by a state that is not finite (cost 1); truncated after 1000 steps.
    Start: positions and velocities U(−0.1, 0.1) around the model's.

    Version notes: v0 is SafetySwimmerVelocity-v1; differences are those of `VelocityTask`.
    """

    name = "SwimmerVelocity-v0"
    obs_names = _names(("angle",), _SWIMMER, ("vx", "vy", "angle_rate"))
    act_names = _SWIMMER
    timestep = 0.01
    frame_skip = 4
    camera = Camera("torso", height=0.0, distance=5.0, elevation=-50.0, azimuth=90.0)
    file = "swimmer.xml"
    fastest = 0.2282
    unseen = 2
    control_weight = 1e-4
    noise = 0.1
