"""What a task does not tell of its steps, learned: what they cost, and whether they end it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cmbpo import early_stopping
from cmbpo.archive import Archive
from cmbpo.dynamics import forward, weight_penalty
from cmbpo.early_stopping import Course, for_each_member
from cmbpo.holdout import holdout_rows
from cmbpo.networks import Mlp, Normaliser, identity_normaliser
from cmbpo.units import ratio, statistics, take_up_input, with_weights

LARGEST_WEIGHT = 100.0
"""Most that a row of the rarer class counts, in rows of the other."""


class Calibration(eqx.Module):
    """ℓ ↦ slope · ℓ + shift, of log-odds."""

    slope: Float[Array, "*columns"]
    shift: Float[Array, "*columns"]


class Heads(eqx.Module):
    """A network (s, a, s') ↦ costs and end for each of the ensemble, in standard units inside.

    A column for each of `n_cost` costs, none where the task knows them, and one more where `ends`
    is to be learned. `logistic` columns, those that were only ever 0 or 1, are log-odds; others are
    the cost itself, and stay between `lowest` and `highest`, the range seen. `calibration` corrects
    the log-odds of each network, see `head_quality`.

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
    heads: Heads,
    obs: Float[Array, "B obs"],
    act: Float[Array, "B act"],
    next_obs: Float[Array, "E B obs"],
) -> Float[Array, "E B out"]:
    """Log-odds or cost in each column, by each network of the next states that are its own."""

    def member(net: Mlp, next_obs: Float[Array, "B obs"]) -> Float[Array, "B out"]:
        x = jax.vmap(heads.input)(_inputs(obs, act, next_obs))
        return jax.vmap(heads.output.undo)(forward(net, x))

    return for_each_member(member)(heads.members, next_obs)


def expected(heads: Heads, value: Float[Array, "E B out"]) -> Float[Array, "E B out"]:
    """The expected value of each column: a calibrated probability, or a cost within its range."""
    calibration = heads.calibration
    log_odds = calibration.slope[:, None] * value + calibration.shift[:, None]
    cost = jnp.clip(value, heads.lowest[None, None], heads.highest[None, None])
    return jnp.where(heads.logistic[None, None], jax.nn.sigmoid(log_odds), cost)


def judge(
    heads: Heads,
    obs: Float[Array, "B obs"],
    act: Float[Array, "B act"],
    next_obs: Float[Array, "E B obs"],
) -> Float[Array, "E B out"]:
    """Expected value of each column, by each network of the next states that are its own."""
    return expected(heads, uncalibrated(heads, obs, act, next_obs))


class _Lesson(eqx.Module):
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

    def holdout_error(self, net: Mlp) -> Float[Array, ""]:
        """Mean error of the held-out rows."""
        error = self.errors(net, self.held)
        return jnp.sum(jnp.where(self.is_held, error, 0.0)) / jnp.maximum(jnp.sum(self.is_held), 1)


def _lesson(
    heads: Heads, archive: Archive, *, holdout: float, max_holdout: int
) -> tuple[Heads, _Lesson]:
    """The archive in its own units, and the heads moved to them.

    With w rows of the common class for each of the rare one, the rare one counts w-fold: both have
    the same weight in the loss. Its minimum is then at log-odds z = ℓ + log w, where ℓ are the true
    ones, so that −log w is the mean of the units that lead back from z to ℓ.
    """
    x, y = _inputs(archive.obs, archive.act, archive.next_obs), heads.truth(archive)
    filled = jnp.arange(archive.capacity) < archive.size
    seen = statistics(y, filled)
    logistic = jnp.all((y == 0.0) | (y == 1.0) | ~filled[:, None], axis=0)
    rate = jnp.clip(seen.mean, 1e-6, 1.0 - 1e-6)
    w = jnp.clip((1.0 - rate) / rate, 1.0 / LARGEST_WEIGHT, LARGEST_WEIGHT)
    output = Normaliser(
        jnp.where(logistic, -jnp.log(w), seen.mean), jnp.where(logistic, 1.0, seen.std)
    )
    heads = _renormalise(heads, statistics(x, filled), output, logistic)
    heads = eqx.tree_at(
        lambda h: (h.lowest, h.highest),
        heads,
        (
            jnp.min(jnp.where(filled[:, None], y, jnp.inf), axis=0),
            jnp.max(jnp.where(filled[:, None], y, -jnp.inf), axis=0),
        ),
    )
    held, is_held = holdout_rows(archive, holdout=holdout, max_holdout=max_holdout)
    negative = 1.0 / (1.0 - rate + rate * w)
    y = jnp.where(logistic[None], y, jax.vmap(output)(y))
    return heads, _Lesson(
        jax.vmap(heads.input)(x), y, held, is_held, logistic, negative * w, negative
    )


def _renormalise(
    heads: Heads, new_input: Normaliser, new_output: Normaliser, logistic: Bool[Array, " out"]
) -> Heads:
    """The heads in other units, saying what they said before; heads never fitted stay as they are.

    A column that turns out not to be 0 or 1 after all starts anew.
    """
    first, *between, last = heads.members.layers
    old, kept = heads.output, heads.logistic == logistic
    scale = jnp.where(kept, ratio(old.std, new_output.std), 0.0)
    shift = jnp.where(kept, (old.mean - new_output.mean) / new_output.std, 0.0)
    moved_last = with_weights(
        last, last.weight * scale[None, :, None], last.bias * scale[None] + shift[None]
    )
    layers = jax.tree.map(
        lambda new, old: jnp.where(heads.fits > 0, new, old),
        (take_up_input(first, heads.input, new_input), *between, moved_last),
        heads.members.layers,
    )
    return eqx.tree_at(
        lambda h: (h.members.layers, h.input, h.output, h.logistic),
        heads,
        (layers, new_input, new_output, logistic),
    )


def start_optimiser(heads: Heads) -> PyTree:
    """Adam's state before the first fit, one for each network."""
    members: PyTree = heads.members
    return jax.vmap(optax.adam(0.0).init)(members)


def fit(
    heads: Heads,
    opt_state: PyTree,
    archive: Archive,
    course: Course,
    *,
    max_epochs: Int[Array, ""] | int,
    key: PRNGKeyArray,
) -> tuple[Heads, PyTree]:
    """Train every network on the rows that the ensemble's learns from, with the same hold-out.

    They learn from real next states and judge imagined ones, as a known function would.
    """
    heads, lesson = _lesson(heads, archive, holdout=course.holdout, max_holdout=course.max_holdout)

    def step(
        net: Mlp, opt_state: PyTree, rows: Int[Array, " B"]
    ) -> tuple[Mlp, PyTree, Float[Array, ""]]:
        def loss(net: Mlp) -> Float[Array, ""]:
            return jnp.mean(lesson.errors(net, rows)) + course.weight_decay * weight_penalty(net)

        value, gradient = jax.value_and_grad(loss)(net)
        updates, opt_state = optax.adam(course.learning_rate).update(gradient, opt_state)
        return jax.tree.map(jnp.add, net, updates), opt_state, value

    pupils = early_stopping.fit(
        heads.members,
        opt_state,
        archive,
        step,
        lesson.holdout_error,
        course,
        max_epochs=max_epochs,
        key=key,
    )
    members, opt_state = pupils.best
    heads = eqx.tree_at(lambda h: (h.members, h.fits), heads, (members, heads.fits + 1))
    return heads, opt_state
