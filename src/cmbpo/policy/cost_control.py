"""Which share of a step has to lower a cost, so that the cost's long-run mean is the aim.

A controller that only says "more" or "less", as recoveries do, settles where half of its answers
are "less": it pins the median of a cost. Where most updates cost nothing and a few cost a lot, the
mean is far above. This one integrates what was really spent, and so pins the mean.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

PROPORTIONAL = 0.4
"""K_p: without cost the share is −0.28 beside the integral, at 11 times the aim 0.72."""
INTEGRAL = (0.003, 0.01)
"""Bounds of K_i, the share for each episode at twice the aim. A cheetah's first costs, of 20 to 30
per 1000 steps, take 50,000 steps to be answered with 0.003; with 0.01 for good, a cost that is rare
swings so far that its mean is above the aim."""
FIRST = 0.3
"""I₀: while a cost is new, a good part of each step lowers it; √(1 − 0.3²) of the reward stays."""
LEAST = -0.25
"""φ_min: the most that a step may raise a cost, as a share of what it could."""


class CostControl(eqx.Module):
    """I for each cost, and the episodes since that cost was first seen, 0 before."""

    integral: Float[Array, " cost"]
    since: Float[Array, " cost"]


def no_cost_seen(n_cost: int) -> CostControl:
    """The state before the first real step."""
    return CostControl(jnp.full(n_cost, FIRST), jnp.zeros(n_cost))


def steer(
    control: CostControl,
    *,
    measured: Float[Array, " cost"],
    spent: Float[Array, " cost"],
    episodes: Float[Array, ""],
    aim: Float[Array, " cost"],
) -> tuple[CostControl, Float[Array, " cost"]]:
    """The controller after n = `episodes` of fresh real steps, and φ of the next step.

        I ← clip(I + K_i n (J_real/a − 1), φ_min, 1),   K_i = clip(1/N, 0.003, 0.01)
        φ = clip(K_p log((J + a) / 2a) + I, φ_min, 1)

    J_real = `spent` is what the fresh steps cost in an episode, a = `aim`, N the episodes since a
    cost was first seen: what is new is learned fast. Since I is bounded, the mean of J_real over
    steps tends to a unless I stays at a bound, however J_real is distributed and whatever J =
    `measured` is: J may lead and be smooth, and need not be unbiased. Below the
    aim the logarithm is bounded, so that many updates without cost do not outweigh I. Nothing is
    integrated before a cost was seen.
    """
    aim = jnp.maximum(aim, 1e-6)
    seen = (control.since > 0.0) | (spent > 0.0)
    since = jnp.where(seen, control.since + episodes, 0.0)
    gain = jnp.clip(1.0 / jnp.maximum(since, 1e-6), *INTEGRAL)
    moved = control.integral + gain * episodes * (spent / aim - 1.0)
    integral = jnp.where(seen, jnp.clip(moved, LEAST, 1.0), control.integral)
    above = jnp.log((measured + aim) / (2.0 * aim))
    return CostControl(integral, since), jnp.clip(PROPORTIONAL * above + integral, LEAST, 1.0)
