"""Rings of rows, preallocated: when one is full the oldest rows are overwritten, in place."""

from abc import abstractmethod
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from cmbpo.trajectory import Steps


class Ring(eqx.Module):
    """Arrays of `capacity` rows each, and `added`, which counts the rows of all times."""

    added: eqx.AbstractVar[Int[Array, ""]]

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Most rows it can hold."""

    @property
    def size(self) -> Int[Array, ""]:
        """Rows it holds, the first of the arrays."""
        return jnp.minimum(self.added, self.capacity)

    @property
    def cursor(self) -> Int[Array, ""]:
        """Position of the next row."""
        return self.added % self.capacity


R = TypeVar("R", bound=Ring)


def worth_keeping(steps: Steps) -> Bool[Array, " rows"]:
    """Valid rows, but for steps at which the physics failed, whose next state is no number."""
    # One row that is no number would make every fit one.
    return steps.valid & jnp.isfinite(steps.next_obs).all(axis=-1) & jnp.isfinite(steps.reward)


def places(ring: Ring, kept: Bool[Array, " rows"]) -> Int[Array, " rows"]:
    """Where each kept row goes, in their order; the capacity, which is outside, for the others."""
    if kept.size > ring.capacity:
        raise ValueError(f"{kept.size} rows at once; allowed: at most the capacity {ring.capacity}")
    # A place outside is one that `mode="drop"` ignores: no dynamic shapes.
    return jnp.where(kept, (ring.cursor + jnp.cumsum(kept) - 1) % ring.capacity, ring.capacity)


def put(old: Array, new: Array, place: Int[Array, " rows"]) -> Array:
    """The array with new rows in their places."""
    return old.at[place].set(new.astype(old.dtype), mode="drop")


def next_to_go(ring: R, rows: int) -> R:
    """A small ring of the rows, or free places, that the next `rows` would be written to."""
    position = (ring.cursor + jnp.arange(rows)) % ring.capacity

    def at_position(x: Array) -> Array:
        return x[position] if x.ndim else x

    return jax.tree.map(at_position, ring)


def put_back(ring: R, gone: R) -> R:
    """The ring as it was when `next_to_go` returned `gone`, if no more were added since."""
    position = (gone.added + jnp.arange(gone.capacity)) % ring.capacity

    def restore(now: Array, before: Array) -> Array:
        return now.at[position].set(before) if now.ndim else before

    return jax.tree.map(restore, ring, gone)


def is_written_over(ring: Ring) -> bool:
    """Whether the arrays were given away to a later ring."""
    return any(x.is_deleted() for x in jax.tree.leaves(ring))
