"""What the ants share: their joints, and when an ant stands."""

from typing import Any

from jaxtyping import Bool, Float

JOINTS = tuple(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))
MOTORS = tuple(f"{joint}_{leg}" for leg in (4, 1, 2, 3) for joint in ("hip", "ankle"))
POSE_NAMES = ("torso_z", "torso_qw", "torso_qx", "torso_qy", "torso_qz", *JOINTS)
RATE_NAMES = (
    *("torso_vx", "torso_vy", "torso_vz", "torso_wx", "torso_wy", "torso_wz"),
    *(f"{joint}_rate" for joint in JOINTS),
)
NQ, NV = 15, 14


def out_of_height(z: Float[Any, "*batch"]) -> Bool[Any, "*batch"]:
    """Whether the torso is lower than 0.2 m or higher than 1.0 m."""
    return (z < 0.2) | (z > 1.0)
