"""The policy of soft actor-critic: what it maximises, and the temperature of its entropy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cmbpo.networks import SquashedPolicy
from cmbpo.policy.soft_critic import SoftCritics, pessimistic

ENTROPY = -1.0
"""H̄, for each dimension of the action: what the temperature holds the entropy at."""


def weights(multiplier: Float[Array, " cost"]) -> Float[Array, " signal"]:
    """How much each signal counts: (1, λ₁, …, λ_m) / (1 + Σᵢ λᵢ)."""
    return jnp.concatenate([jnp.ones(1), multiplier]) / (1.0 + multiplier.sum())


def policy_loss(
    policy: SquashedPolicy,
    critics: SoftCritics,
    obs: Float[Array, "batch obs"],
    noise: Float[Array, "batch act"],
    *,
    temperature: Float[Array, ""],
    multiplier: Float[Array, " cost"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """E[(α log π(a|s) − Q₀(s, a) − Σᵢ λᵢ Qᵢ(s, a)) / (1 + Σᵢ λᵢ)], a ~ π, and the entropy.

    Qᵢ is of −cᵢ. The divisor keeps the size of the gradient whatever λ is.
    """
    act, log_prob = jax.vmap(policy)(obs).draw(noise)
    standard = jax.vmap(policy.normaliser)(obs)
    value = pessimistic(jax.vmap(critics)(standard, act)) @ weights(multiplier)
    share = weights(multiplier)[0]
    return jnp.mean(share * temperature * log_prob - value), -log_prob.mean()


def temperature_gradient(entropy: Float[Array, ""], *, n_act: int) -> Float[Array, ""]:
    """Of log α, downhill: H(π) − H̄. Too little entropy makes it dearer."""
    return entropy - ENTROPY * n_act
