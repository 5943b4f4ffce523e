"""Which rows of the archive a network learns from, which are held out, and in what order."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from cmbpo.data.archive import Archive

# Steps around a list by a prime that does not divide its length visit every entry once.
STRIDES = (101, 151, 211, 251, 307, 353, 401, 457, 503, 557, 601, 653, 701, 757, 809, 857, 907, 997)
MOST_ROWS = 2**31 // (max(STRIDES) + 1)
HOLDOUT = 0.2
"""Share of the rows that is held out for early stopping and the choice of elites."""
MAX_HOLDOUT = 5000
"""Most rows that are held out."""


def _hashed(index: Int[Array, " n"]) -> Float[Array, " n"]:
    """A number in [0, 1) that looks random but is always the same for the same row."""
    x: UInt[Array, " n"] = index.astype(jnp.uint32) * jnp.uint32(2654435769)
    # Two rounds of multiply and shift mix every bit of the index into the upper ones.
    for factor in (0x7FEB352D, 0x846CA68B):
        x = (x ^ (x >> 16)) * jnp.uint32(factor)
    x = x ^ (x >> 16)
    return (x >> 8).astype(jnp.float32) * 2.0**-24


def is_held_out(
    archive: Archive, *, holdout: float = HOLDOUT, max_holdout: int = MAX_HOLDOUT
) -> Bool[Array, " capacity"]:
    """Rows kept for early stopping. A row once trained on is never held out later."""
    index = archive.insertion()
    # The share only falls as the archive grows, so that a row held out may be learned from later,
    # but never the other way round: the hold-out stays unseen.
    share = jnp.minimum(holdout, max_holdout / jnp.maximum(archive.size, 1))
    return (index >= 0) & (_hashed(index) < share)


def holdout_rows(archive: Archive) -> tuple[Int[Array, " rows"], Bool[Array, " rows"]]:
    """Positions of the held-out rows, and which of these entries are in use."""
    size = min(MAX_HOLDOUT, archive.capacity)
    held = is_held_out(archive)
    (rows,) = jnp.nonzero(held, size=size, fill_value=0)
    return rows, jnp.arange(size) < jnp.sum(held)


class Order(eqx.Module):
    """The rows that a network learns from, the first `count` of `rows`, and ways to pass them."""

    rows: Int[Array, " capacity"]
    count: Int[Array, ""]

    def __init__(self, own: Bool[Array, " capacity"]):
        """Collect the rows where `own` holds."""
        (self.rows,) = jnp.nonzero(own, size=own.shape[0], fill_value=0)
        self.count = jnp.maximum(jnp.sum(own), 1)

    def walk(self, *, key: PRNGKeyArray) -> Callable[[Int[Array, " B"]], Int[Array, " B"]]:
        """An order for one epoch without sorting: equal strides around the list.

        Any stretch of it is spread evenly over all rows, so that batches are alike.
        """
        key_stride, key_offset = jax.random.split(key)
        strides = jnp.array(STRIDES)
        usable = (self.count % strides != 0).astype(jnp.float32)
        stride = jax.random.choice(key_stride, strides, p=usable / jnp.sum(usable))
        offset = jax.random.randint(key_offset, (), 0, self.count)
        return lambda i: self.rows[(offset + stride * (i % self.count)) % self.count]
