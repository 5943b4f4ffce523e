"""Learned costs and ends against held-out truth: calibrated, measured, and doubted in words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cmbpo.data.archive import Archive
from cmbpo.data.data_split import holdout_rows
from cmbpo.model.ensemble import Ensemble, moved, predict
from cmbpo.model.learned_cost import Calibration, CostModel, expected, uncalibrated

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


def unknown(cost_model: CostModel) -> Quality:
    """Before the first fit."""
    nothing = jnp.zeros_like(cost_model.output.mean)
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


class _HeldOut(eqx.Module):
    """Held-out rows with imagined next states: what the cost model says of them, and the truth."""

    value: Float[Array, "E held out"]
    truth: Float[Array, "held out"]
    counted: Bool[Array, " held"]

    def __init__(
        self,
        cost_model: CostModel,
        ensemble: Ensemble,
        archive: Archive,
    ):
        """Each network judges the next states that it predicts."""
        rows, self.counted = holdout_rows(archive)
        obs, act = archive.obs[rows], archive.act[rows]
        delta = predict(ensemble, obs, act).mean[..., : obs.shape[-1]]
        next_obs = jax.vmap(lambda d: moved(ensemble, obs, d))(delta)
        self.value = uncalibrated(cost_model, obs, act, next_obs)
        self.truth = cost_model.truth(archive)[rows]


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
        # Newton's full step overshoots where classes are all but separable.
        step = step / jnp.maximum(1.0, jnp.linalg.norm(step))
        return Calibration(now.slope - step[0], now.shift - step[1])

    return jax.lax.fori_loop(0, 30, newton, Calibration(jnp.ones(()), jnp.zeros(())))


def _regress(held_out: _HeldOut, counted: Bool[Array, " held"]) -> Calibration:
    """The calibration of every network and column on the counted rows."""
    each_column = jax.vmap(lambda v, y: logistic_regression(v, y, counted), in_axes=1)
    return jax.vmap(lambda v: each_column(v, held_out.truth))(held_out.value)


def calibrate_probabilities(
    cost_model: CostModel, ensemble: Ensemble, archive: Archive
) -> tuple[CostModel, Quality]:
    """CostModel whose probabilities are right on held-out rows, and what they are worth there.

    The probabilities of networks trained with class weights are too extreme, and far too small on
    the whole where a class is rare. Calibrated on imagined next states, they also allow for the
    errors of the dynamics. Each half of the rows is measured with the calibration by the other, the
    judgement being the mean over all networks.
    """
    held_out = _HeldOut(cost_model, ensemble, archive)
    # Calibrated on one half and measured on the other: otherwise it would praise itself.
    half = jnp.arange(held_out.counted.shape[0]) % 2 == 0

    def calibrated(counted: Bool[Array, " held"]) -> CostModel:
        return eqx.tree_at(lambda h: h.calibration, cost_model, _regress(held_out, counted))

    by_other = jnp.where(
        half[None, :, None],
        expected(calibrated(held_out.counted & ~half), held_out.value),
        expected(calibrated(held_out.counted & half), held_out.value),
    )
    filled = jnp.arange(archive.capacity) < archive.size
    examples = jnp.sum((cost_model.truth(archive) > 0.0) & filled[:, None], axis=0)
    quality = jax.vmap(_measure, in_axes=(1, 1, None, 0))(
        by_other.mean(axis=0), held_out.truth, held_out.counted, examples.astype(jnp.float32)
    )
    return calibrated(held_out.counted), quality


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


def parts(cost_model: CostModel, quality: Quality) -> tuple[Quality | None, Quality | None]:
    """The quality of what is learned of the costs, and of the end; None where a task knows it."""
    costs = jax.tree.map(lambda x: x[: cost_model.n_cost], quality) if cost_model.n_cost else None
    end = jax.tree.map(lambda x: x[-1], quality) if cost_model.ends else None
    return costs, end


def doubts(
    cost_model: CostModel, quality: Quality, cost_names: tuple[str, ...], *, steps: int
) -> list[str]:
    """In words, what is too rare among `steps` real steps to be learned.

    A task that never ends is none of it, but a cost that was never seen is.
    """
    said = []
    costs, end = parts(cost_model, quality)
    examples = () if costs is None else np.asarray(costs.examples)
    for name, seen in zip(cost_names, examples, strict=False):
        if seen < FEWEST_EXAMPLES:
            said.append(
                f"warning: the cost {name!r} was seen in {seen:.0f} of {steps:,} real steps, too"
                f" rarely to be learned (fewer than {FEWEST_EXAMPLES}): imagined steps will"
                " underrate it until more is seen"
            )
    ends = 0.0 if end is None else float(end.examples)
    if 0 < ends < FEWEST_EXAMPLES:
        said.append(
            f"warning: {ends:.0f} of {steps:,} real steps ended an episode, too few to learn when"
            f" episodes end (fewer than {FEWEST_EXAMPLES}): imagined ones will end too seldom"
        )
    return said
