"""The standard units of data, and networks moved from one set of units to another."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cmbpo.networks import Linear, Normaliser

STD_FLOOR = 1e-4


def statistics(
    x: Float[Array, "rows n"], counted: Bool[Array, " rows"], *, floor: float = STD_FLOOR
) -> Normaliser:
    """Mean and standard deviation, at least `floor`, of the counted rows."""
    weight = (counted / jnp.maximum(jnp.sum(counted), 1))[:, None]
    mean = jnp.sum(weight * x, axis=0)
    variance = jnp.sum(weight * (x - mean[None]) ** 2, axis=0)
    # What never moved would else be divided by zero, and by next to nothing when it first moves.
    return Normaliser(mean, jnp.maximum(jnp.sqrt(variance), floor))


def with_more(
    old: Normaliser,
    before: Float[Array, ""],
    x: Float[Array, "rows n"],
    counted: Bool[Array, " rows"],
) -> Normaliser:
    """Mean and deviation of `before` rows that have those of `old` and of the counted rows.

    With k counted rows of mean m' and deviation s', and w = k/(before + k):
    m ← m + w (m' − m) and s² ← (1 − w) s² + w s'² + w (1 − w)(m' − m)².
    """
    new, k = statistics(x, counted), jnp.sum(counted)
    w, step = k / (before + k), new.mean - old.mean
    variance = (1.0 - w) * old.std**2 + w * new.std**2 + w * (1.0 - w) * step**2
    return Normaliser(old.mean + w * step, jnp.sqrt(variance))


def ratio(
    new: Float[Array, " n"], old: Float[Array, " n"], *, most: float = math.inf
) -> Float[Array, " n"]:
    """How much a scale grows; at most `most`-fold and at least its inverse."""
    return jnp.clip(new / old, 1.0 / most, most)


def with_weights(
    layer: Linear, weight: Float[Array, "*E n_out n_in"], bias: Float[Array, "*E n_out"]
) -> Linear:
    """The same layer, of one or of every network, with other weights."""
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (weight, bias))


def for_new_inputs(
    first: Linear, old: Normaliser, new: Normaliser, *, most: float = math.inf
) -> Linear:
    """The first layer of every network for inputs in `new` units, with the outputs it had.

    A scale grows at most `most`-fold where weights on what was constant so far mean nothing yet and
    must not blow up.
    """
    shift = (new.mean - old.mean) / old.std
    scale = ratio(new.std, old.std, most=most)
    return with_weights(first, first.weight * scale[None, None], first.bias + first.weight @ shift)


def for_new_outputs(
    last: Linear, old: Normaliser, new: Normaliser, *, most: float = math.inf
) -> Linear:
    """The last layer of every network whose output, undone by `new`, is what it was by `old`."""
    scale = ratio(old.std, new.std, most=most)
    shift = (old.mean - new.mean) / new.std
    return with_weights(
        last, last.weight * scale[None, :, None], last.bias * scale[None] + shift[None]
    )
