"""J_c(π): what the policy costs now, from recent real steps, and how sure we are of it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class RealCost(eqx.Module):
    """Faded sums over blocks of real steps; a block is one copy's stretch of one update.

    With yⱼ the cost and nⱼ the steps of block j, and wⱼ = λᵏ when it is k updates old:
    `cost` = Σ w y, `steps` = Σ w n, `blocks` = Σ w, and the sums of squares, faded by w², from
    which the standard error follows.
    """

    cost: Float[Array, " cost"]
    steps: Float[Array, ""]
    blocks: Float[Array, ""]
    cost_cost: Float[Array, " cost"]
    cost_steps: Float[Array, " cost"]
    steps_steps: Float[Array, ""]
    blocks_blocks: Float[Array, ""]


class CostEstimate(eqx.Module):
    """J_c and its standard error, both as cost per horizon."""

    mean: Float[Array, " cost"]
    standard_error: Float[Array, " cost"]


def nothing_seen(n_cost: int) -> RealCost:
    """The state before the first real step."""
    vector, scalar = jnp.zeros(n_cost), jnp.zeros(())
    return RealCost(vector, scalar, scalar, vector, vector, scalar, scalar)


def observe(
    seen: RealCost,
    cost: Float[Array, "T N cost"],
    valid: Bool[Array, "T N"],
    *,
    time_constant: float,
) -> RealCost:
    """Fade what was seen by λ = exp(−u/τ) and add the real steps of one update.

    u = min(1, steps/1000), so that τ = `time_constant` is in updates, or in thousands of real steps
    where an update takes fewer: what fades must be replaced by what is seen. 0 keeps only the
    newest. Unfinished episodes count like others.
    """
    n = valid.sum(axis=0).astype(cost.dtype)
    worth = jnp.minimum(n.sum() / 1000.0, 1.0)
    fade = jnp.exp(-worth / time_constant) if time_constant > 0.0 else jnp.zeros(())
    y = jnp.where(valid[:, :, None], cost, 0.0).sum(axis=0)
    present = (n > 0.0).sum().astype(cost.dtype)
    return RealCost(
        cost=fade * seen.cost + y.sum(axis=0),
        steps=fade * seen.steps + n.sum(),
        blocks=fade * seen.blocks + present,
        cost_cost=fade**2 * seen.cost_cost + (y**2).sum(axis=0),
        cost_steps=fade**2 * seen.cost_steps + (y * n[:, None]).sum(axis=0),
        steps_steps=fade**2 * seen.steps_steps + (n**2).sum(),
        blocks_blocks=fade**2 * seen.blocks_blocks + present,
    )


def estimate(seen: RealCost, *, horizon: float) -> CostEstimate:
    """J_c = horizon · Σ w y / Σ w n, with the standard error of a ratio of sums.

        se² = m/(m−1) · Σ w² (y − ρ n)² / (Σ w n)²,   ρ = Σ w y / Σ w n,   m = (Σ w)² / Σ w²

    Blocks count as independent: where an episode spans several updates it is a lower bound. With
    fewer than two blocks it is infinite.
    """
    steps = jnp.maximum(seen.steps, 1.0)
    rate = seen.cost / steps
    # Expanded, so that only sums need be kept; below zero only by rounding.
    squares = seen.cost_cost - 2.0 * rate * seen.cost_steps + rate**2 * seen.steps_steps
    m = seen.blocks**2 / jnp.maximum(seen.blocks_blocks, 1e-6)
    correction = jnp.where(m > 1.0, m / jnp.maximum(m - 1.0, 1e-6), jnp.inf)
    error = jnp.where(m > 1.0, jnp.sqrt(correction * jnp.maximum(squares, 0.0)) / steps, jnp.inf)
    return CostEstimate(mean=horizon * rate, standard_error=horizon * error)
