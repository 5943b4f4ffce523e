"""Fitting V and V_c: least squares on the value targets, one function for both."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cmbpo.networks import Critic, Mlp, Normaliser
from cmbpo.normalisation import for_new_inputs, for_new_outputs, statistics

MIN_STD = 1e-2
"""Least unit of observations and values."""
SHRINK = 0.9
"""Most that the unit of values shrinks in one fit."""


def critic_optimiser(critic: Critic) -> optax.OptState:
    """Adam's state before the first fit."""
    return optax.scale_by_adam().init(critic.members)  # pyright: ignore[reportArgumentType]


def fit_critic(
    critic: Critic,
    opt_state: optax.OptState,
    obs: Float[Array, "rows obs"],
    target: Float[Array, " rows"],
    valid: Bool[Array, " rows"],
    *,
    learning_rate: float,
    batch_size: int,
    epochs: int,
    key: PRNGKeyArray,
) -> tuple[Critic, optax.OptState, Float[Array, ""]]:
    """`epochs` passes of Adam on ½ (V(s) − target)², in standard units; the last pass's mean loss.

    Each network sees the rows in an order of its own. The normalisers are set to this batch's
    statistics first, without changing any value (see `renormalise`).
    """
    # Adam's own count says whether these networks were ever fitted.
    fresh = opt_state.count == 0  # pyright: ignore[reportAttributeAccessIssue]
    critic = renormalise(critic, obs, target, valid, fresh=fresh)
    x, y = jax.vmap(critic.input)(obs), jax.vmap(critic.output)(target[:, None])
    weight = valid.astype(y.dtype)
    members = critic.members.layers[0].bias.shape[0]
    orders = _orders(obs.shape[0], members, batch_size=batch_size, epochs=epochs, key=key)

    def loss(net: Mlp, rows: Array) -> Float[Array, ""]:
        error = jax.vmap(net)(x[rows]) - y[rows]
        w = weight[rows]
        return 0.5 * jnp.sum(w * error[:, 0] ** 2) / jnp.maximum(w.sum(), 1.0)

    def step(carry, rows):
        nets, state = carry
        value, gradient = jax.vmap(jax.value_and_grad(loss))(nets, rows)
        direction, state = optax.scale_by_adam().update(gradient, state)
        nets = jax.tree.map(lambda p, d: p - learning_rate * d, nets, direction)
        return (nets, state), value.mean()

    (nets, opt_state), losses = jax.lax.scan(step, (critic.members, opt_state), orders)
    last_pass = losses.reshape(epochs, -1)[-1].mean()
    return eqx.tree_at(lambda c: c.members, critic, nets), opt_state, last_pass


def _orders(rows: int, members: int, *, batch_size: int, epochs: int, key: PRNGKeyArray) -> Array:
    """Row numbers [step, member, minibatch]: each pass sees each row once, in new company.

    The rows are shuffled into a table, one line for each minibatch, whose columns every pass turns
    by random amounts: as good as a new shuffle, without the sort.
    """
    batches = max(1, -(-rows // batch_size))
    size = rows // batches
    key_table, key_turn = jax.random.split(key)
    table = jnp.argsort(jax.random.bits(key_table, (members, rows)), axis=1)[:, : batches * size]
    table = table.reshape(members, batches, size)
    turn = jax.random.randint(key_turn, (epochs, 1, members, size), 0, batches)
    line = (jnp.arange(batches)[None, :, None, None] + turn) % batches
    member = jnp.arange(members)[None, None, :, None]
    column = jnp.arange(size)[None, None, None, :]
    return table[member, line, column].reshape(epochs * batches, members, size)


def renormalise(
    critic: Critic,
    obs: Float[Array, "rows obs"],
    target: Float[Array, " rows"],
    valid: Bool[Array, " rows"],
    *,
    fresh: Bool[Array, ""],
) -> Critic:
    """Normalisers from the valid rows; first and last layer changed so that V(s) is what it was.

    The output's deviation may grow at once but shrinks by at most a tenth each time: after a batch
    without cost, V_c would otherwise hold its old values as huge multiples of a tiny unit, and
    every gradient step would shake them. Networks that are `fresh` have no values worth keeping.
    """
    inner = statistics(obs, valid, floor=MIN_STD)
    outer = statistics(target[:, None], valid, floor=MIN_STD)
    floor = jnp.where(fresh, 0.0, SHRINK * critic.output.std)
    outer = Normaliser(outer.mean, jnp.maximum(outer.std, floor))
    first, last = critic.members.layers[0], critic.members.layers[-1]
    kept = (
        for_new_inputs(first, critic.input, inner),
        for_new_outputs(last, critic.output, outer),
    )
    layers = jax.tree.map(lambda x, y: jnp.where(fresh, x, y), (first, last), kept)
    return eqx.tree_at(
        lambda c: (c.input, c.output, c.members.layers[0], c.members.layers[-1]),
        critic,
        (inner, outer, *layers),
    )
