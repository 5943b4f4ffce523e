"""The local model of a policy update: L(θ), L_c(θ) and the mean KL as functions of the flat θ."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cmbpo.networks import Gaussian, Policy
from cmbpo.trajectory import Samples

Theta = Float[Array, " n"]


class PredictedChange(eqx.Module):
    """What the samples of the old policy say about a new one."""

    reward: Float[Array, ""]
    cost: Float[Array, " cost"]
    kl: Float[Array, ""]


@dataclass(frozen=True)
class Surrogate:
    """The surrogate of a policy update around `theta`, the old policy.

    `rebuild(θ)` is the policy with parameters θ; `predict(θ)` its reward per step, costs per
    horizon (both relative to the old policy's) and mean KL(π_θ ‖ π_old); `gradients()` those of
    reward [n] and costs [cost, n] at `theta`; `fisher(v)` the Hessian of the mean KL there times v.
    """

    theta: Theta
    rebuild: Callable[[Theta], Policy]
    predict: Callable[[Theta], PredictedChange]
    gradients: Callable[[], tuple[Theta, Float[Array, "cost n"]]]
    fisher: Callable[[Theta], Theta]


def flatten(policy: Policy) -> tuple[Theta, Callable[[Theta], Policy]]:
    """θ as one vector (network and log-deviation, no more of the policy), and the way back."""
    theta, unravel = ravel_pytree((policy.net, policy.log_std))

    def rebuild(theta: Theta) -> Policy:
        return eqx.tree_at(lambda p: (p.net, p.log_std), policy, unravel(theta))

    return theta, rebuild


def surrogate(
    policy: Policy, samples: Samples, *, horizon: float, fisher_share: float = 1.0
) -> Surrogate:
    """The surrogate of `policy` on its samples.

        L(θ) = E[ρ A] − E[A],   L_c(θ) = horizon · (E[ρ A_c] − E[A_c]),   ρ = π_θ(a|s)/π_old(a|s)

    Means run over the valid rows. A_c is a cost per step, so L_c is the change of cost per horizon.
    The Fisher matrix may use a share of the rows, always the same ones.
    """
    theta, rebuild = flatten(policy)
    weight = samples.valid / jnp.maximum(samples.valid.sum(), 1)
    old: Gaussian = jax.vmap(policy)(samples.obs)
    old_log_prob = old.log_prob(samples.act)
    scaled = jnp.concatenate([samples.advantage[:, None], horizon * samples.cost_advantage], axis=1)

    def predict(theta: Theta) -> PredictedChange:
        new: Gaussian = jax.vmap(rebuild(theta))(samples.obs)
        # ρ − 1 by expm1: near the old policy the difference is all that counts.
        gain = jnp.expm1(new.log_prob(samples.act) - old_log_prob)
        change = (weight * gain) @ scaled
        return PredictedChange(reward=change[0], cost=change[1:], kl=jnp.sum(weight * new.kl(old)))

    def gradients() -> tuple[Theta, Float[Array, "cost n"]]:
        def changes(theta: Theta) -> Float[Array, " k"]:
            predicted = predict(theta)
            return jnp.concatenate([predicted.reward[None], predicted.cost])

        rows = jax.jacrev(changes)(theta)
        return rows[0], rows[1:]

    rows = _some_rows(samples.valid.size, fisher_share)
    fisher = _fisher(policy, samples.obs[rows], samples.valid[rows])
    return Surrogate(theta, rebuild, predict, gradients, fisher)


def _fisher(policy: Policy, obs: Array, valid: Array) -> Callable[[Theta], Theta]:
    """v ↦ (Jᵀ Σ⁻¹ J v_net, 2 v_log_std): J of the mean action, averaged over states.

    For a Gaussian this is the exact Hessian of the mean KL at θ_old, whichever way the KL points.
    """
    _, unravel = ravel_pytree((policy.net, policy.log_std))
    x = jax.vmap(policy.seen)(obs)
    # Linearised once: every product of conjugate gradients then reuses the activations.
    _, push = jax.linearize(lambda net: jax.vmap(net)(x), policy.net)
    pull = jax.linear_transpose(push, policy.net)
    precision = jnp.exp(-2.0 * policy.log_deviation)[None, :]
    weight = (valid / jnp.maximum(valid.sum(), 1))[:, None]

    def product(v: Theta) -> Theta:
        v_net, v_log_std = unravel(v)
        (product_net,) = pull(weight * precision * push(v_net))
        return ravel_pytree((product_net, 2.0 * v_log_std))[0]

    return product


def _some_rows(rows: int, share: float) -> slice | np.ndarray:
    if share >= 1.0:
        return slice(None)
    # The same rows always, drawn outside the compiled program: their number is part of its shapes.
    some = np.random.default_rng(0).choice(rows, max(1, round(share * rows)), replace=False)
    return np.sort(some)
