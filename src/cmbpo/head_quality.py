"""Learned costs and ends against held-out truth: calibrated, measured, and doubted in words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cmbpo.archive import Archive
from cmbpo.dynamics import Ensemble, moved, predict
from cmbpo.heads import Calibration, Heads, expected, uncalibrated
from cmbpo.holdout import holdout_rows

COLUMNS = {
    "Error": "error",
    "AUC": "auc",
    "Rate": "rate",
    "TrueRate": "true_rate",
    "Recall": "recall",
    "Examples": "examples",
}
FEWEST_EXAMPLES = 50
"""Fewer rows with a cost, or an end, teach nothing that could be relied on."""


class Quality(eqx.Module):
    """How good each column is on held-out rows, its next states imagined.

    `error` is the root of the mean squared error, `auc` the chance that a row with a value above 0
    is judged higher than one without (not a number where there is no such pair), `rate` the mean
    judgement and `true_rate` what it should be, `recall` the share of the true values that rows
    above 0 are judged to have. `examples` counts such rows in the whole archive.
    """

    error: Float[Array, "*out"]
    auc: Float[Array, "*out"]
    rate: Float[Array, "*out"]
    true_rate: Float[Array, "*out"]
    recall: Float[Array, "*out"]
    examples: Float[Array, "*out"]


def unknown(heads: Heads) -> Quality:
    """Before the first fit."""
    nothing = jnp.zeros_like(heads.output.mean)
    return Quality(nothing, nothing, nothing, nothing, nothing, nothing)


def area_under_curve(
    value: Float[Array, " n"], positive: Bool[Array, " n"], counted: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Chance that a positive row has a higher value than a negative one; ties count half."""
    positive, negative = positive & counted, ~positive & counted
    others = jnp.sort(jnp.where(negative, value, jnp.inf))
    below = jnp.searchsorted(others, value, side="left")
    up_to = jnp.searchsorted(others, value, side="right")
    wins = jnp.sum(jnp.where(positive, 0.5 * (below + up_to), 0.0))
    return wins / (jnp.sum(positive) * jnp.sum(negative))


class _Exam(eqx.Module):
    """Held-out rows, their next states imagined: what the heads say of them, and the truth."""

    value: Float[Array, "E held out"]
    truth: Float[Array, "held out"]
    counted: Bool[Array, " held"]

    def __init__(
        self,
        heads: Heads,
        ensemble: Ensemble,
        archive: Archive,
        *,
        holdout: float,
        max_holdout: int,
    ):
        """Each network judges the next states that it predicts."""
        rows, self.counted = holdout_rows(archive, holdout=holdout, max_holdout=max_holdout)
        obs, act = archive.obs[rows], archive.act[rows]
        delta = predict(ensemble, obs, act).mean[..., : obs.shape[-1]]
        next_obs = jax.vmap(lambda d: moved(ensemble, obs, d))(delta)
        self.value = uncalibrated(heads, obs, act, next_obs)
        self.truth = heads.truth(archive)[rows]


def logistic_regression(
    log_odds: Float[Array, " n"], y: Float[Array, " n"], counted: Bool[Array, " n"]
) -> Calibration:
    """The slope and shift under which the counted y are most likely (Platt).

    A weak normal prior, slope 1 ± ½ and shift 0 ± 2, decides where there are too few examples.
    """

    def newton(_: Int[Array, ""], now: Calibration) -> Calibration:
        p = jax.nn.sigmoid(now.slope * log_odds + now.shift)
        error = jnp.where(counted, p - y, 0.0)
        weight = jnp.where(counted, p * (1.0 - p), 0.0)
        to_slope = jnp.sum(error * log_odds) + 4.0 * (now.slope - 1.0)
        to_shift = jnp.sum(error) + 0.25 * now.shift
        a, b, d = jnp.sum(weight * log_odds**2) + 4.0, jnp.sum(weight * log_odds), jnp.sum(weight)
        d = d + 0.25
        step = jnp.stack([d * to_slope - b * to_shift, a * to_shift - b * to_slope]) / (
            a * d - b**2
        )
        step = step / jnp.maximum(1.0, jnp.linalg.norm(step))
        return Calibration(now.slope - step[0], now.shift - step[1])

    return jax.lax.fori_loop(0, 30, newton, Calibration(jnp.ones(()), jnp.zeros(())))


def _regress(exam: _Exam, counted: Bool[Array, " held"]) -> Calibration:
    """The calibration of every network and column on the counted rows."""
    each_column = jax.vmap(lambda v, y: logistic_regression(v, y, counted), in_axes=1)
    return jax.vmap(lambda v: each_column(v, exam.truth))(exam.value)


def calibrate(
    heads: Heads, ensemble: Ensemble, archive: Archive, *, holdout: float, max_holdout: int
) -> tuple[Heads, Quality]:
    """Heads whose probabilities are right on held-out rows, and what they are worth there.

    The probabilities of networks trained with class weights are too extreme, and far too small on
    the whole where a class is rare. Calibrated on imagined next states, they also allow for the
    errors of the dynamics. Each half of the rows is measured with the calibration by the other, the
    judgement being the mean over all networks.
    """
    exam = _Exam(heads, ensemble, archive, holdout=holdout, max_holdout=max_holdout)
    half = jnp.arange(exam.counted.shape[0]) % 2 == 0

    def calibrated(counted: Bool[Array, " held"]) -> Heads:
        return eqx.tree_at(lambda h: h.calibration, heads, _regress(exam, counted))

    by_other = jnp.where(
        half[None, :, None],
        expected(calibrated(exam.counted & ~half), exam.value),
        expected(calibrated(exam.counted & half), exam.value),
    )
    filled = jnp.arange(archive.capacity) < archive.size
    examples = jnp.sum((heads.truth(archive) > 0.0) & filled[:, None], axis=0)
    quality = jax.vmap(_measure, in_axes=(1, 1, None, 0))(
        by_other.mean(axis=0), exam.truth, exam.counted, examples.astype(jnp.float32)
    )
    return calibrated(exam.counted), quality


def _measure(
    value: Float[Array, " held"],
    y: Float[Array, " held"],
    counted: Bool[Array, " held"],
    examples: Float[Array, ""],
) -> Quality:
    """The quality of one column."""

    def mean(x: Float[Array, " held"]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(counted, x, 0.0)) / jnp.sum(counted)

    return Quality(
        error=jnp.sqrt(mean((value - y) ** 2)),
        auc=area_under_curve(value, y > 0.0, counted),
        rate=mean(value),
        true_rate=mean(y),
        recall=mean(jnp.where(y > 0.0, value, 0.0)) / mean(jnp.maximum(y, 0.0)),
        examples=examples,
    )


def columns(heads: Heads, quality: Quality) -> dict[str, Array]:
    """The columns of the log that say how good the heads are."""
    found = {}
    for name, field in COLUMNS.items():
        value = getattr(quality, field)
        if heads.n_cost:
            found[f"Model/Cost{name}"] = value[: heads.n_cost]
        if heads.ends:
            found[f"Model/Termination{name}"] = value[-1]
    return found


def doubts(quality: dict[str, Array], cost_names: tuple[str, ...], *, steps: int) -> list[str]:
    """In words, what is too rare among `steps` real steps to be learned, by columns of the log.

    A task that never ends is none of it, but a cost that was never seen is.
    """
    said = []
    costs = np.atleast_1d(quality.get("Model/CostExamples", ()))
    for name, seen in zip(cost_names, costs, strict=False):
        if seen < FEWEST_EXAMPLES:
            said.append(
                f"warning: the cost {name!r} was seen in {seen:.0f} of {steps:,} real steps, too"
                f" rarely to be learned (fewer than {FEWEST_EXAMPLES}): imagined steps will"
                " underrate it until more is seen"
            )
    ends = float(quality.get("Model/TerminationExamples", 0.0))
    if 0 < ends < FEWEST_EXAMPLES:
        said.append(
            f"warning: {ends:.0f} of {steps:,} real steps ended an episode, too few to learn when"
            f" episodes end (fewer than {FEWEST_EXAMPLES}): imagined ones will end too seldom"
        )
    return said
