"""Short episodes first: how many steps a new policy may act before its copy is reset.

A policy that cannot walk yet cannot leave a place that costs either: it stays there until its
episode is over. And all copies get there before the first has taught V_c what it costs.
"""

import numpy as np
from jaxtyping import Float

RETREAT = 0.9
"""Factor for an update after which the cost is beyond `ALARM` times the limit."""
ALARM = 5.0


def next_length(
    length: float,
    *,
    first: int,
    horizon: int,
    cost: Float[np.ndarray, " cost"],
    target: Float[np.ndarray, " cost"],
    limit: Float[np.ndarray, " cost"],
    growth: float,
    steps: float,
) -> float:
    """Steps of the episodes that begin next, after episodes of `length` and J_c = `cost`.

    They grow by the factor `growth` for each update within the target. One of fewer than 1000 real
    `steps` counts as that part of an update.

    Never below `first`. Once episodes are whole they stay so: what a policy then costs is what the
    task counts.
    """
    if length >= horizon:
        return float(horizon)
    worth = min(steps / 1000.0, 1.0)
    if np.all(cost <= target):
        return min(growth**worth * length, float(horizon))
    if np.any(cost > ALARM * limit):
        return max(RETREAT**worth * length, float(first))
    return length
