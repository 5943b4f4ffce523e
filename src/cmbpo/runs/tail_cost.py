"""What the costliest episodes cost: a mean within its limit may hide a few that are far beyond."""

import numpy as np
from jaxtyping import Float

TAIL = 0.1
"""Share of the episodes that are the costliest."""
NAME = "CVaR₀.₁"
"""What papers call their mean."""


def tail_mean(costs: Float[np.ndarray, " n"], *, share: float = TAIL) -> float:
    """Mean of the costliest `share` of the episodes: CVaR (Rockafellar and Uryasev 2000).

        CVaR = (Σ_{i ≤ ⌊k⌋} c₍ᵢ₎ + (k − ⌊k⌋)·c₍⌊k⌋₊₁₎) / k   with k = share·n and c₍₁₎ ≥ c₍₂₎ ≥ …

    The last of them counts by the part of it that is in the tail; of fewer than 1/share episodes
    it is the costliest. Not a number where there are none.
    """
    if len(costs) == 0:
        return float("nan")
    tail = share * len(costs)
    # of ten episodes, 0.1 is one and not one and a little
    weights = np.clip(np.round(tail, 9) - np.arange(len(costs)), 0.0, 1.0)
    return float(weights @ np.sort(costs)[::-1] / weights.sum())
