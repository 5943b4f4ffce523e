"""D_KL^E, how much the networks disagree, and the limit d_H calibrated from h₀."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cmbpo.data.archive import Archive
from cmbpo.data.data_split import holdout_rows
from cmbpo.model.ensemble import Ensemble, Prediction, predict


def disagreement(prediction: Prediction) -> Float[Array, "*batch"]:
    """Mean KL divergence over all ordered pairs of networks, per dimension (section IV).

        D_KL^E = 1/(M(M−1)) Σₘ Σₙ KL(Pₘ ‖ Pₙ)

    For normal distributions the logarithms cancel in the sum. With vₘ = σₘ²/σ₁², δₘ = μₘ − mean μ:

        Σₘ Σₙ KL(Pₘ ‖ Pₙ) = ½ [Σₘ vₘ · Σₙ 1/vₙ − M²] + ½ M Σₙ (mean δ² + δₙ²)/σₙ²

    Paper: sum over dimensions. Here their mean, so that it does not grow with their number.
    """
    M = prediction.mean.shape[0]
    # Differences from the first network are exact for equal networks, where nothing may remain.
    delta = prediction.mean - prediction.mean[:1]
    delta = delta - delta.mean(axis=0, keepdims=True)
    # vₘ = 1 + a and 1/vₘ = 1 + b, so that a + b = −ab: no logarithms, and nothing cancels.
    rise = prediction.variance - prediction.variance[:1]
    a, b = rise / prediction.variance[:1], -rise / prediction.variance
    spread = jnp.sum(a, axis=0) * jnp.sum(b, axis=0) - M * jnp.sum(a * b, axis=0)
    square = jnp.mean(delta**2, axis=0, keepdims=True) + delta**2
    shift = M * jnp.sum(square / prediction.variance, axis=0)
    return jnp.mean(0.5 * (spread + shift), axis=-1) / (M * (M - 1))


def robust_mean(
    values: Float[Array, "*batch"], counted: Bool[Array, "*batch"], *, quantile: float = 0.95
) -> Float[Array, ""]:
    """Mean of the counted values, each at most their `quantile`: a few outliers cannot rule it."""
    known = jnp.where(counted, values, jnp.nan)
    # States far from all data disagree a thousandfold: a few of them would be the whole mean.
    highest = jnp.nanquantile(known, quantile)
    return jnp.nanmean(jnp.minimum(known, highest))


class Limits(eqx.Module):
    """What disagreement is allowed: the reference D̄₀, and d_H for its sum along a trajectory."""

    reference: Float[Array, ""]
    accumulated: Float[Array, ""]


def limits_from(reference: Float[Array, ""], *, first_horizon: int) -> Limits:
    """d_H = h₀·D̄₀, from D̄₀ along imagined trajectories of h₀ steps."""
    return Limits(reference, first_horizon * reference)


def rank_correlation(
    x: Float[Array, " n"], y: Float[Array, " n"], counted: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Spearman's ρ of the counted pairs: the correlation of their ranks."""

    def centred_rank(values: Float[Array, " n"]) -> Float[Array, " n"]:
        order = jnp.argsort(jnp.where(counted, values, jnp.inf))
        # Rows that do not count are sorted to the end and get rank 0 after centring.
        rank = jnp.zeros_like(values).at[order].set(jnp.arange(values.shape[0], dtype=values.dtype))
        return jnp.where(counted, rank - 0.5 * (jnp.sum(counted) - 1), 0.0)

    a, b = centred_rank(x), centred_rank(y)
    return jnp.sum(a * b) / jnp.maximum(jnp.sqrt(jnp.sum(a**2) * jnp.sum(b**2)), 1e-12)


def reliability(ensemble: Ensemble, archive: Archive) -> Float[Array, ""]:
    """How well disagreement ranks true errors: Spearman's ρ of the two on held-out rows.

    The error is the square, in standard units, of what the networks' mean misses.
    """
    rows, counted = holdout_rows(archive)
    obs = archive.obs[rows]
    prediction = predict(ensemble, obs, archive.act[rows])
    truth = jnp.concatenate([archive.next_obs[rows] - obs, archive.reward[rows][:, None]], axis=-1)
    error = (prediction.mean.mean(axis=0) - truth) / ensemble.target.std[None]
    return rank_correlation(disagreement(prediction), jnp.mean(error**2, axis=-1), counted)
