"""What the paper reports: Table I."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """A row of Table I."""

    level: float
    """Mean return that a policy has to reach within the limit."""
    cost: dict[str, int]
    """Cumulative cost until then by algorithm, in thousands."""


LIMIT = 10.0
"""Cost per 1000 steps that satisfies the constraint in Table I."""

TABLE_I = {
    "AntSafe": Level(2500.0, {"cmbpo": 18, "cpo": 527, "ppo-lag": 422, "trpo-lag": 385}),
    "HalfCheetahSafe": Level(3000.0, {"cmbpo": 58, "cpo": 100, "ppo-lag": 515, "trpo-lag": 223}),
    "AntCircle": Level(2000.0, {"cmbpo": 107, "cpo": 2395, "ppo-lag": 1548, "trpo-lag": 1576}),
}
