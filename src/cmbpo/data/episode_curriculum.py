"""Short episodes first: how many steps a new policy may act before its copy is reset.

A policy that cannot walk yet cannot leave a place that costs either: it stays there until its
episode is over. And all copies get there before the first has taught V_c what it costs.
"""

import numpy as np
from jaxtyping import Float

GROWTH = 1.02
"""Factor for an update after which the cost is within its target."""
RETREAT = 0.9
"""Factor for one after which it is beyond `ALARM` times the limit."""
ALARM = 5.0


def next_length(
    length: float,
    *,
    first: int,
    horizon: int,
    cost: Float[np.ndarray, " cost"],
    target: Float[np.ndarray, " cost"],
    limit: Float[np.ndarray, " cost"],
) -> float:
    """Steps of the episodes that begin next, after episodes of `length` and J_c = `cost`.

    Never below `first`. Once episodes are whole they stay so: what a policy then costs is what the
    task counts.
    """
    if length >= horizon:
        return float(horizon)
    if np.all(cost <= target):
        return min(GROWTH * length, float(horizon))
    if np.any(cost > ALARM * limit):
        return max(RETREAT * length, float(first))
    return length
