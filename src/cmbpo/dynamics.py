"""The ensemble p(s', r | s, a): its loss, its fits, hold-out and elites."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt

from cmbpo.archive import Archive
from cmbpo.networks import Linear, Mlp, Normaliser, identity_normaliser

VarianceLoss = Literal["regularised", "paper"]

VARIANCE_FLOOR = 1e-3
STD_FLOOR = 1e-4

# Steps around a list by a prime that does not divide its length visit every entry once.
STRIDES = (101, 151, 211, 251, 307, 353, 401, 457, 503, 557, 601, 653, 701, 757, 809, 857, 907, 997)


class Prediction(eqx.Module):
    """What each network expects of (Δs, r); the networks lie along the first axis."""

    mean: Float[Array, "E *batch target"]
    variance: Float[Array, "E *batch target"]


class Ensemble(eqx.Module):
    """Networks (s, a) ↦ μ, σ² of (Δs, r), in standard units inside.

    `elites` are the networks that did best on held-out data; `fits` counts the fits so far.
    """

    members: Mlp
    input: Normaliser
    target: Normaliser
    elites: Int[Array, " elites"]
    fits: Int[Array, ""]
    variance_loss: VarianceLoss = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)

    def __init__(
        self,
        n_obs: int,
        n_act: int,
        *,
        hidden: tuple[int, ...],
        members: int,
        elites: int,
        variance_loss: VarianceLoss = "regularised",
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        """Untrained networks, independent of each other."""
        widths = (n_obs + n_act, *hidden, 2 * (n_obs + 1))

        def member(k: PRNGKeyArray) -> Mlp:
            return Mlp(widths, activation=jax.nn.silu, key=k)

        self.members = jax.vmap(member)(jax.random.split(key, members))
        self.input = identity_normaliser(n_obs + n_act)
        self.target = identity_normaliser(n_obs + 1)
        self.elites = jnp.arange(elites)
        self.fits = jnp.zeros((), jnp.int32)
        self.variance_loss = variance_loss
        self.layer_norm = layer_norm


class FitReport(eqx.Module):
    """How a fit went, for each network; errors are mean squares in standard units."""

    holdout_error: Float[Array, " E"]
    train_loss: Float[Array, " E"]
    epochs: Int[Array, " E"]
    rows: Int[Array, ""]


def for_each_member(f: Callable) -> Callable:
    """`f` of one network, for all: side by side, but on a CPU, which one fills, one by one."""
    if jax.default_backend() == "cpu":
        return lambda *args: jax.lax.map(lambda one: f(*one), args)
    return jax.vmap(f)


def _inputs(obs: Float[Array, "*batch obs"], act: Float[Array, "*batch act"]) -> Array:
    """(s, a), with the action that the task will act on: it clips to [−1, 1]."""
    return jnp.concatenate([obs, jnp.clip(act, -1.0, 1.0)], axis=-1)


def _outputs(
    net: Mlp, x: Float[Array, "B n_in"], *, layer_norm: bool
) -> tuple[Float[Array, "B target"], Float[Array, "B target"]]:
    """Mean and raw variance in standard units: products of whole batches, whose layout is fast."""
    *hidden, last = net.layers
    for layer in hidden:
        x = x @ layer.weight.T + layer.bias[None]
        if layer_norm:
            x = jax.nn.standardize(x, axis=-1)
        x = net.activation(x)
    mean, raw = jnp.split(x @ last.weight.T + last.bias[None], 2, axis=-1)
    return mean, raw


def _variance(raw: Float[Array, "*batch target"], kind: VarianceLoss) -> Array:
    if kind == "regularised":
        return jnp.exp(jnp.clip(raw, -10.0, 10.0))
    return jax.nn.softplus(raw) + VARIANCE_FLOOR


def predict(
    ensemble: Ensemble, obs: Float[Array, "*batch obs"], act: Float[Array, "*batch act"]
) -> Prediction:
    """What every network expects of (Δs, r), in the units of the task."""
    inputs = _inputs(obs, act)
    x = jax.vmap(ensemble.input)(inputs.reshape(-1, inputs.shape[-1]))

    def member(net: Mlp) -> tuple[Array, Array]:
        mean, raw = _outputs(net, x, layer_norm=ensemble.layer_norm)
        variance = _variance(raw, ensemble.variance_loss) * ensemble.target.std[None] ** 2
        return jax.vmap(ensemble.target.undo)(mean), variance

    mean, variance = for_each_member(member)(ensemble.members)
    shape = (mean.shape[0], *inputs.shape[:-1], mean.shape[-1])
    return Prediction(mean.reshape(shape), variance.reshape(shape))


def loss(
    net: Mlp,
    x: Float[Array, "B n_in"],
    y: Float[Array, "B target"],
    *,
    variance_loss: VarianceLoss,
    layer_norm: bool = False,
    weight_decay: float = 0.0,
) -> Float[Array, ""]:
    """Mean loss plus variance loss (eq. 9), and a small penalty on the weights.

        paper:        ‖μ − y‖² + ‖σ² − SE‖²,  SE = (μ − y)² without gradient
        regularised:  MSE + 0.05·(MSE/VL)·VL + 0.05·(log σ²)²,  VL = (σ² − SE)²

    The second is the authors' code; its ratio has no gradient. All are means over rows and
    dimensions, in standard units.
    """
    mean, raw = _outputs(net, x, layer_norm=layer_norm)
    squared_error = (mean - y) ** 2
    variance = _variance(raw, variance_loss)
    mse = jnp.mean(squared_error)
    variance_error = jnp.mean((variance - jax.lax.stop_gradient(squared_error)) ** 2)
    penalty = weight_decay * _weight_penalty(net)
    if variance_loss == "paper":
        return mse + variance_error + penalty
    ratio = jax.lax.stop_gradient(mse / jnp.maximum(variance_error, 1e-12))
    return mse + 0.05 * (ratio * variance_error + jnp.mean(raw**2)) + penalty


def _weight_penalty(net: Mlp) -> Float[Array, ""]:
    """½‖W‖², whole for the last layer, half for those between, a quarter for the first."""
    shares = (0.25, *(0.5 for _ in net.layers[1:-1]), 1.0)
    squares = (jnp.sum(layer.weight**2) for layer in net.layers)
    return 0.5 * sum(
        (share * square for share, square in zip(shares, squares, strict=True)), jnp.zeros(())
    )


def optimiser(variance_loss: VarianceLoss, learning_rate: float) -> optax.GradientTransformation:
    """Adam; with clipped gradients where rare large errors enter by their fourth power."""
    adam = optax.adam(learning_rate)
    if variance_loss == "paper":
        return optax.chain(optax.clip_by_global_norm(1.0), adam)
    return adam


def start_optimiser(ensemble: Ensemble) -> PyTree:
    """The optimiser's state before the first fit, one for each network."""
    members: PyTree = ensemble.members
    return jax.vmap(optimiser(ensemble.variance_loss, 0.0).init)(members)


def _hashed(index: Int[Array, " n"], salt: Int[Array, ""] | int) -> Float[Array, " n"]:
    """A number in [0, 1) that looks random but is always the same for the same row and salt."""
    x: UInt[Array, " n"] = index.astype(jnp.uint32) * jnp.uint32(2654435769)
    x = x ^ (jnp.asarray(salt).astype(jnp.uint32) * jnp.uint32(2246822519))
    for factor in (0x7FEB352D, 0x846CA68B):
        x = (x ^ (x >> 16)) * jnp.uint32(factor)
    x = x ^ (x >> 16)
    return (x >> 8).astype(jnp.float32) * 2.0**-24


def is_held_out(archive: Archive, *, holdout: float, max_holdout: int) -> Bool[Array, " capacity"]:
    """Rows kept for early stopping. A row once trained on is never held out later."""
    index = archive.insertion()
    share = jnp.minimum(holdout, max_holdout / jnp.maximum(archive.size, 1))
    return (index >= 0) & (_hashed(index, 0) < share)


def is_seen(
    archive: Archive, member: Int[Array, ""] | int, *, subsample: float
) -> Bool[Array, " capacity"]:
    """Rows that a network may learn from: a share of its own, the same in every fit."""
    index = archive.insertion()
    return (index >= 0) & (_hashed(index, member + 1) < subsample)


def holdout_rows(
    archive: Archive, *, holdout: float, max_holdout: int
) -> tuple[Int[Array, " rows"], Bool[Array, " rows"]]:
    """Positions of the held-out rows, and which of these entries are in use."""
    size = min(max_holdout, archive.capacity)
    held = is_held_out(archive, holdout=holdout, max_holdout=max_holdout)
    (rows,) = jnp.nonzero(held, size=size, fill_value=0)
    return rows, jnp.arange(size) < jnp.sum(held)


def _statistics(x: Float[Array, "rows n"], counted: Bool[Array, " rows"]) -> Normaliser:
    weight = (counted / jnp.sum(counted))[:, None]
    mean = jnp.sum(weight * x, axis=0)
    variance = jnp.sum(weight * (x - mean[None]) ** 2, axis=0)
    return Normaliser(mean, jnp.maximum(jnp.sqrt(variance), STD_FLOOR))


def _ratio(new: Float[Array, " n"], old: Float[Array, " n"]) -> Float[Array, " n"]:
    """How much a scale grows, at most twofold: weights on what was constant so far mean nothing
    yet and must not blow up."""
    return jnp.clip(new / old, 0.5, 2.0)


def _with(layer: Linear, weight: Float[Array, "E n_out n_in"], bias: Float[Array, "E n_out"]):
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (weight, bias))


def renormalise(ensemble: Ensemble, new_input: Normaliser, new_target: Normaliser) -> Ensemble:
    """The ensemble in other standard units, predicting what it predicted before.

    The first layer takes up the change of the inputs' units, the last that of the targets'. An
    ensemble never fitted keeps its weights.
    """
    first, *between, last = ensemble.members.layers
    shift = (new_input.mean - ensemble.input.mean) / ensemble.input.std
    moved_first = _with(
        first,
        first.weight * _ratio(new_input.std, ensemble.input.std)[None, None],
        first.bias + first.weight @ shift,
    )
    scale = _ratio(ensemble.target.std, new_target.std)
    factor = jnp.concatenate([scale, jnp.ones_like(scale)])
    shift = (ensemble.target.mean - new_target.mean) / new_target.std
    log_variance = 2.0 * jnp.log(scale) * (ensemble.variance_loss == "regularised")
    moved_last = _with(
        last,
        last.weight * factor[None, :, None],
        last.bias * factor[None] + jnp.concatenate([shift, log_variance])[None],
    )
    layers = jax.tree.map(
        lambda new, old: jnp.where(ensemble.fits > 0, new, old),
        (moved_first, *between, moved_last),
        ensemble.members.layers,
    )
    return eqx.tree_at(
        lambda e: (e.members.layers, e.input, e.target), ensemble, (layers, new_input, new_target)
    )


class _Lesson(eqx.Module):
    """What networks learn from, in standard units: all rows, and those held out."""

    x: Float[Array, "rows n_in"]
    y: Float[Array, "rows target"]
    held_x: Float[Array, "held n_in"]
    held_y: Float[Array, "held target"]
    is_held: Bool[Array, " held"]
    layer_norm: bool = eqx.field(static=True)

    def holdout_error(self, net: Mlp) -> Float[Array, ""]:
        """Mean squared error of the held-out rows."""
        mean, _ = _outputs(net, self.held_x, layer_norm=self.layer_norm)
        error = jnp.mean((mean - self.held_y) ** 2, axis=-1)
        return jnp.sum(jnp.where(self.is_held, error, 0.0)) / jnp.maximum(jnp.sum(self.is_held), 1)


class _Pupil(eqx.Module):
    """A network within a fit, as it is now and as it was at its best."""

    net: Mlp
    opt_state: PyTree
    best: tuple[Mlp, PyTree]
    best_error: Float[Array, ""]
    reference: Float[Array, ""]
    waited: Int[Array, ""]
    epochs: Int[Array, ""]
    train_loss: Float[Array, ""]
    key: PRNGKeyArray


def _enrol(net: Mlp, opt_state: PyTree, lesson: _Lesson, *, key: PRNGKeyArray) -> _Pupil:
    error, zero = lesson.holdout_error(net), jnp.zeros((), jnp.int32)
    return _Pupil(
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


def _examine(pupil: _Pupil, lesson: _Lesson) -> _Pupil:
    """Keep the best weights so far; count the epochs since the last gain of 1 %."""
    error = lesson.holdout_error(pupil.net)
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


class _Order(eqx.Module):
    """The rows that a network learns from, the first `count` of `rows`, and ways to pass them."""

    rows: Int[Array, " capacity"]
    count: Int[Array, ""]

    def __init__(self, own: Bool[Array, " capacity"]):
        """Collect the rows where `own` holds."""
        (self.rows,) = jnp.nonzero(own, size=own.shape[0], fill_value=0)
        self.count = jnp.maximum(jnp.sum(own), 1)

    def walk(self, *, key: PRNGKeyArray) -> Callable[[Int[Array, " B"]], Int[Array, " B"]]:
        """An order for one epoch without sorting: equal strides around the list.

        Any stretch of it is spread evenly over all rows, so that batches are alike.
        """
        key_stride, key_offset = jax.random.split(key)
        strides = jnp.array(STRIDES)
        usable = (self.count % strides != 0).astype(jnp.float32)
        stride = jax.random.choice(key_stride, strides, p=usable / jnp.sum(usable))
        offset = jax.random.randint(key_offset, (), 0, self.count)
        return lambda i: self.rows[(offset + stride * (i % self.count)) % self.count]


def gradient_step(
    net: Mlp,
    opt_state: PyTree,
    x: Float[Array, "B n_in"],
    y: Float[Array, "B target"],
    *,
    variance_loss: VarianceLoss,
    layer_norm: bool,
    learning_rate: float,
    weight_decay: float,
) -> tuple[Mlp, PyTree, Float[Array, ""]]:
    """One step of Adam for one network."""
    value, gradient = jax.value_and_grad(loss)(
        net,
        x,
        y,
        variance_loss=variance_loss,
        layer_norm=layer_norm,
        weight_decay=weight_decay,
    )
    updates, opt_state = optimiser(variance_loss, learning_rate).update(gradient, opt_state)
    return jax.tree.map(jnp.add, net, updates), opt_state, value


def _lesson(
    ensemble: Ensemble, archive: Archive, *, holdout: float, max_holdout: int
) -> tuple[Ensemble, _Lesson]:
    """The archive in its own standard units, and the ensemble moved to them."""
    x = _inputs(archive.obs, archive.act)
    y = jnp.concatenate([archive.next_obs - archive.obs, archive.reward[:, None]], axis=-1)
    filled = jnp.arange(archive.capacity) < archive.size
    ensemble = renormalise(ensemble, _statistics(x, filled), _statistics(y, filled))
    x, y = jax.vmap(ensemble.input)(x), jax.vmap(ensemble.target)(y)
    held, is_held = holdout_rows(archive, holdout=holdout, max_holdout=max_holdout)
    return ensemble, _Lesson(x, y, x[held], y[held], is_held, ensemble.layer_norm)


def fit(
    ensemble: Ensemble,
    opt_state: PyTree,
    archive: Archive,
    *,
    max_epochs: Int[Array, ""] | int,
    learning_rate: float,
    batch_size: int,
    weight_decay: float,
    holdout: float,
    max_holdout: int,
    subsample: float,
    patience: int,
    key: PRNGKeyArray,
) -> tuple[Ensemble, PyTree, FitReport]:
    """Train every network on its own rows, until it no longer gains on held-out ones.

    A network stops after `patience` epochs without a gain of 1 % and keeps the weights that did
    best, the old ones if none did better. The number of rows decides nothing but the lengths of
    loops: one compiled program serves an archive of any size.
    """
    most = 2**31 // max(STRIDES)
    if archive.capacity > most:
        raise ValueError(f"an archive of {archive.capacity} rows; allowed: at most {most}")
    ensemble, lesson = _lesson(ensemble, archive, holdout=holdout, max_holdout=max_holdout)
    held = is_held_out(archive, holdout=holdout, max_holdout=max_holdout)
    learnable = subsample * (archive.size - jnp.sum(held))
    steps = jnp.ceil(learnable / batch_size).astype(jnp.int32)
    step = partial(
        gradient_step,
        variance_loss=ensemble.variance_loss,
        layer_norm=ensemble.layer_norm,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
    )

    def train(net: Mlp, opt_state: PyTree, member: Int[Array, ""], key: PRNGKeyArray) -> _Pupil:
        order = _Order(is_seen(archive, member, subsample=subsample) & ~held)

        def epoch(pupil: _Pupil) -> _Pupil:
            key, key_walk = jax.random.split(pupil.key)
            walk = order.walk(key=key_walk)

            def batch(i: Int[Array, ""], carry: tuple) -> tuple:
                net, opt_state, total = carry
                rows = walk(i * batch_size + jnp.arange(batch_size))
                net, opt_state, value = step(net, opt_state, lesson.x[rows], lesson.y[rows])
                return net, opt_state, total + value

            start = pupil.net, pupil.opt_state, jnp.zeros(())
            net, opt_state, total = jax.lax.fori_loop(0, steps, batch, start)
            taught = eqx.tree_at(
                lambda p: (p.net, p.opt_state, p.train_loss, p.key),
                pupil,
                (net, opt_state, total / steps, key),
            )
            return _examine(taught, lesson)

        def unfinished(pupil: _Pupil) -> Bool[Array, ""]:
            return (pupil.epochs < max_epochs) & (pupil.waited < patience)

        return jax.lax.while_loop(unfinished, epoch, _enrol(net, opt_state, lesson, key=key))

    members = ensemble.members.layers[0].bias.shape[0]
    pupils = for_each_member(train)(
        ensemble.members, opt_state, jnp.arange(members), jax.random.split(key, members)
    )
    best_members, best_opt_state = pupils.best
    elites = jnp.argsort(pupils.best_error)[: ensemble.elites.shape[0]]
    ensemble = eqx.tree_at(
        lambda e: (e.members, e.elites, e.fits), ensemble, (best_members, elites, ensemble.fits + 1)
    )
    report = FitReport(pupils.best_error, pupils.train_loss, pupils.epochs, archive.size)
    return ensemble, best_opt_state, report
