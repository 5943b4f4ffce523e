"""What a task does not tell of its steps, learned: what they cost, and whether they end it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cmbpo.data.archive import Archive
from cmbpo.data.data_split import holdout_rows
from cmbpo.model.ensemble import MOST_GROWTH, forward, weight_penalty
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
from cmbpo.normalisation import for_new_inputs, for_new_outputs, statistics, with_weights

LARGEST_WEIGHT = 100.0
"""Most that a row of the rarer class counts, in rows of the other."""


class Calibration(eqx.Module):
    """ℓ ↦ slope · ℓ + shift, of log-odds."""

    slope: Float[Array, "*columns"]
    shift: Float[Array, "*columns"]


class CostModel(eqx.Module):
    """A network (s, a, s') ↦ costs and end for each of the ensemble, in standard units inside.

    A column for each of `n_cost` costs, none where the task knows them, and one more where `ends`
    is to be learned. `logistic` columns, those that were only ever 0 or 1, are log-odds; others are
    the cost itself, and stay between `lowest` and `highest`, the range seen. `calibration` corrects
    the log-odds of each network, see `learned_cost_quality`.

    s' is seen in the units of s, not as a difference: a cost is nearly always one of where a step
    leads, and in these units the errors of an imagined step are small against the data.
    """

    members: Mlp
    input: Normaliser
    output: Normaliser
    calibration: Calibration
    logistic: Bool[Array, " out"]
    lowest: Float[Array, " out"]
    highest: Float[Array, " out"]
    fits: Int[Array, ""]
    n_cost: int = eqx.field(static=True)
    ends: bool = eqx.field(static=True)

    def __init__(
        self,
        n_obs: int,
        n_act: int,
        *,
        n_cost: int,
        ends: bool,
        hidden: tuple[int, ...],
        members: int,
        key: PRNGKeyArray,
    ):
        """Untrained networks, independent of each other."""
        n_in, n_out = 2 * n_obs + n_act, n_cost + ends

        def member(k: PRNGKeyArray) -> Mlp:
            return Mlp((n_in, *hidden, n_out), activation=jax.nn.silu, key=k)

        self.members = jax.vmap(member)(jax.random.split(key, members))
        self.input = identity_normaliser(n_in)
        self.output = identity_normaliser(n_out)
        self.calibration = Calibration(jnp.ones((members, n_out)), jnp.zeros((members, n_out)))
        self.logistic = jnp.ones(n_out, bool)
        self.lowest, self.highest = jnp.zeros(n_out), jnp.zeros(n_out)
        self.fits = jnp.zeros((), jnp.int32)
        self.n_cost = n_cost
        self.ends = ends

    def truth(self, archive: Archive) -> Float[Array, "capacity out"]:
        """What the columns should say of the archive's rows."""
        ended = archive.terminated[:, None].astype(archive.cost.dtype)
        return jnp.concatenate([archive.cost[:, : self.n_cost], ended[:, : self.ends]], axis=1)


def _inputs(
    obs: Float[Array, "B obs"], act: Float[Array, "B act"], next_obs: Float[Array, "B obs"]
) -> Float[Array, "B n_in"]:
    """(s, a, s'), with the action that the task will act on: it clips to [−1, 1]."""
    return jnp.concatenate([obs, jnp.clip(act, -1.0, 1.0), next_obs], axis=-1)


def uncalibrated(
    cost_model: CostModel,
    obs: Float[Array, "B obs"],
    act: Float[Array, "B act"],
    next_obs: Float[Array, "E B obs"],
) -> Float[Array, "E B out"]:
    """Log-odds or cost in each column, by each network of the next states that are its own."""

    def member(net: Mlp, next_obs: Float[Array, "B obs"]) -> Float[Array, "B out"]:
        x = jax.vmap(cost_model.input)(_inputs(obs, act, next_obs))
        return jax.vmap(cost_model.output.undo)(forward(net, x))

    return for_each_member(member)(cost_model.members, next_obs)


def expected(cost_model: CostModel, value: Float[Array, "E B out"]) -> Float[Array, "E B out"]:
    """The expected value of each column: a calibrated probability, or a cost within its range."""
    calibration = cost_model.calibration
    log_odds = calibration.slope[:, None] * value + calibration.shift[:, None]
    # Never beyond what was seen: an extrapolated cost would decide the step by itself.
    cost = jnp.clip(value, cost_model.lowest[None, None], cost_model.highest[None, None])
    return jnp.where(cost_model.logistic[None, None], jax.nn.sigmoid(log_odds), cost)


def judge(
    cost_model: CostModel,
    obs: Float[Array, "B obs"],
    act: Float[Array, "B act"],
    next_obs: Float[Array, "E B obs"],
) -> Float[Array, "E B out"]:
    """Expected value of each column, by each network of the next states that are its own."""
    return expected(cost_model, uncalibrated(cost_model, obs, act, next_obs))


class _FitData(eqx.Module):
    """What networks learn from: all rows and those held out, and what each class counts."""

    x: Float[Array, "rows n_in"]
    y: Float[Array, "rows out"]
    held: Int[Array, " held"]
    is_held: Bool[Array, " held"]
    logistic: Bool[Array, " out"]
    positive: Float[Array, " out"]
    negative: Float[Array, " out"]

    def errors(self, net: Mlp, rows: Int[Array, " B"]) -> Float[Array, " B"]:
        """Mean over columns of the weighted logistic loss or the squared error."""
        z, y = forward(net, self.x[rows]), self.y[rows]
        logistic = self.positive[None] * y * jax.nn.softplus(-z) + self.negative[None] * (
            1.0 - y
        ) * jax.nn.softplus(z)
        return jnp.mean(jnp.where(self.logistic[None], logistic, (z - y) ** 2), axis=-1)

    def step(
        self, net: Mlp, opt_state: PyTree, rows: Int[Array, " B"], fit: FitConfig
    ) -> tuple[Mlp, PyTree, Float[Array, ""]]:
        """One step of Adam on these rows."""

        def loss(net: Mlp) -> Float[Array, ""]:
            return jnp.mean(self.errors(net, rows)) + fit.weight_decay * weight_penalty(net)

        return adam_step(loss, net, opt_state, learning_rate=fit.learning_rate)

    def holdout_error(self, net: Mlp) -> Float[Array, ""]:
        """Mean error of the held-out rows."""
        return mean_where(self.errors(net, self.held), self.is_held)


def _fit_data(cost_model: CostModel, archive: Archive) -> tuple[CostModel, _FitData]:
    """The archive in its own units, and the cost model moved to them.

    With w rows of the common class for each of the rare one, the rare one counts w-fold: both have
    the same weight in the loss. Its minimum is then at log-odds z = ℓ + log w, where ℓ are the true
    ones, so that −log w is the mean of the units that lead back from z to ℓ.
    """
    x, y = _inputs(archive.obs, archive.act, archive.next_obs), cost_model.truth(archive)
    filled = jnp.arange(archive.capacity) < archive.size
    seen = statistics(y, filled)
    # What was only ever 0 or 1 is an event: its probability is learned, not its size.
    logistic = jnp.all((y == 0.0) | (y == 1.0) | ~filled[:, None], axis=0)
    rate = jnp.clip(seen.mean, 1e-6, 1.0 - 1e-6)
    # A cost in one step of ten thousand would else be learned as never; a hundredfold is enough.
    w = jnp.clip((1.0 - rate) / rate, 1.0 / LARGEST_WEIGHT, LARGEST_WEIGHT)
    output = Normaliser(
        jnp.where(logistic, -jnp.log(w), seen.mean), jnp.where(logistic, 1.0, seen.std)
    )
    cost_model = _renormalise(cost_model, statistics(x, filled), output, logistic)
    cost_model = eqx.tree_at(
        lambda h: (h.lowest, h.highest),
        cost_model,
        (
            jnp.min(jnp.where(filled[:, None], y, jnp.inf), axis=0),
            jnp.max(jnp.where(filled[:, None], y, -jnp.inf), axis=0),
        ),
    )
    held, is_held = holdout_rows(archive)
    negative = 1.0 / (1.0 - rate + rate * w)
    y = jnp.where(logistic[None], y, jax.vmap(output)(y))
    return cost_model, _FitData(
        jax.vmap(cost_model.input)(x), y, held, is_held, logistic, negative * w, negative
    )


def _renormalise(
    cost_model: CostModel,
    new_input: Normaliser,
    new_output: Normaliser,
    logistic: Bool[Array, " out"],
) -> CostModel:
    """The cost model in other units, saying what it said before; one never fitted stays as it is.

    A column that turns out not to be 0 or 1 after all starts anew.
    """
    first, *between, last = cost_model.members.layers
    kept = cost_model.logistic == logistic
    moved_first = for_new_inputs(first, cost_model.input, new_input, most=MOST_GROWTH)
    moved_last = for_new_outputs(last, cost_model.output, new_output, most=MOST_GROWTH)
    moved_last = with_weights(
        last,
        jnp.where(kept[None, :, None], moved_last.weight, 0.0),
        jnp.where(kept[None], moved_last.bias, 0.0),
    )
    layers = jax.tree.map(
        lambda new, old: jnp.where(cost_model.fits > 0, new, old),
        (moved_first, *between, moved_last),
        cost_model.members.layers,
    )
    return eqx.tree_at(
        lambda h: (h.members.layers, h.input, h.output, h.logistic),
        cost_model,
        (layers, new_input, new_output, logistic),
    )


def begin_cost_model(
    cost_model: CostModel, opt_state: PyTree, archive: Archive, *, key: PRNGKeyArray
) -> FitState:
    """The networks before a fit, moved to the units of the archive."""
    cost_model, data = _fit_data(cost_model, archive)
    return begin(cost_model.members, opt_state, data, key=key)


def fit_cost_model(
    cost_model: CostModel,
    begun: FitState,
    archive: Archive,
    fit: FitConfig,
    *,
    max_epochs: Int[Array, ""] | int,
) -> tuple[CostModel, FitState]:
    """Train every network on the rows that the ensemble's learns from, with the same hold-out.

    They learn from real next states and judge imagined ones, as a known function would. `begun` is
    what `begin_cost_model` returned of the same cost model, or the state after fewer epochs.
    """
    cost_model, data = _fit_data(cost_model, archive)
    fitted = fit_members(begun, archive, data, fit, max_epochs=max_epochs)
    members, _ = fitted.best
    cost_model = eqx.tree_at(
        lambda h: (h.members, h.fits), cost_model, (members, cost_model.fits + 1)
    )
    return cost_model, fitted
