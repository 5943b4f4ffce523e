"""The directions of trust-region steps: TRPO's, CPO's dual, the barrier's, and recovery.

All have the form x = α F⁻¹g + Σᵢ βᵢ F⁻¹bᵢ, with g the gradient of the reward's surrogate, bᵢ those
of the costs', F the damped Fisher matrix. What differs is how α and β are found, and they are found
from inner products alone: q = gᵀF⁻¹g, rᵢ = gᵀF⁻¹bᵢ, Sᵢⱼ = bᵢᵀF⁻¹bⱼ.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cmbpo.policy.linear_solve import solve

CASES = ("recovery", "constrained", "constrained", "unconstrained", "unconstrained")
"""How a step was found, by its number, which is OmniSafe's: 0 no point of the trust region is safe;
1 the policy is not safe but the region holds safe points; 2 it is safe and a limit cuts the region;
3 the whole region is safe; 4 no constraint, or one that no step changes."""

TINY = 1e-10
"""What stands for zero below a fraction's line."""


class Products(eqx.Module):
    """Inner products of the gradients under F⁻¹."""

    q: Float[Array, ""]
    r: Float[Array, " cost"]
    s: Float[Array, "cost cost"]


class Direction(eqx.Module):
    """The full step as x = α F⁻¹g + Σ βᵢ F⁻¹bᵢ, and the multipliers λ and ν that explain it."""

    alpha: Float[Array, ""]
    beta: Float[Array, " cost"]
    lam: Float[Array, ""]
    nu: Float[Array, " cost"]
    case: Int[Array, ""]


def trpo_direction(products: Products, *, max_kl: float) -> Direction:
    """x = √(2δ/q) F⁻¹g: the best step of the trust region (TRPO)."""
    q = jnp.maximum(products.q, TINY)
    alpha = jnp.sqrt(2.0 * max_kl / q)
    none = jnp.zeros_like(products.r)
    return Direction(alpha, none, 1.0 / alpha, none, jnp.int32(4))


def cpo_direction(
    products: Products, cost_excess: Float[Array, " cost"], *, max_kl: float
) -> Direction:
    """CPO's step: max gᵀx over ½ xᵀFx ≤ δ and cᵢ + bᵢᵀx ≤ 0 (problem (9) of the paper), exactly.

    With the constraints A active, Lagrange's conditions have one solution:

        λ² = (q − r_Aᵀ S_A⁻¹ r_A) / (2δ − c_Aᵀ S_A⁻¹ c_A),   ν_A = S_A⁻¹ (r_A + λ c_A),
        x = F⁻¹(g − Σ νᵢ bᵢ)/λ

    The best of these over all sets A, among those that break no limit, is the solution: every one
    is a point of the region, and the solution is one of them. One constraint gives CPO's closed
    form. If there is none, the step is `recovery_direction`'s.
    """
    unit = _unit_ball(products, cost_excess, max_kl=max_kl)
    tolerance = jnp.finfo(unit.c.dtype).eps ** 0.5

    def candidate(u, v):
        rest = 1.0 - unit.r @ v
        reach = 1.0 - unit.c @ u
        spans = rest > tolerance
        lam = jnp.sqrt(jnp.maximum(rest, 0.0) / jnp.maximum(reach, tolerance))
        alpha = jnp.where(spans, jnp.sqrt(jnp.maximum(reach, 0.0) / jnp.maximum(rest, TINY)), 0.0)
        beta = -(u + alpha * v)
        worst = jnp.max(unit.c + alpha * unit.r + unit.s @ beta)
        safe = (reach >= -tolerance) & (worst <= tolerance)
        gain = jnp.where(safe, alpha + unit.r @ beta, -jnp.inf)
        return gain, (alpha, beta, lam, v + lam * u)

    gain, candidates = jax.vmap(candidate)(*_active_sets(unit))
    best = jnp.argmax(gain)
    alpha, beta, lam, nu = jax.tree.map(lambda x: x[best], candidates)
    rescue = _towards_safety(unit)
    lost = jnp.isneginf(gain[best])
    # Costs that no step changes, and that are within their limits, leave TRPO's step.
    blind = jnp.all((jnp.diag(products.s) <= TINY) & (cost_excess < 0.0))
    inside = jnp.all(cost_excess <= 0.0)
    case = jnp.where(inside, jnp.where(jnp.all(unit.c <= -1.0), 3, 2), 1)
    case = jnp.where(lost, 0, jnp.where(blind, 4, case))
    radius = jnp.sqrt(2.0 * max_kl)
    return Direction(
        alpha=jnp.where(lost, 0.0, radius * alpha / unit.g_norm),
        beta=radius * jnp.where(lost, rescue, beta) / unit.b_norm,
        lam=jnp.where(lost, 0.0, lam * unit.g_norm / radius),
        nu=jnp.where(lost, -rescue, nu * unit.g_norm) / unit.b_norm,
        case=case,
    )


def barrier_direction(
    products: Products,
    slack: Float[Array, " cost"],
    *,
    max_kl: float,
    barrier_weight: float,
    cost_gain: float,
) -> Direction:
    """The step of a trust region that ends before the limits (C-TRPO, on one side).

        max gᵀx over ½ xᵀFx + ½ Σᵢ kᵢ max(b̃ᵢᵀx, 0)² ≤ δ,   kᵢ = w / slackᵢ²,   b̃ᵢ = gain · bᵢ

    The second term is that of the barrier w Σ (yᵢ − 1 − log yᵢ), yᵢ = 1 − gain·ΔL_c,ᵢ/slackᵢ, for
    costs that rise. One that falls has no barrier before it; C-TRPO's own divergence would hold it
    in place. With the rising costs A, x ∝ H_A⁻¹g, H_A = F + Σ_A kᵢ b̃ᵢ b̃ᵢᵀ, where by Woodbury's
    identity H_A⁻¹g = F⁻¹g − F⁻¹B̃_A (K_A⁻¹ + S̃_A)⁻¹ r̃_A. Which rise is tried out: of all sets A
    the right one has the least ½ xᵀFx + ½ Σᵢ kᵢ max(b̃ᵢᵀx, 0)² − gᵀx.
    """
    r, s = cost_gain * products.r, cost_gain**2 * products.s
    scale = jnp.sqrt(barrier_weight) / slack

    def candidate(rising):
        k = rising * scale
        inner = jnp.eye(slack.size) + k[:, None] * s * k[None, :]
        pull = k * solve(inner, (k * r)[:, None])[:, 0]
        rise = scale * jnp.maximum(r - s @ pull, 0.0)
        return pull @ s @ pull + rise @ rise, pull

    loss, pulls = jax.vmap(candidate)(_subsets(slack.size, slack.dtype))
    pull = pulls[jnp.argmin(loss)]
    alpha = jnp.sqrt(2.0 * max_kl / jnp.maximum(products.q - r @ pull, TINY))
    nu = cost_gain * pull
    return Direction(alpha, -alpha * nu, 1.0 / alpha, nu, jnp.int32(2))


def recovery_direction(
    products: Products, cost_excess: Float[Array, " cost"], *, max_kl: float
) -> Direction:
    """A step to the edge of the trust region, towards the nearest point that breaks no limit.

    Nearest in the metric F. Along it every positive `cost_excess` falls by the same share, so no
    violated cost rises for another; with one constraint x = −√(2δ/s) F⁻¹b.
    """
    unit = _unit_ball(products, cost_excess, max_kl=max_kl)
    beta = jnp.sqrt(2.0 * max_kl) * _towards_safety(unit) / unit.b_norm
    zero = jnp.zeros_like(products.q)
    return Direction(zero, beta, zero, -beta, jnp.int32(0))


class _UnitBall(eqx.Module):
    """The problem in units where every gradient has length one and the trust region radius one."""

    r: Float[Array, " cost"]
    s: Float[Array, "cost cost"]
    c: Float[Array, " cost"]
    g_norm: Float[Array, ""]
    b_norm: Float[Array, " cost"]


def _unit_ball(products: Products, cost_excess: Array, *, max_kl: float) -> _UnitBall:
    g_norm = jnp.sqrt(jnp.maximum(products.q, TINY))
    b_norm = jnp.sqrt(jnp.maximum(jnp.diag(products.s), TINY))
    off_diagonal = 1.0 - jnp.eye(b_norm.size)
    return _UnitBall(
        r=products.r / (g_norm * b_norm),
        s=products.s / (b_norm[:, None] * b_norm[None, :]) * off_diagonal + jnp.eye(b_norm.size),
        # Beyond some radii the exact distance no longer matters, but its square would overflow.
        c=jnp.clip(cost_excess / (jnp.sqrt(2.0 * max_kl) * b_norm), -1e3, 1e3),
        g_norm=g_norm,
        b_norm=b_norm,
    )


def _active_sets(unit: _UnitBall) -> tuple[Float[Array, "sets cost"], Float[Array, "sets cost"]]:
    """S_A⁻¹c_A and S_A⁻¹r_A for every set A of constraints, zero outside A."""
    # Two costs that say the same have a singular S; a ridge at rounding error parts them.
    ridge = 10.0 * jnp.finfo(unit.c.dtype).eps

    def within(active):
        block = active[:, None] * unit.s * active[None, :] + jnp.diag(1.0 - active + ridge)
        rhs = active[:, None] * jnp.stack([unit.c, unit.r], axis=1)
        return solve(block, rhs)

    solved = jax.vmap(within)(_subsets(unit.c.size, unit.c.dtype))
    return solved[:, :, 0], solved[:, :, 1]


def _subsets(n: int, dtype: jnp.dtype) -> Float[Array, "sets n"]:
    """Every set of n constraints, one a row: 1 for its members, 0 for others; none first."""
    return jnp.asarray(list(itertools.product([0.0, 1.0], repeat=n)), dtype)


def _towards_safety(unit: _UnitBall) -> Float[Array, " cost"]:
    """β of length one towards the nearest point with c + Bᵀx ≤ 0; or, if there is none anywhere,
    towards the point of the region where the worst excess is least among the candidates."""
    u, _ = _active_sets(unit)
    tolerance = jnp.finfo(unit.c.dtype).eps ** 0.5 * (1.0 + jnp.max(jnp.abs(unit.c)))
    squared = jnp.maximum(u @ unit.c, 0.0)
    length = jnp.sqrt(squared)
    safe = jnp.max(unit.c[None, :] - u @ unit.s, axis=1) <= tolerance
    steps = -u / jnp.maximum(length, TINY)[:, None]
    excess = jnp.max(unit.c[None, :] + steps @ unit.s, axis=1)
    nearest = jnp.argmin(jnp.where(safe, length, jnp.inf))
    return steps[jnp.where(jnp.any(safe), nearest, jnp.argmin(excess))]
