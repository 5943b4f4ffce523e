"""Which share of a step has to lower a cost, so that the cost's long-run mean is the aim.

A controller that only says "more" or "less", as recoveries do, settles where half of its answers
are "less": it pins the median of a cost. Where most updates cost nothing and a few cost a lot, the
mean is far above. This one integrates what was really spent, and so pins the mean.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

PROPORTIONAL = 0.5
"""K_p: without cost the share is −0.35 beside the integral, at 11 times the aim 0.9."""
INTEGRAL = 0.01
"""K_i: share for each episode at twice the aim. With 0.003 a cheetah's first costs of 20 to 30 per
1000 steps took some 50,000 steps to be answered."""
MOST = 0.8
"""Largest I: a long disaster is paid off in a hundred episodes without cost."""
FIRST = 0.3
"""I₀: while a cost is new, a good part of each step lowers it; √(1 − 0.3²) of the reward stays."""
LEAST = -0.25
"""φ_min: the most that a step may raise a cost, as a share of what it could."""


class CostControl(eqx.Module):
    """I for each cost, and whether that cost was ever seen."""

    integral: Float[Array, " cost"]
    seen: Bool[Array, " cost"]


def no_cost_seen(n_cost: int) -> CostControl:
    """The state before the first real step."""
    return CostControl(jnp.full(n_cost, FIRST), jnp.zeros(n_cost, bool))


def steer(
    control: CostControl,
    *,
    measured: Float[Array, " cost"],
    spent: Float[Array, " cost"],
    episodes: Float[Array, ""],
    aim: Float[Array, " cost"],
) -> tuple[CostControl, Float[Array, " cost"]]:
    """The controller after n = `episodes` of fresh real steps, and φ of the next step.

        I ← clip(I + K_i n (J_real/a − 1), φ_min, I_max)
        φ = clip(K_p log((J + a) / 2a) + I, φ_min, 1)

    J_real = `spent` is what the fresh steps cost in an episode, a = `aim`. Since I is bounded, the
    mean of J_real over steps tends to a unless I stays at a bound, however J_real is distributed
    and whatever J = `measured` is: J may lead and be smooth, and need not be unbiased. Below the
    aim the logarithm is bounded, so that many updates without cost do not outweigh I. Nothing is
    integrated before a cost was seen.
    """
    aim = jnp.maximum(aim, 1e-6)
    seen = control.seen | (spent > 0.0)
    moved = control.integral + INTEGRAL * episodes * (spent / aim - 1.0)
    integral = jnp.where(seen, jnp.clip(moved, LEAST, MOST), control.integral)
    above = jnp.log((measured + aim) / (2.0 * aim))
    return CostControl(integral, seen), jnp.clip(PROPORTIONAL * above + integral, LEAST, 1.0)
