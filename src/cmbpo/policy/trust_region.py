"""The (constrained) trust-region steps: surrogate, conjugate gradients, direction, line search."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cmbpo.networks import Policy
from cmbpo.policy.conjugate_gradients import conjugate_gradients
from cmbpo.policy.directions import (
    TINY,
    Direction,
    Products,
    barrier_direction,
    cpo_direction,
    recovery_direction,
    trpo_direction,
)
from cmbpo.policy.line_search import line_search
from cmbpo.policy.surrogate import PredictedChange, Surrogate, surrogate
from cmbpo.trajectory import Samples

MIN_SLACK = 0.05
"""Least room that the barrier sees before a limit, as a share of the target: at none it would
forbid every step."""
NEGLIGIBLE = 0.01
"""Rise of a cost that no step is shortened for, as a share of what is aimed at."""
LAG = 3.0
"""Updates that a cost may go on rising before its estimate shows it: as many whole steps have to
fit below the aim before a step is free of that cost."""
BARRIER_WEIGHT = 0.1
"""Weight of the logarithmic barrier in the divergence of the barrier step."""


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


class TrustRegionReport(eqx.Module):
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


def trust_region_step(
    policy: Policy, samples: Samples, region: Region
) -> tuple[Policy, TrustRegionReport]:
    """TRPO's step: as much reward as the trust region holds, whatever it costs."""
    # On a GPU, products in TF32 would leave conjugate gradients with three digits.
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=False)
        direction = trpo_direction(local.products, max_kl=region.max_kl)

        def acceptable(new: PredictedChange) -> Bool[Array, ""]:
            return (new.kl <= region.max_kl) & (new.reward >= 0.0)

        return _search(local, direction, acceptable, region)


def cpo_step(
    policy: Policy, samples: Samples, cost_excess: Float[Array, " cost"], region: Region
) -> tuple[Policy, TrustRegionReport]:
    """CPO's step. `cost_excess` = J_c − target, in cost per horizon.

    The search accepts what stays in the region, does not earn less (unless the policy breaks a
    limit now), raises no cost beyond its target, and no cost at all that is beyond it already.
    """
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=True)
        direction = cpo_direction(local.products, cost_excess, max_kl=region.max_kl)
        room = jnp.maximum(-cost_excess, 0.0)

        def acceptable(new: PredictedChange) -> Bool[Array, ""]:
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
    cost_gain: float,
    hysteresis: float,
) -> tuple[Policy, Bool[Array, " cost"], TrustRegionReport]:
    """C-TRPO's step with hysteresis; also which constraints are in recovery now.

    A constraint enters recovery at J_c > target and leaves it at J_c < hysteresis · target. While
    any is in it, the step only lowers those costs, with the full radius.
    """
    recovering = jnp.where(
        recovering, cost_excess >= (hysteresis - 1.0) * target, cost_excess > 0.0
    )
    # At the limit itself the barrier would be infinite and forbid even safe steps.
    slack = jnp.maximum(-cost_excess, jnp.maximum(MIN_SLACK * target, TINY))
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=True)
        forward = barrier_direction(
            local.products,
            slack,
            max_kl=region.max_kl,
            barrier_weight=BARRIER_WEIGHT,
            cost_gain=cost_gain,
        )
        above_exit = jnp.maximum(cost_excess + (1.0 - hysteresis) * target, MIN_SLACK * target)
        pressing = jnp.where(recovering, above_exit, cost_excess)
        back = recovery_direction(local.products, pressing, max_kl=region.max_kl)
        lost = jnp.any(recovering)
        direction = jax.tree.map(lambda x, y: jnp.where(lost, x, y), back, forward)

        def acceptable(new: PredictedChange) -> Bool[Array, ""]:
            # The barrier itself, not its quadratic model, which may be far off at a full step.
            y = 1.0 - cost_gain * jnp.maximum(new.cost, 0.0) / slack
            barrier = jnp.where(y > 0.0, y - 1.0 - jnp.log(jnp.maximum(y, TINY)), jnp.inf)
            forth = (new.kl + BARRIER_WEIGHT * jnp.sum(barrier) <= region.max_kl) & (
                new.reward >= 0.0
            )
            room = jnp.where(recovering, 0.0, slack)
            return jnp.where(lost, (new.kl <= region.max_kl) & jnp.all(new.cost <= room), forth)

        policy, report = _search(local, direction, acceptable, region)
        return policy, recovering, report


def steered_step(
    policy: Policy,
    samples: Samples,
    share: Float[Array, " cost"],
    room: Float[Array, " cost"],
    aim: Float[Array, " cost"],
    region: Region,
) -> tuple[Policy, Float[Array, " cost"], TrustRegionReport]:
    """The most reward of a step that lowers each cost by a share φ of what the region holds.

        max gᵀx over ½ xᵀFx ≤ δ and bᵢᵀx ≤ −φᵢ √(2δ sᵢᵢ)

    At φ = 1 it is a recovery, at −1 unconstrained. In between, where g and b are at right angles,
    the reward keeps √(1 − φ²) of its step: half of a recovery costs an eighth of the reward, where
    a recovery every other update costs half. No step that has to lower a cost may raise it, but for
    a hundredth of the `aim`: before there is any cost, its gradient is rounding error. A cost so
    far below its aim (by `room`) that `LAG` whole steps could not bring it there binds nothing:
    φ = −1. Also the φ of each cost that the step was made with.
    """
    with jax.default_matmul_precision("highest"):
        local = _local(policy, samples, region, constrained=True)
        reach = jnp.sqrt(2.0 * region.max_kl * jnp.maximum(jnp.diag(local.products.s), TINY))
        share = jnp.where(LAG * reach <= room, -1.0, share)
        direction = cpo_direction(local.products, share * reach, max_kl=region.max_kl)
        most = jnp.maximum(-share * reach, NEGLIGIBLE * aim)

        def acceptable(new: PredictedChange) -> Bool[Array, ""]:
            earns = (new.reward >= 0.0) | jnp.any(share > 0.0)
            return (new.kl <= region.max_kl) & earns & jnp.all(new.cost <= most)

        policy, report = _search(local, direction, acceptable, region)
        return policy, share, report


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
    # F⁻¹ is symmetric; ten steps of conjugate gradients make it nearly so.
    inner = 0.5 * (inner + inner.T)
    products = Products(q=inner[0, 0], r=inner[0, 1:], s=inner[1:, 1:])
    return _Local(model, gradients, solved, residual, products)


def _search(
    local: _Local,
    direction: Direction,
    acceptable: Callable[[PredictedChange], Bool[Array, ""]],
    region: Region,
) -> tuple[Policy, TrustRegionReport]:
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
    # Not θ + 0·step: a step that is not finite would come through.
    theta = jnp.where(search.accepted, model.theta + search.scale * step, model.theta)
    norms = jnp.sqrt(jnp.sum(local.gradients**2, axis=1))
    report = TrustRegionReport(
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
