"""α(π): how many real samples the next update gets."""

from typing import Literal


def real_share(
    disagreement: float,
    reference: float,
    *,
    rule: Literal["paper", "proportional", "constant"],
    first_alpha: float,
) -> float:
    """α(π), from the mean disagreement D̄ now and D̄₀ on the first data.

        paper:         α = 1 − (1 − α₀)·D̄₀/D̄, the smallest with (1 − α)·D̄ ≤ d_m (eq. 12)
        proportional:  α = α₀·D̄/D̄₀ (the authors' code)
        constant:      α = α₀ (ablation)

    How many real steps that comes to is bounded by `real_samples`.
    """
    if rule == "constant":
        return first_alpha
    if rule == "proportional":
        return min(first_alpha * disagreement / reference, 1.0)
    # d_m: at D̄ = D̄₀ it leaves exactly α₀.
    allowed = (1.0 - first_alpha) * reference
    return 0.0 if disagreement <= allowed else 1.0 - allowed / disagreement


def real_samples(
    alpha: float, *, batch_size: int, min_real: int, max_real: int, granularity: int
) -> int:
    """Real samples of an update: α of the batch, within bounds, in whole rounds of collection.

    Rounded up, as the constraint on α is a lower bound.
    """
    wanted = min(max(alpha * batch_size, min_real), max_real, batch_size)
    return -int(-wanted // granularity) * granularity
