"""The standard units of data, and networks moved from one set of units to another."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cmbpo.networks import Linear, Normaliser

STD_FLOOR = 1e-4


def statistics(x: Float[Array, "rows n"], counted: Bool[Array, " rows"]) -> Normaliser:
    """Mean and standard deviation of the counted rows."""
    weight = (counted / jnp.sum(counted))[:, None]
    mean = jnp.sum(weight * x, axis=0)
    variance = jnp.sum(weight * (x - mean[None]) ** 2, axis=0)
    return Normaliser(mean, jnp.maximum(jnp.sqrt(variance), STD_FLOOR))


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


def ratio(new: Float[Array, " n"], old: Float[Array, " n"]) -> Float[Array, " n"]:
    """How much a scale grows, at most twofold: weights on what was constant so far mean nothing
    yet and must not blow up."""
    return jnp.clip(new / old, 0.5, 2.0)


def with_weights(
    layer: Linear, weight: Float[Array, "E n_out n_in"], bias: Float[Array, "E n_out"]
) -> Linear:
    """The same layer of every network with other weights."""
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (weight, bias))


def take_up_input(first: Linear, old: Normaliser, new: Normaliser) -> Linear:
    """The first layer of every network for inputs in `new` units, with the outputs it had."""
    shift = (new.mean - old.mean) / old.std
    return with_weights(
        first,
        first.weight * ratio(new.std, old.std)[None, None],
        first.bias + first.weight @ shift,
    )
