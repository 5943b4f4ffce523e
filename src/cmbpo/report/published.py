"""What others report on the velocity tasks of Safety-Gymnasium, whose limit is 25 an episode."""

from typing import NamedTuple


class Published(NamedTuple):
    """Return and cost of an episode of a final policy, as printed."""

    method: str
    steps: int
    mean_return: float
    cost: float


MILLION = 1_000_000

PUBLISHED = {
    "HalfCheetahVelocity": (
        Published("OmniSafe CPO", 10 * MILLION, 2786, 4.7),
        Published("OmniSafe TRPOLag", 10 * MILLION, 2885, 9.0),
        Published("OmniSafe PPOLag", 10 * MILLION, 2946, 3.4),
        Published("OmniSafe PPOLag", MILLION, 2214, 23),
        Published("OmniSafe SACLag", MILLION, 2834, 0.0),
        Published("OmniSafe TD3Lag", MILLION, 2741, 10),
        Published("arXiv 2610.09508 SACLag", MILLION, 3255, 308),
        Published("arXiv 2610.09508 OQ-SAC", 500_000, 2868, 0),
    ),
    "AntVelocity": (
        Published("OmniSafe CPO", 10 * MILLION, 3099, 14.1),
        Published("OmniSafe TRPOLag", 10 * MILLION, 3042, 19.5),
        Published("OmniSafe PPOLag", 10 * MILLION, 3262, 12.1),
        Published("OmniSafe PPOLag", MILLION, 2643, 24),
        Published("OmniSafe CPO", MILLION, 1904, 36),
        Published("OmniSafe TRPOLag", MILLION, 2407, 3),
        Published("OmniSafe SACLag", MILLION, 1897, 5.7),
        Published("OmniSafe TD3Lag", MILLION, 1944, 63),
        Published("arXiv 2610.09508 SACLag", MILLION, 2909, 2.9),
        Published("arXiv 2610.09508 OQ-SAC", MILLION, 2656, 0.9),
    ),
    "HopperVelocity": (
        Published("OmniSafe CPO", 10 * MILLION, 1714, 13.4),
        Published("OmniSafe TRPOLag", 10 * MILLION, 1392, 11.2),
        Published("OmniSafe PPOLag", 10 * MILLION, 962, 14.0),
        Published("OmniSafe PPOLag", MILLION, 1630, 28),
        Published("OmniSafe SACLag", MILLION, 963, 20),
        Published("OmniSafe TD3Lag", MILLION, 929, 41),
        Published("arXiv 2610.09508 SACLag", MILLION, 1164, 70),
        Published("arXiv 2610.09508 OQ-SAC", MILLION, 877, 0.1),
    ),
    "Walker2dVelocity": (
        Published("OmniSafe CPO", 10 * MILLION, 2075, 21.9),
        Published("OmniSafe TRPOLag", 10 * MILLION, 3207, 15.0),
        Published("OmniSafe PPOLag", 10 * MILLION, 2982, 13.5),
        Published("OmniSafe PPOLag", MILLION, 2257, 25),
        Published("OmniSafe SACLag", MILLION, 2676, 31),
        Published("OmniSafe TD3Lag", MILLION, 2996, 22),
        Published("arXiv 2610.09508 SACLag", MILLION, 1273, 1.6),
        Published("arXiv 2610.09508 OQ-SAC", MILLION, 1617, 2.4),
    ),
    "SwimmerVelocity": (
        Published("OmniSafe CPO", 10 * MILLION, 65, 18.2),
        Published("OmniSafe TRPOLag", 10 * MILLION, 81, 22.2),
        Published("OmniSafe PPOLag", 10 * MILLION, 65, 28.0),
    ),
    "HumanoidVelocity": (
        Published("OmniSafe CPO", 10 * MILLION, 6465, 0.2),
        Published("OmniSafe TRPOLag", 10 * MILLION, 6551, 59.6),
        Published("OmniSafe PPOLag", 10 * MILLION, 6624, 5.9),
    ),
}
"""By task."""
