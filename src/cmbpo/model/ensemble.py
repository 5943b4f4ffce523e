"""The ensemble p(s', r | s, a): its loss, its fits, hold-out and elites."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cmbpo.data.archive import Archive
from cmbpo.data.data_split import holdout_rows
from cmbpo.model.ensemble_fit import (
    FitConfig,
    FitState,
    adam_step,
    begin,
    fit_members,
    for_each_member,
    mean_where,
)
from cmbpo.networks import Mlp, Normaliser, identity_normaliser
from cmbpo.normalisation import for_new_inputs, for_new_outputs, ratio, statistics

MOST_GROWTH = 2.0
"""Most that a scale may change when the units of the data do: weights on what was constant so far
mean nothing yet and must not blow up."""
FARTHEST = 8.0
"""Standard deviations of the data beyond which no imagined state lies, and no target of a fit."""


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

    def __init__(
        self,
        n_obs: int,
        n_act: int,
        *,
        hidden: tuple[int, ...],
        members: int,
        elites: int,
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


class FitReport(eqx.Module):
    """How a fit went, for each network; errors are mean squares in standard units.

    From its `state` it can go on.
    """

    holdout_error: Float[Array, " E"]
    train_loss: Float[Array, " E"]
    epochs: Int[Array, " E"]
    state: FitState


def _inputs(obs: Float[Array, "*batch obs"], act: Float[Array, "*batch act"]) -> Array:
    """(s, a), with the action that the task will act on: it clips to [−1, 1]."""
    return jnp.concatenate([obs, jnp.clip(act, -1.0, 1.0)], axis=-1)


def forward(net: Mlp, x: Float[Array, "B n_in"]) -> Float[Array, "B n_out"]:
    """Outputs for a batch: products of all its rows at once, whose layout is fast."""
    *hidden, last = net.layers
    for layer in hidden:
        x = net.activation(x @ layer.weight.T + layer.bias[None])
    return x @ last.weight.T + last.bias[None]


def _outputs(
    net: Mlp, x: Float[Array, "B n_in"]
) -> tuple[Float[Array, "B target"], Float[Array, "B target"]]:
    """Mean and raw variance in standard units."""
    mean, raw = jnp.split(forward(net, x), 2, axis=-1)
    return mean, raw


def _variance(raw: Float[Array, "*batch target"]) -> Array:
    """σ² from the network's log σ², bounded so that no exponential overflows."""
    return jnp.exp(jnp.clip(raw, -10.0, 10.0))


def predict(
    ensemble: Ensemble, obs: Float[Array, "*batch obs"], act: Float[Array, "*batch act"]
) -> Prediction:
    """What every network expects of (Δs, r), in the units of the task."""
    inputs = _inputs(obs, act)
    x = jax.vmap(ensemble.input)(inputs.reshape(-1, inputs.shape[-1]))

    def member(net: Mlp) -> tuple[Array, Array]:
        mean, raw = _outputs(net, x)
        variance = _variance(raw) * ensemble.target.std[None] ** 2
        return jax.vmap(ensemble.target.undo)(mean), variance

    mean, variance = for_each_member(member)(ensemble.members)
    shape = (mean.shape[0], *inputs.shape[:-1], mean.shape[-1])
    return Prediction(mean.reshape(shape), variance.reshape(shape))


def moved(
    ensemble: Ensemble, obs: Float[Array, "B obs"], delta: Float[Array, "B obs"]
) -> Float[Array, "B obs"]:
    """s + Δs, but never farther from the data than `FARTHEST` of its standard deviations."""
    # Far from all data networks extrapolate without bound, and one such state spoils the critics.
    data, n_obs = ensemble.input, obs.shape[-1]
    lowest = (data.mean - FARTHEST * data.std)[:n_obs]
    highest = (data.mean + FARTHEST * data.std)[:n_obs]
    return jnp.clip(obs + delta, lowest[None], highest[None])


def loss(
    net: Mlp,
    x: Float[Array, "B n_in"],
    y: Float[Array, "B target"],
    *,
    weight_decay: float = 0.0,
) -> Float[Array, ""]:
    """Mean loss plus variance loss (eq. 10), and a small penalty on the weights.

        MSE + 0.05·(MSE/VL)·VL + 0.05·(log σ²)²,  VL = (σ² − SE)²,  SE = (μ − y)² without gradient

    As in the authors' code; the ratio has no gradient. Paper: MSE + VL, under which the divergence
    between networks explodes (docs/deviations.md). All are means over rows and dimensions, in
    standard units.
    """
    mean, raw = _outputs(net, x)
    squared_error = (mean - y) ** 2
    variance = _variance(raw)
    mse = jnp.mean(squared_error)
    # Without the stop the mean would learn to make errors that are easy to predict.
    variance_error = jnp.mean((variance - jax.lax.stop_gradient(squared_error)) ** 2)
    penalty = weight_decay * weight_penalty(net)
    # Rescaled to the size of the MSE: errors enter VL by their fourth power and would rule the sum.
    ratio = jax.lax.stop_gradient(mse / jnp.maximum(variance_error, 1e-12))
    return mse + 0.05 * (ratio * variance_error + jnp.mean(raw**2)) + penalty


def weight_penalty(net: Mlp) -> Float[Array, ""]:
    """½‖W‖², whole for the last layer, half for those between, a quarter for the first."""
    shares = (0.25, *(0.5 for _ in net.layers[1:-1]), 1.0)
    squares = (jnp.sum(layer.weight**2) for layer in net.layers)
    return 0.5 * sum(
        (share * square for share, square in zip(shares, squares, strict=True)), jnp.zeros(())
    )


def renormalise(ensemble: Ensemble, new_input: Normaliser, new_target: Normaliser) -> Ensemble:
    """The ensemble in other standard units, predicting what it predicted before.

    The first layer takes up the change of the inputs' units, the last that of the targets'. An
    ensemble never fitted keeps its weights.
    """
    first, *between, last = ensemble.members.layers
    moved_first = for_new_inputs(first, ensemble.input, new_input, most=MOST_GROWTH)
    # The last layer speaks of μ and of log σ²; the latter only shifts, by 2 log of the scale.
    growth = 2.0 * jnp.log(ratio(ensemble.target.std, new_target.std, most=MOST_GROWTH))
    moved_last = for_new_outputs(
        last,
        _with_log_variance(ensemble.target, growth),
        _with_log_variance(new_target, jnp.zeros_like(growth)),
        most=MOST_GROWTH,
    )
    layers = jax.tree.map(
        lambda new, old: jnp.where(ensemble.fits > 0, new, old),
        (moved_first, *between, moved_last),
        ensemble.members.layers,
    )
    return eqx.tree_at(
        lambda e: (e.members.layers, e.input, e.target), ensemble, (layers, new_input, new_target)
    )


def _with_log_variance(target: Normaliser, shift: Float[Array, " target"]) -> Normaliser:
    """The units of the targets, and beside them of their log σ²."""
    std = jnp.concatenate([target.std, jnp.ones_like(target.std)])
    return Normaliser(jnp.concatenate([target.mean, shift]), std)


class _FitData(eqx.Module):
    """What networks learn from, in standard units: all rows, and those held out."""

    x: Float[Array, "rows n_in"]
    y: Float[Array, "rows target"]
    held_x: Float[Array, "held n_in"]
    held_y: Float[Array, "held target"]
    is_held: Bool[Array, " held"]

    def holdout_error(self, net: Mlp) -> Float[Array, ""]:
        """Mean squared error of the held-out rows."""
        mean, _ = _outputs(net, self.held_x)
        return mean_where(jnp.mean((mean - self.held_y) ** 2, axis=-1), self.is_held)

    def step(
        self, net: Mlp, opt_state: PyTree, rows: Int[Array, " B"], fit: FitConfig
    ) -> tuple[Mlp, PyTree, Float[Array, ""]]:
        """One step of Adam on these rows."""
        of_rows = partial(loss, x=self.x[rows], y=self.y[rows], weight_decay=fit.weight_decay)
        return adam_step(of_rows, net, opt_state, learning_rate=fit.learning_rate)


def _fit_data(ensemble: Ensemble, archive: Archive) -> tuple[Ensemble, _FitData]:
    """The archive in its own standard units, and the ensemble moved to them."""
    x = _inputs(archive.obs, archive.act)
    y = jnp.concatenate([archive.next_obs - archive.obs, archive.reward[:, None]], axis=-1)
    filled = jnp.arange(archive.capacity) < archive.size
    ensemble = renormalise(ensemble, statistics(x, filled), statistics(y, filled))
    x, y = jax.vmap(ensemble.input)(x), jax.vmap(ensemble.target)(y)
    # One impact in thousands of steps, 60 deviations away, would rule the loss and the hold-out.
    y = jnp.clip(y, -FARTHEST, FARTHEST)
    held, is_held = holdout_rows(archive)
    return ensemble, _FitData(x, y, x[held], y[held], is_held)


def begin_ensemble(
    ensemble: Ensemble, opt_state: PyTree, archive: Archive, *, key: PRNGKeyArray
) -> FitState:
    """The networks before a fit, moved to the units of the archive."""
    ensemble, data = _fit_data(ensemble, archive)
    return begin(ensemble.members, opt_state, data, key=key)


def fit_ensemble(
    ensemble: Ensemble,
    begun: FitState,
    archive: Archive,
    fit: FitConfig,
    *,
    max_epochs: Int[Array, ""] | int,
) -> tuple[Ensemble, FitReport]:
    """Train every network; the elites are those with the least hold-out error.

    `begun` is what `begin_ensemble` returned of the same ensemble, or the state after fewer epochs.
    """
    ensemble, data = _fit_data(ensemble, archive)
    fitted = fit_members(begun, archive, data, fit, max_epochs=max_epochs)
    members, _ = fitted.best
    # Chosen anew after each fit, and by μ's error alone: σ is not fitted to be right.
    elites = jnp.argsort(fitted.best_error)[: ensemble.elites.shape[0]]
    ensemble = eqx.tree_at(
        lambda e: (e.members, e.elites, e.fits), ensemble, (members, elites, ensemble.fits + 1)
    )
    return ensemble, FitReport(fitted.best_error, fitted.train_loss, fitted.epochs, fitted)
