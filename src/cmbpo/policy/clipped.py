"""PPO's clipped objective, ascended until the policy has moved far enough."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cmbpo.networks import Gaussian, Policy
from cmbpo.policy.surrogate import PredictedChange, Theta, flatten, surrogate
from cmbpo.trajectory import Samples

CLIP = 0.2
"""ε: the largest change of the likelihood ratio that still pays."""
OVERSHOOT = 2.0
"""KL that an update may end with, over the KL that ends its passes."""


class ClippedReport(eqx.Module):
    """How the passes ended. Costs are per horizon."""

    passes: Int[Array, ""]
    loss: Float[Array, ""]
    kl: Float[Array, ""]
    reward_change: Float[Array, ""]
    cost_change: Float[Array, " cost"]


class _Passing(NamedTuple):
    """Where the passes are: their number, the policy, Adam's state, and the last one's outcome."""

    passes: Int[Array, ""]
    theta: Theta
    opt_state: optax.OptState
    predicted: PredictedChange
    loss: Float[Array, ""]


def start_optimiser(policy: Policy) -> optax.OptState:
    """Adam's state before the first update."""
    theta, _ = flatten(policy)
    return optax.scale_by_adam().init(theta)


def clipped_loss(
    ratio: Float[Array, " rows"],
    advantage: Float[Array, " rows"],
    valid: Bool[Array, " rows"],
    *,
    clip: float = CLIP,
) -> Float[Array, ""]:
    """−E[min(ρ A, clip(ρ, 1−ε, 1+ε) A)] over the valid rows (Schulman et al. 2017, eq. 7)."""
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)
    return -jnp.sum(jnp.where(valid, gain, 0.0)) / jnp.maximum(valid.sum(), 1)


def clipped_step(
    policy: Policy,
    opt_state: optax.OptState,
    samples: Samples,
    *,
    horizon: float,
    learning_rate: float,
    iterations: int,
    minibatches: int,
    stop_kl: float,
    key: PRNGKeyArray,
) -> tuple[Policy, optax.OptState, ClippedReport]:
    """Passes of Adam over the samples, until the mean KL(π_new ‖ π_old) exceeds `stop_kl`.

    A pass that ends beyond `OVERSHOOT` times that is taken back by halves: rare large advantages of
    cost can carry a policy a KL of 10 away in a single pass.
    """
    model = surrogate(policy, samples, horizon=horizon)
    old: Gaussian = jax.vmap(policy)(samples.obs)
    old_log_prob = old.log_prob(samples.act)
    rows = samples.valid.size
    size = rows // minibatches

    def loss(theta: Array, part: Samples, part_log_prob: Array) -> Float[Array, ""]:
        new: Gaussian = jax.vmap(model.rebuild(theta))(part.obs)
        ratio = jnp.exp(new.log_prob(part.act) - part_log_prob)
        return clipped_loss(ratio, part.advantage, part.valid)

    def minibatch(carry, part):
        theta, state = carry
        value, gradient = jax.value_and_grad(loss)(theta, *part)
        direction, state = optax.scale_by_adam().update(gradient, state)
        theta = jax.tree.map(lambda x, d: x - learning_rate * d, theta, direction)
        return (theta, state), value

    def one_pass(now: _Passing) -> _Passing:
        batch = (samples, old_log_prob)
        if minibatches > 1:
            order = jax.random.permutation(jax.random.fold_in(key, now.passes), rows)
            batch = jax.tree.map(lambda x: x[order], batch)
        parts = jax.tree.map(
            lambda x: x[: minibatches * size].reshape(minibatches, size, *x.shape[1:]), batch
        )
        (theta, state), losses = jax.lax.scan(minibatch, (now.theta, now.opt_state), parts)
        # Adam's state is not taken back: it remembers gradients, not where the policy is.
        theta, predicted = taken_back(now.theta, theta)
        return _Passing(now.passes + 1, theta, state, predicted, losses.mean())

    def taken_back(before: Array, theta: Array) -> tuple[Array, PredictedChange]:
        def halve(carry):
            theta, _ = carry
            theta = 0.5 * (before + theta)
            return theta, model.predict(theta)

        return jax.lax.while_loop(
            lambda carry: carry[1].kl > OVERSHOOT * stop_kl, halve, (theta, model.predict(theta))
        )

    def going_on(now: _Passing) -> Bool[Array, ""]:
        return (now.passes < iterations) & (now.predicted.kl <= stop_kl)

    shapes = jax.eval_shape(model.predict, model.theta)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    start = _Passing(jnp.int32(0), model.theta, opt_state, nothing, jnp.zeros(()))
    end = jax.lax.while_loop(going_on, one_pass, start)
    change = end.predicted
    report = ClippedReport(end.passes, end.loss, change.kl, change.reward, change.cost)
    return model.rebuild(end.theta), end.opt_state, report
