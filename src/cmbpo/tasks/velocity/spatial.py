"""The velocity tasks of robots that are free in space: Ant and Humanoid."""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks import ant
from cmbpo.tasks.simulated import Camera
from cmbpo.tasks.velocity.task import SpatialVelocityTask


@dataclass(frozen=True, kw_only=True)
class AntVelocity(SpatialVelocityTask):
    """Ant-v4: run along x, but in no direction faster than 2.6222 m/s, and do not fall.

    Time step 0.01 s (Runge–Kutta), 5 of them a step: 0.05 s. Contact forces are neither observed
    nor charged, which is the default of Ant-v4.

    Action: 8 torques in [−1, 1] (values beyond are clipped), times 150 N m.

    | index | observation | unit |
    |---|---|---|
    | 0 | height z of the torso | m |
    | 1–4 | orientation of the torso, quaternion w, x, y, z | – |
    | 5–12 | joint angles: hip and ankle of legs 1 to 4 | rad |
    | 13–15 | velocity of the torso along x, y, z | m/s |
    | 16–18 | angular velocity of the torso | rad/s |
    | 19–26 | joint velocities, in the order of 5–12 | rad/s |

    Reward: v_x + 1 − ½·‖a‖² with v = (p' − p)/dt, p the place x, y of the torso at the last stage
    of a Runge–Kutta step (see `SpatialVelocityTask`), and the clipped action.
    Cost: 1 if √(v_x² + v_y²) > 2.6222 m/s, else 0; learned, since x, y are not observed. Falling is
    no cost.
    End: z outside [0.2, 1] m, or a state that is not finite (cost 1); truncated after 1000 steps.
    Start: positions U(−0.1, 0.1) around the model's (z = 0.75 m), velocities N(0, 0.1²).

    Version notes: v0 is SafetyAntVelocity-v1; differences are those of `VelocityTask`.
    """

    name = "AntVelocity-v0"
    obs_names = (*ant.POSE_NAMES, *ant.RATE_NAMES)
    act_names = ant.MOTORS
    timestep = 0.01
    frame_skip = 5
    camera = Camera("torso", height=0.4, distance=5.0, elevation=-20.0, azimuth=75.0)
    file = "ant.xml"
    fastest = 2.6222
    control_weight = 0.5
    survival = 1.0
    noise = 0.1
    normal_rates = True

    @staticmethod
    def place(data: mujoco.MjData) -> Float[np.ndarray, "2"]:
        """The centre of the torso."""
        return data.xpos[1, :2]

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the torso is too low or too high."""
        return ant.out_of_height(obs[..., 0])


_JOINTS = (
    *("abdomen_z", "abdomen_y", "abdomen_x"),
    *(f"right_{joint}" for joint in ("hip_x", "hip_z", "hip_y", "knee")),
    *(f"left_{joint}" for joint in ("hip_x", "hip_z", "hip_y", "knee")),
    *(
        f"{side}_{joint}"
        for side in ("right", "left")
        for joint in ("shoulder1", "shoulder2", "elbow")
    ),
)
_MOTORS = ("abdomen_y", "abdomen_z", *_JOINTS[2:])
_POSE = ("torso_z", "torso_qw", "torso_qx", "torso_qy", "torso_qz")
_FREE = ("torso_vx", "torso_vy", "torso_vz", "torso_wx", "torso_wy", "torso_wz")
_BODIES = (
    *("world", "torso", "lwaist", "pelvis"),
    *(f"{side}_{body}" for side in ("right", "left") for body in ("thigh", "shin", "foot")),
    *(f"{side}_{body}" for side in ("right", "left") for body in ("upper_arm", "lower_arm")),
)
_INERTIA = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz", "mx", "my", "mz", "m")
_SIX = ("wx", "wy", "wz", "vx", "vy", "vz")


@dataclass(frozen=True, kw_only=True)
class HumanoidVelocity(SpatialVelocityTask):
    """Humanoid-v4: walk along x, but in no direction faster than 1.4149 m/s, and do not fall.

    Time step 0.003 s (Runge–Kutta, projected Gauss–Seidel of 50 iterations), 5 of them a step:
    0.015 s. There are 14 bodies: the ground, of which all below is zero, and 13 of the robot.

    Action: 17 torques in [−1, 1] (values beyond are clipped), times 0.4 and the gears: 100 N m for
    abdomen and hips x, z, 300 for hips y, 200 for knees, 25 for arms. (The range of Humanoid-v4
    itself is [−0.4, 0.4].)

    | index | observation | unit |
    |---|---|---|
    | 0 | height z of the torso | m |
    | 1–4 | orientation of the torso, quaternion w, x, y, z | – |
    | 5–21 | joint angles: abdomen z, y, x; hip x, z, y, knee; arms; right before left | rad |
    | 22–24 | velocity of the torso along x, y, z | m/s |
    | 25–27 | angular velocity of the torso | rad/s |
    | 28–44 | joint velocities, in the order of 5–21 | rad/s |
    | 45–184 | inertia and mass of each body, 10 numbers (cinert) | kg m², kg m, kg |
    | 185–268 | angular and linear velocity of each body (cvel) | rad/s, m/s |
    | 269–291 | generalised forces of the motors, in the order of 22–44 (qfrc_actuator) | N, N m |
    | 292–375 | external torque and force on each body (cfrc_ext) | N m, N |

    45–375 are as MuJoCo's step leaves them, like the place below, and zero for 269–375 at a start.

    Reward: 1.25·v_x + 5 − 0.1·‖0.4 a‖² with v = (p' − p)/dt, p the place x, y of the centre of mass
    at the last stage of a Runge–Kutta step (see `SpatialVelocityTask`), and the clipped action.
    Cost: 1 if √(v_x² + v_y²) > 1.4149 m/s, else 0; learned, since x, y are not observed. Falling is
    no cost.
    End: z outside (1, 2) m, or a state that is not finite (cost 1); truncated after 1000 steps.
    Start: positions and velocities U(−0.01, 0.01) around the model's (z = 1.4 m).

    Version notes: v0 is SafetyHumanoidVelocity-v1; differences are those of `VelocityTask`.
    """

    name = "HumanoidVelocity-v0"
    obs_names = (
        *(*_POSE, *_JOINTS, *_FREE, *(f"{joint}_rate" for joint in _JOINTS)),
        *(f"{body}_inertia_{part}" for body in _BODIES for part in _INERTIA),
        *(f"{body}_about_com_{part}" for body in _BODIES for part in _SIX),
        *(f"motors_on_{name}" for name in (*_FREE, *_JOINTS)),
        *(f"force_on_{body}_{part}" for body in _BODIES for part in _SIX),
    )
    act_names = _MOTORS
    timestep = 0.003
    frame_skip = 5
    camera = Camera("torso", height=1.0, distance=4.5, elevation=-12.0, azimuth=75.0)
    file = "humanoid.xml"
    fastest = 1.4149
    strongest = 0.4
    speed_weight = 1.25
    control_weight = 0.1
    survival = 5.0
    noise = 0.01
    measured = 2 + 376 - 45
    forces = True

    @staticmethod
    def place(data: mujoco.MjData) -> Float[np.ndarray, "2"]:
        """The centre of mass."""
        return data.subtree_com[1, :2]

    def read(self, model: mujoco.MjModel, data: mujoco.MjData, out: np.ndarray) -> None:
        """The place, and what is observed beside positions and velocities."""
        super().read(model, data, out)
        parts = (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
        np.concatenate([part.ravel() for part in parts], out=out[2:])

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether the torso is too low or too high."""
        return (obs[..., 0] <= 1.0) | (obs[..., 0] >= 2.0)

    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """Positions but the first two, velocities, and what was read beside them."""
        return np.concatenate([super().observe(state, measured), measured[:, 2:]], axis=1)
