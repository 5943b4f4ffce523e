"""Backtracking: the longest share of a step that is acceptable."""

from collections.abc import Callable
from typing import NamedTuple

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


class _Searching(NamedTuple):
    """Where the search is: candidates tried, the next scale, and what the last one predicts."""

    tried: Int[Array, ""]
    scale: Float[Array, ""]
    accepted: Bool[Array, ""]
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

    def searching(now: _Searching) -> Bool[Array, ""]:
        return ~now.accepted & (now.tried < backtracks)

    def shorten(now: _Searching) -> _Searching:
        predicted = predict(now.scale)
        accepted = acceptable(predicted)
        scale = jnp.where(accepted, now.scale, backtrack * now.scale)
        return _Searching(now.tried + 1, scale, accepted, predicted)

    start = _Searching(jnp.int32(0), jnp.ones(()), jnp.array(False), nothing)
    tried, scale, accepted, predicted = jax.lax.while_loop(searching, shorten, start)
    return LineSearch(
        scale=jnp.where(accepted, scale, 0.0),
        accepted=accepted,
        backtracks=jnp.where(accepted, tried - 1, tried),
        predicted=jax.tree.map(lambda x, y: jnp.where(accepted, x, y), predicted, nothing),
    )
