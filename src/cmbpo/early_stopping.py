"""A network learns from its own rows until it no longer gains on held-out ones."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cmbpo.archive import Archive
from cmbpo.holdout import MOST_ROWS, Order, is_held_out, is_seen
from cmbpo.networks import Mlp

Step = Callable[[Mlp, PyTree, Int[Array, " B"]], tuple[Mlp, PyTree, Float[Array, ""]]]
"""One gradient step on the rows given: the network and optimiser after it, and the loss."""


def for_each_member(f: Callable) -> Callable:
    """`f` of one network, for all: side by side, but on a CPU, which one fills, one by one."""
    if jax.default_backend() == "cpu":
        return lambda *args: jax.lax.map(lambda one: f(*one), args)
    return jax.vmap(f)


@dataclass(frozen=True, kw_only=True)
class Course:
    """The numbers of a fit."""

    learning_rate: float
    """Adam's step size."""
    batch_size: int
    """Rows of one gradient step."""
    weight_decay: float
    """Factor on the penalty on the weights."""
    holdout: float
    """Share of the rows that is held out."""
    max_holdout: int
    """Most rows that are held out."""
    subsample: float
    """Share of the other rows that each network learns from."""
    patience: int
    """Epochs without a gain after which a network stops."""


class Pupil(eqx.Module):
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


def _enrol(net: Mlp, opt_state: PyTree, error: Float[Array, ""], *, key: PRNGKeyArray) -> Pupil:
    zero = jnp.zeros((), jnp.int32)
    return Pupil(
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


def _examine(pupil: Pupil, error: Float[Array, ""]) -> Pupil:
    """Keep the best weights so far; count the epochs since the last gain of 1 %."""
    better, gained = error < pupil.best_error, error < 0.99 * pupil.reference
    best = jax.tree.map(
        lambda new, old: jnp.where(better, new, old), (pupil.net, pupil.opt_state), pupil.best
    )
    return eqx.tree_at(
        lambda p: (p.best, p.best_error, p.reference, p.waited, p.epochs),
        pupil,
        (
            best,
            jnp.where(better, error, pupil.best_error),
            jnp.where(gained, error, pupil.reference),
            jnp.where(gained, 0, pupil.waited + 1),
            pupil.epochs + 1,
        ),
    )


def fit(
    members: Mlp,
    opt_state: PyTree,
    archive: Archive,
    step: Step,
    holdout_error: Callable[[Mlp], Float[Array, ""]],
    course: Course,
    *,
    max_epochs: Int[Array, ""] | int,
    key: PRNGKeyArray,
) -> Pupil:
    """Train every network on its own rows, until it no longer gains on held-out ones.

    A network stops after `course.patience` epochs without a gain of 1 % and keeps the weights that
    did best, the old ones if none did better. The number of rows decides nothing but the lengths of
    loops: one compiled program serves an archive of any size.
    """
    if archive.capacity > MOST_ROWS:
        raise ValueError(f"an archive of {archive.capacity} rows; allowed: at most {MOST_ROWS}")
    held = is_held_out(archive, holdout=course.holdout, max_holdout=course.max_holdout)
    learnable = course.subsample * (archive.size - jnp.sum(held))
    steps = jnp.ceil(learnable / course.batch_size).astype(jnp.int32)

    def train(net: Mlp, opt_state: PyTree, member: Int[Array, ""], key: PRNGKeyArray) -> Pupil:
        order = Order(is_seen(archive, member, subsample=course.subsample) & ~held)

        def epoch(pupil: Pupil) -> Pupil:
            key, key_walk = jax.random.split(pupil.key)
            walk = order.walk(key=key_walk)

            def batch(i: Int[Array, ""], carry: tuple) -> tuple:
                net, opt_state, total = carry
                rows = walk(i * course.batch_size + jnp.arange(course.batch_size))
                net, opt_state, value = step(net, opt_state, rows)
                return net, opt_state, total + value

            start = pupil.net, pupil.opt_state, jnp.zeros(())
            net, opt_state, total = jax.lax.fori_loop(0, steps, batch, start)
            taught = eqx.tree_at(
                lambda p: (p.net, p.opt_state, p.train_loss, p.key),
                pupil,
                (net, opt_state, total / steps, key),
            )
            return _examine(taught, holdout_error(net))

        def unfinished(pupil: Pupil) -> Bool[Array, ""]:
            return (pupil.epochs < max_epochs) & (pupil.waited < course.patience)

        start = _enrol(net, opt_state, holdout_error(net), key=key)
        return jax.lax.while_loop(unfinished, epoch, start)

    count = members.layers[0].bias.shape[0]
    return for_each_member(train)(
        members, opt_state, jnp.arange(count), jax.random.split(key, count)
    )
