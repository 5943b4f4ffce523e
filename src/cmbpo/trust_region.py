"""The (constrained) trust-region step: conjugate gradients, dual, recovery, barrier, line search.

All steps have the form x = α F⁻¹g + Σᵢ βᵢ F⁻¹bᵢ, with g the gradient of the reward's surrogate, bᵢ
those of the costs', F the damped Fisher matrix. What differs is how α and β are found, and they are
found from inner products alone: q = gᵀF⁻¹g, rᵢ = gᵀF⁻¹bᵢ, Sᵢⱼ = bᵢᵀF⁻¹bⱼ.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cmbpo.advantage import Samples
from cmbpo.elimination import solve
from cmbpo.networks import Policy
from cmbpo.surrogate import Prediction, Surrogate, surrogate

CASES = ("recovery", "constrained", "constrained", "unconstrained", "unconstrained")
"""How a step was found, by its number, which is OmniSafe's: 0 no point of the trust region is safe;
1 the policy is not safe but the region holds safe points; 2 it is safe and a limit cuts the region;
3 the whole region is safe; 4 no constraint, or one that no step changes."""

MIN_SLACK = 0.05
_TINY = 1e-10


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


class LineSearch(eqx.Module):
    """What a search found. If nothing was acceptable, `scale` is zero and `accepted` False."""

    scale: Float[Array, ""]
    accepted: Bool[Array, ""]
    backtracks: Int[Array, ""]
    predicted: Prediction


@dataclass(frozen=True, kw_only=True)
class Region:
    """The numbers of a trust region and of the search in it."""

    max_kl: float
    """δ, the largest mean KL(π_new ‖ π_old)."""
    horizon: float
    """Steps that costs are counted over."""
    cg_iterations: int = 10
    """Conjugate-gradient steps per solve."""
    cg_damping: float = 0.1
    """Multiple of the identity added to the Fisher matrix."""
    fisher_share: float = 1.0
    """Share of the rows that the Fisher matrix is averaged over."""
    backtrack: float = 0.8
    """Factor by which the line search shortens the step."""
    backtracks: int = 10
    """Most candidates of the line search."""


class Report(eqx.Module):
    """How a trust-region step ended. Costs are per horizon."""

    accepted: Bool[Array, ""]
    backtracks: Int[Array, ""]
    case: Int[Array, ""]
    kl: Float[Array, ""]
    reward_change: Float[Array, ""]
    cost_change: Float[Array, " cost"]
    lam: Float[Array, ""]
    nu: Float[Array, " cost"]
    q: Float[Array, ""]
    r: Float[Array, " cost"]
    s: Float[Array, " cost"]
    gradient_norm: Float[Array, ""]
    cost_gradient_norm: Float[Array, " cost"]
    cg_residual: Float[Array, ""]
    step_norm: Float[Array, ""]


def conjugate_gradients(
    product: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    rhs: Float[Array, "k n"],
    *,
    iterations: int,
    tolerance: float = 1e-5,
) -> tuple[Float[Array, "k n"], Float[Array, ""]]:
    """X with F xᵢ = rhsᵢ for a positive definite F given as a product; largest relative residual.

    The systems advance together, so that each pass over the states serves all; they end when all
    residuals are below `tolerance`, relative to their right-hand sides.
    """
    products = jax.vmap(product)
    size = jnp.maximum(jnp.sum(rhs**2, axis=1), jnp.finfo(rhs.dtype).tiny)

    def unfinished(carry):
        i, _, _, _, rr = carry
        return (i < iterations) & jnp.any(rr > tolerance**2 * size)

    def step(carry):
        i, x, residual, p, rr = carry
        fp = products(p)
        open_ = rr > tolerance**2 * size
        a = jnp.where(open_, rr / jnp.where(open_, jnp.sum(p * fp, axis=1), 1.0), 0.0)[:, None]
        x = x + a * p
        residual = residual - a * fp
        rr_new = jnp.sum(residual**2, axis=1)
        p = residual + (rr_new / jnp.where(open_, rr, 1.0))[:, None] * p
        return i + 1, x, residual, p, rr_new

    start = (0, jnp.zeros_like(rhs), rhs, rhs, jnp.sum(rhs**2, axis=1))
    _, x, _, _, rr = jax.lax.while_loop(unfinished, step, start)
    return x, jnp.sqrt(jnp.max(rr / size))


def trpo_direction(products: Products, *, max_kl: float) -> Direction:
    """x = √(2δ/q) F⁻¹g: the best step of the trust region (TRPO)."""
    q = jnp.maximum(products.q, _TINY)
    alpha = jnp.sqrt(2.0 * max_kl / q)
    none = jnp.zeros_like(products.r)
    return Direction(alpha, none, 1.0 / alpha, none, jnp.int32(4))


def cpo_direction(
    products: Products, cost_excess: Float[Array, " cost"], *, max_kl: float
) -> Direction:
    """CPO's step: max gᵀx over ½ xᵀFx ≤ δ and cᵢ + bᵢᵀx ≤ 0 (problem (8) of the paper), exactly.

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
        alpha = jnp.where(spans, jnp.sqrt(jnp.maximum(reach, 0.0) / jnp.maximum(rest, _TINY)), 0.0)
        beta = -(u + alpha * v)
        worst = jnp.max(unit.c + alpha * unit.r + unit.s @ beta)
        safe = (reach >= -tolerance) & (worst <= tolerance)
        gain = jnp.where(safe, alpha + unit.r @ beta, -jnp.inf)
        return gain, (alpha, beta, lam, v + lam * u)

    gain, found = jax.vmap(candidate)(*_active_sets(unit))
    best = jnp.argmax(gain)
    alpha, beta, lam, nu = jax.tree.map(lambda x: x[best], found)
    rescue = _towards_safety(unit)
    lost = jnp.isneginf(gain[best])
    blind = jnp.all((jnp.diag(products.s) <= _TINY) & (cost_excess < 0.0))
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
    alpha = jnp.sqrt(2.0 * max_kl / jnp.maximum(products.q - r @ pull, _TINY))
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
    g_norm = jnp.sqrt(jnp.maximum(products.q, _TINY))
    b_norm = jnp.sqrt(jnp.maximum(jnp.diag(products.s), _TINY))
    off_diagonal = 1.0 - jnp.eye(b_norm.size)
    return _UnitBall(
        r=products.r / (g_norm * b_norm),
        s=products.s / (b_norm[:, None] * b_norm[None, :]) * off_diagonal + jnp.eye(b_norm.size),
        c=jnp.clip(cost_excess / (jnp.sqrt(2.0 * max_kl) * b_norm), -1e3, 1e3),
        g_norm=g_norm,
        b_norm=b_norm,
    )


def _active_sets(unit: _UnitBall) -> tuple[Float[Array, "sets cost"], Float[Array, "sets cost"]]:
    """S_A⁻¹c_A and S_A⁻¹r_A for every set A of constraints, zero outside A."""
    ridge = 10.0 * jnp.finfo(unit.c.dtype).eps

    def within(active):
        block = active[:, None] * unit.s * active[None, :] + jnp.diag(1.0 - active + ridge)
        rhs = active[:, None] * jnp.stack([unit.c, unit.r], axis=1)
        return solve(block, rhs)

    found = jax.vmap(within)(_subsets(unit.c.size, unit.c.dtype))
    return found[:, :, 0], found[:, :, 1]


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
    steps = -u / jnp.maximum(length, _TINY)[:, None]
    excess = jnp.max(unit.c[None, :] + steps @ unit.s, axis=1)
    nearest = jnp.argmin(jnp.where(safe, length, jnp.inf))
    return steps[jnp.where(jnp.any(safe), nearest, jnp.argmin(excess))]


def line_search(
    predict: Callable[[Float[Array, ""]], Prediction],
    acceptable: Callable[[Prediction], Bool[Array, ""]],
    *,
    backtrack: float,
    backtracks: int,
) -> LineSearch:
    """The largest scale of 1, ζ, ζ², … whose prediction is acceptable, among `backtracks`."""
    shapes = jax.eval_shape(predict, jnp.zeros(()))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def searching(carry):
        i, _, accepted, _ = carry
        return ~accepted & (i < backtracks)

    def shorten(carry):
        i, scale, _, _ = carry
        predicted = predict(scale)
        accepted = acceptable(predicted)
        return i + 1, jnp.where(accepted, scale, backtrack * scale), accepted, predicted

    start = (jnp.int32(0), jnp.ones(()), jnp.array(False), nothing)
    i, scale, accepted, predicted = jax.lax.while_loop(searching, shorten, start)
    return LineSearch(
        scale=jnp.where(accepted, scale, 0.0),
        accepted=accepted,
        backtracks=jnp.where(accepted, i - 1, i),
        predicted=jax.tree.map(lambda x, y: jnp.where(accepted, x, y), predicted, nothing),
    )


def trust_region_step(policy: Policy, samples: Samples, region: Region) -> tuple[Policy, Report]:
    """TRPO's step: as much reward as the trust region holds, whatever it costs."""
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=False)
        direction = trpo_direction(local.products, max_kl=region.max_kl)

        def acceptable(new: Prediction) -> Bool[Array, ""]:
            return (new.kl <= region.max_kl) & (new.reward >= 0.0)

        return _search(local, direction, acceptable, region)


def cpo_step(
    policy: Policy, samples: Samples, cost_excess: Float[Array, " cost"], region: Region
) -> tuple[Policy, Report]:
    """CPO's step. `cost_excess` = J_c − target, in cost per horizon.

    The search accepts what stays in the region, does not earn less (unless the policy breaks a
    limit now), raises no cost beyond its target, and no cost at all that is beyond it already.
    """
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=True)
        direction = cpo_direction(local.products, cost_excess, max_kl=region.max_kl)
        room = jnp.maximum(-cost_excess, 0.0)

        def acceptable(new: Prediction) -> Bool[Array, ""]:
            earns = (new.reward >= 0.0) | (direction.case <= 1)
            return (new.kl <= region.max_kl) & earns & jnp.all(new.cost <= room)

        return _search(local, direction, acceptable, region)


def barrier_step(
    policy: Policy,
    samples: Samples,
    cost_excess: Float[Array, " cost"],
    target: Float[Array, " cost"],
    recovering: Bool[Array, " cost"],
    region: Region,
    *,
    barrier_weight: float,
    cost_gain: float,
    hysteresis: float,
) -> tuple[Policy, Bool[Array, " cost"], Report]:
    """C-TRPO's step with hysteresis; also which constraints are in recovery now.

    A constraint enters recovery at J_c > target and leaves it at J_c < hysteresis · target. While
    any is in it, the step only lowers those costs, with the full radius.
    """
    recovering = jnp.where(
        recovering, cost_excess >= (hysteresis - 1.0) * target, cost_excess > 0.0
    )
    slack = jnp.maximum(-cost_excess, jnp.maximum(MIN_SLACK * target, _TINY))
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=True)
        forward = barrier_direction(
            local.products,
            slack,
            max_kl=region.max_kl,
            barrier_weight=barrier_weight,
            cost_gain=cost_gain,
        )
        above_exit = jnp.maximum(cost_excess + (1.0 - hysteresis) * target, MIN_SLACK * target)
        pressing = jnp.where(recovering, above_exit, cost_excess)
        back = recovery_direction(local.products, pressing, max_kl=region.max_kl)
        lost = jnp.any(recovering)
        direction = jax.tree.map(lambda x, y: jnp.where(lost, x, y), back, forward)

        def acceptable(new: Prediction) -> Bool[Array, ""]:
            y = 1.0 - cost_gain * jnp.maximum(new.cost, 0.0) / slack
            barrier = jnp.where(y > 0.0, y - 1.0 - jnp.log(jnp.maximum(y, _TINY)), jnp.inf)
            forth = (new.kl + barrier_weight * jnp.sum(barrier) <= region.max_kl) & (
                new.reward >= 0.0
            )
            room = jnp.where(recovering, 0.0, slack)
            return jnp.where(lost, (new.kl <= region.max_kl) & jnp.all(new.cost <= room), forth)

        policy, report = _search(local, direction, acceptable, region)
        return policy, recovering, report


@dataclass(frozen=True)
class _Local:
    """The surrogate, its gradients, F⁻¹ times each, and their inner products."""

    surrogate: Surrogate
    gradients: Float[Array, "k n"]
    solved: Float[Array, "k n"]
    residual: Float[Array, ""]
    products: Products


def _local(policy: Policy, samples: Samples, region: Region, *, constrained: bool) -> _Local:
    """Everything a step is made from; without constraints the costs' part is zero."""
    model = surrogate(policy, samples, horizon=region.horizon, fisher_share=region.fisher_share)
    g, b = model.gradients()
    gradients = jnp.concatenate([g[None, :], b])
    solved, residual = conjugate_gradients(
        lambda v: model.fisher(v) + region.cg_damping * v,
        gradients if constrained else gradients[:1],
        iterations=region.cg_iterations,
    )
    if not constrained:
        solved = jnp.concatenate([solved, jnp.zeros_like(b)])
    inner = gradients @ solved.T
    inner = 0.5 * (inner + inner.T)
    products = Products(q=inner[0, 0], r=inner[0, 1:], s=inner[1:, 1:])
    return _Local(model, gradients, solved, residual, products)


def _search(
    local: _Local,
    direction: Direction,
    acceptable: Callable[[Prediction], Bool[Array, ""]],
    region: Region,
) -> tuple[Policy, Report]:
    """The policy at the accepted share of the step; the old one, bit for bit, if there is none."""
    model, products = local.surrogate, local.products
    weights = jnp.concatenate([direction.alpha[None], direction.beta])
    step = weights @ local.solved
    search = line_search(
        lambda scale: model.predict(model.theta + scale * step),
        acceptable,
        backtrack=region.backtrack,
        backtracks=region.backtracks,
    )
    theta = jnp.where(search.accepted, model.theta + search.scale * step, model.theta)
    norms = jnp.sqrt(jnp.sum(local.gradients**2, axis=1))
    report = Report(
        accepted=search.accepted,
        backtracks=search.backtracks,
        case=direction.case,
        kl=search.predicted.kl,
        reward_change=search.predicted.reward,
        cost_change=search.predicted.cost,
        lam=direction.lam,
        nu=direction.nu,
        q=products.q,
        r=products.r,
        s=jnp.diag(products.s),
        gradient_norm=norms[0],
        cost_gradient_norm=norms[1:],
        cg_residual=local.residual,
        step_norm=jnp.sqrt(jnp.sum((theta - model.theta) ** 2)),
    )
    return model.rebuild(theta), report
