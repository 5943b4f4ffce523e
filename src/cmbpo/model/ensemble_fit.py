"""How networks are fitted: each until it no longer gains on held-out rows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cmbpo.data.archive import Archive
from cmbpo.data.data_split import MOST_ROWS, Order, is_held_out
from cmbpo.networks import Mlp


def for_each_member(f: Callable) -> Callable:
    """`f` of one network, for all: side by side, but on a CPU, which one fills, one by one."""
    if jax.default_backend() == "cpu":
        return lambda *args: jax.lax.map(lambda one: f(*one), args)
    return jax.vmap(f)


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """The numbers of a fit."""

    batch_size: int
    """Rows of one gradient step."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    weight_decay: float = 1e-6
    """Factor on the penalty on the weights."""
    patience: int = 5
    """Epochs without a gain of 1 % after which a network stops."""


def optimiser(members: PyTree) -> PyTree:
    """Adam's state before the first fit, one for each network."""
    return jax.vmap(optax.adam(0.0).init)(members)


def adam_step(
    loss: Callable[[Mlp], Float[Array, ""]], net: Mlp, opt_state: PyTree, *, learning_rate: float
) -> tuple[Mlp, PyTree, Float[Array, ""]]:
    """One step of Adam for one network: itself and the optimiser after it, and the loss before."""
    value, gradient = jax.value_and_grad(loss)(net)
    updates, opt_state = optax.adam(learning_rate).update(gradient, opt_state)
    return jax.tree.map(jnp.add, net, updates), opt_state, value


def mean_where(values: Float[Array, " n"], counted: Bool[Array, " n"]) -> Float[Array, ""]:
    """Mean of the counted values, 0 where there are none."""
    return jnp.sum(jnp.where(counted, values, 0.0)) / jnp.maximum(jnp.sum(counted), 1)


@runtime_checkable
class FitData(Protocol):
    """What networks learn from: all rows, and those held out."""

    def step(
        self, net: Mlp, opt_state: PyTree, rows: Int[Array, " B"], fit: FitConfig
    ) -> tuple[Mlp, PyTree, Float[Array, ""]]:
        """One gradient step on these rows: the network and optimiser after it, and the loss."""
        ...

    def holdout_error(self, net: Mlp) -> Float[Array, ""]:
        """The error on the held-out rows, by which a network is stopped."""
        ...


class FitState(eqx.Module):
    """A network within a fit, as it is now and as it was at its best."""

    net: Mlp
    opt_state: PyTree
    best: tuple[Mlp, PyTree]
    best_error: Float[Array, "*members"]
    reference: Float[Array, "*members"]
    waited: Int[Array, "*members"]
    epochs: Int[Array, "*members"]
    train_loss: Float[Array, "*members"]
    key: PRNGKeyArray


def _start(net: Mlp, opt_state: PyTree, error: Float[Array, ""], *, key: PRNGKeyArray) -> FitState:
    zero = jnp.zeros((), jnp.int32)
    return FitState(
        net=net,
        opt_state=opt_state,
        best=(net, opt_state),
        best_error=error,
        reference=error,
        waited=zero,
        epochs=zero,
        train_loss=jnp.zeros(()),
        key=key,
    )


def _keep_best(state: FitState, error: Float[Array, ""]) -> FitState:
    """Keep the best weights so far; count the epochs since the last gain of 1 %."""
    # Two thresholds: any gain is kept, but only gains of 1 % buy more epochs.
    better, gained = error < state.best_error, error < 0.99 * state.reference
    best = jax.tree.map(
        lambda new, old: jnp.where(better, new, old), (state.net, state.opt_state), state.best
    )
    return eqx.tree_at(
        lambda p: (p.best, p.best_error, p.reference, p.waited, p.epochs),
        state,
        (
            best,
            jnp.where(better, error, state.best_error),
            jnp.where(gained, error, state.reference),
            jnp.where(gained, 0, state.waited + 1),
            state.epochs + 1,
        ),
    )


def begin(members: Mlp, opt_state: PyTree, data: FitData, *, key: PRNGKeyArray) -> FitState:
    """Every network before its first epoch, with an order of the rows of its own."""

    def start(net: Mlp, opt_state: PyTree, key: PRNGKeyArray) -> FitState:
        return _start(net, opt_state, data.holdout_error(net), key=key)

    count = members.layers[0].bias.shape[0]
    return for_each_member(start)(members, opt_state, jax.random.split(key, count))


def unfinished(
    state: FitState, fit: FitConfig, *, max_epochs: Int[Array, ""] | int
) -> Bool[Array, "*members"]:
    """Whether a network still gains on held-out rows and has epochs left."""
    return (state.epochs < max_epochs) & (state.waited < fit.patience)


def fit_members(
    begun: FitState,
    archive: Archive,
    data: FitData,
    fit: FitConfig,
    *,
    max_epochs: Int[Array, ""] | int,
) -> FitState:
    """Train every network from where it stands, until it no longer gains on held-out rows.

    A network stops after `fit.patience` epochs without a gain of 1 % and keeps the weights that
    did best, the old ones if none did better. A fit may be made in parts, each with what the one
    before returned and a larger `max_epochs`. The number of rows decides nothing but the lengths of
    loops: one compiled program serves an archive of any size.
    """
    if archive.capacity > MOST_ROWS:
        raise ValueError(f"an archive of {archive.capacity} rows; allowed: at most {MOST_ROWS}")
    held = is_held_out(archive)
    # A traced number, not a shape: the archive grows, and nothing compiles again.
    steps = jnp.ceil((archive.size - jnp.sum(held)) / fit.batch_size).astype(jnp.int32)
    order = Order((archive.insertion() >= 0) & ~held)

    def epoch(state: FitState) -> FitState:
        key, key_walk = jax.random.split(state.key)
        walk = order.walk(key=key_walk)

        def batch(i: Int[Array, ""], carry: tuple) -> tuple:
            net, opt_state, total = carry
            rows = walk(i * fit.batch_size + jnp.arange(fit.batch_size))
            net, opt_state, value = data.step(net, opt_state, rows, fit)
            return net, opt_state, total + value

        start = state.net, state.opt_state, jnp.zeros(())
        net, opt_state, total = jax.lax.fori_loop(0, steps, batch, start)
        taught = eqx.tree_at(
            lambda p: (p.net, p.opt_state, p.train_loss, p.key),
            state,
            (net, opt_state, total / steps, key),
        )
        return _keep_best(taught, data.holdout_error(net))

    def train(state: FitState) -> FitState:
        return jax.lax.while_loop(partial(unfinished, fit=fit, max_epochs=max_epochs), epoch, state)

    return for_each_member(train)(begun)
