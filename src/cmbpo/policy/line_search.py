"""Backtracking: the longest share of a step that is acceptable."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cmbpo.policy.surrogate import PredictedChange


class LineSearch(eqx.Module):
    """What a search found. If nothing was acceptable, `scale` is zero and `accepted` False."""

    scale: Float[Array, ""]
    accepted: Bool[Array, ""]
    backtracks: Int[Array, ""]
    predicted: PredictedChange


def line_search(
    predict: Callable[[Float[Array, ""]], PredictedChange],
    acceptable: Callable[[PredictedChange], Bool[Array, ""]],
    *,
    backtrack: float,
    backtracks: int,
) -> LineSearch:
    """The largest scale of 1, ζ, ζ², … whose prediction is acceptable, among `backtracks`."""
    shapes = jax.eval_shape(predict, jnp.zeros(()))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def searching(carry):
        i, _, accepted, _ = carry
        return ~accepted & (i < backtracks)

    def shorten(carry):
        i, scale, _, _ = carry
        predicted = predict(scale)
        accepted = acceptable(predicted)
        return i + 1, jnp.where(accepted, scale, backtrack * scale), accepted, predicted

    start = (jnp.int32(0), jnp.ones(()), jnp.array(False), nothing)
    i, scale, accepted, predicted = jax.lax.while_loop(searching, shorten, start)
    return LineSearch(
        scale=jnp.where(accepted, scale, 0.0),
        accepted=accepted,
        backtracks=jnp.where(accepted, i - 1, i),
        predicted=jax.tree.map(lambda x, y: jnp.where(accepted, x, y), predicted, nothing),
    )
