"""The ensemble p(s', r | s, a): its loss, its fits, hold-out and elites."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cmbpo import early_stopping
from cmbpo.archive import Archive
from cmbpo.early_stopping import Course, for_each_member
from cmbpo.holdout import holdout_rows
from cmbpo.networks import Mlp, Normaliser, identity_normaliser
from cmbpo.units import ratio, statistics, take_up_input, with_weights

VarianceLoss = Literal["regularised", "paper"]

VARIANCE_FLOOR = 1e-3
FARTHEST = 8.0
"""Standard deviations of the data beyond which no imagined state lies."""


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


def _inputs(obs: Float[Array, "*batch obs"], act: Float[Array, "*batch act"]) -> Array:
    """(s, a), with the action that the task will act on: it clips to [−1, 1]."""
    return jnp.concatenate([obs, jnp.clip(act, -1.0, 1.0)], axis=-1)


def forward(
    net: Mlp, x: Float[Array, "B n_in"], *, layer_norm: bool = False
) -> Float[Array, "B n_out"]:
    """Outputs for a batch: products of all its rows at once, whose layout is fast."""
    *hidden, last = net.layers
    for layer in hidden:
        x = x @ layer.weight.T + layer.bias[None]
        if layer_norm:
            x = jax.nn.standardize(x, axis=-1)
        x = net.activation(x)
    return x @ last.weight.T + last.bias[None]


def _outputs(
    net: Mlp, x: Float[Array, "B n_in"], *, layer_norm: bool
) -> tuple[Float[Array, "B target"], Float[Array, "B target"]]:
    """Mean and raw variance in standard units."""
    mean, raw = jnp.split(forward(net, x, layer_norm=layer_norm), 2, axis=-1)
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


def moved(
    ensemble: Ensemble, obs: Float[Array, "B obs"], delta: Float[Array, "B obs"]
) -> Float[Array, "B obs"]:
    """s + Δs, but never farther from the data than `FARTHEST` of its standard deviations."""
    data, n_obs = ensemble.input, obs.shape[-1]
    lowest = (data.mean - FARTHEST * data.std)[:n_obs]
    highest = (data.mean + FARTHEST * data.std)[:n_obs]
    return jnp.clip(obs + delta, lowest[None], highest[None])


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
    penalty = weight_decay * weight_penalty(net)
    if variance_loss == "paper":
        return mse + variance_error + penalty
    ratio = jax.lax.stop_gradient(mse / jnp.maximum(variance_error, 1e-12))
    return mse + 0.05 * (ratio * variance_error + jnp.mean(raw**2)) + penalty


def weight_penalty(net: Mlp) -> Float[Array, ""]:
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


def renormalise(ensemble: Ensemble, new_input: Normaliser, new_target: Normaliser) -> Ensemble:
    """The ensemble in other standard units, predicting what it predicted before.

    The first layer takes up the change of the inputs' units, the last that of the targets'. An
    ensemble never fitted keeps its weights.
    """
    first, *between, last = ensemble.members.layers
    moved_first = take_up_input(first, ensemble.input, new_input)
    scale = ratio(ensemble.target.std, new_target.std)
    factor = jnp.concatenate([scale, jnp.ones_like(scale)])
    shift = (ensemble.target.mean - new_target.mean) / new_target.std
    log_variance = 2.0 * jnp.log(scale) * (ensemble.variance_loss == "regularised")
    moved_last = with_weights(
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
    ensemble = renormalise(ensemble, statistics(x, filled), statistics(y, filled))
    x, y = jax.vmap(ensemble.input)(x), jax.vmap(ensemble.target)(y)
    held, is_held = holdout_rows(archive, holdout=holdout, max_holdout=max_holdout)
    return ensemble, _Lesson(x, y, x[held], y[held], is_held, ensemble.layer_norm)


def fit(
    ensemble: Ensemble,
    opt_state: PyTree,
    archive: Archive,
    course: Course,
    *,
    max_epochs: Int[Array, ""] | int,
    key: PRNGKeyArray,
) -> tuple[Ensemble, PyTree, FitReport]:
    """Train every network on its own rows; the elites are those with the least hold-out error."""
    ensemble, lesson = _lesson(
        ensemble, archive, holdout=course.holdout, max_holdout=course.max_holdout
    )

    def step(
        net: Mlp, opt_state: PyTree, rows: Int[Array, " B"]
    ) -> tuple[Mlp, PyTree, Float[Array, ""]]:
        return gradient_step(
            net,
            opt_state,
            lesson.x[rows],
            lesson.y[rows],
            variance_loss=ensemble.variance_loss,
            layer_norm=ensemble.layer_norm,
            learning_rate=course.learning_rate,
            weight_decay=course.weight_decay,
        )

    pupils = early_stopping.fit(
        ensemble.members,
        opt_state,
        archive,
        step,
        lesson.holdout_error,
        course,
        max_epochs=max_epochs,
        key=key,
    )
    best_members, best_opt_state = pupils.best
    elites = jnp.argsort(pupils.best_error)[: ensemble.elites.shape[0]]
    ensemble = eqx.tree_at(
        lambda e: (e.members, e.elites, e.fits), ensemble, (best_members, elites, ensemble.fits + 1)
    )
    report = FitReport(pupils.best_error, pupils.train_loss, pupils.epochs, archive.size)
    return ensemble, best_opt_state, report
