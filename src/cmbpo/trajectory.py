"""The records that flow: steps of trajectories, and the samples that an update learns from."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Steps(eqx.Module):
    """Steps of trajectories side by side, real or imagined: time first, then the copies.

    `next_obs` is the state that the step led to, never one after a reset. `last` marks the final
    row of each trajectory, however it ended; `terminated` only those that ended in a terminal
    state. Rows that are not `valid` are padding, and their trajectory ends before them.
    """

    obs: Float[Array, "*batch obs"]
    act: Float[Array, "*batch act"]
    next_obs: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch cost"]
    terminated: Bool[Array, "*batch"]
    last: Bool[Array, "*batch"]
    valid: Bool[Array, "*batch"]


class Samples(eqx.Module):
    """What a policy update and the critics learn from. Rows that are not `valid` have no weight."""

    obs: Float[Array, "*batch obs"]
    act: Float[Array, "*batch act"]
    advantage: Float[Array, "*batch"]
    cost_advantage: Float[Array, "*batch cost"]
    target: Float[Array, "*batch"]
    cost_target: Float[Array, "*batch cost"]
    valid: Bool[Array, "*batch"]


def join(parts: Sequence[Samples], size: int) -> Samples:
    """The valid rows of all parts, in order, in exactly `size` rows; the rest is not valid."""

    def rows(samples: Samples) -> Samples:
        axes = samples.valid.ndim
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[axes:]), samples)

    every = jax.tree.map(lambda *x: jnp.concatenate(x), *map(rows, parts))
    index = true_rows(every.valid, size)
    picked = jax.tree.map(lambda x: x.at[index].get(mode="fill", fill_value=0), every)
    return eqx.tree_at(lambda s: s.valid, picked, index < every.valid.size)


def true_rows(flags: Bool[Array, " rows"], size: int) -> Int[Array, " size"]:
    """Numbers of the first `size` rows that are true, then the number of rows."""
    # A fixed number of results without sorting: the k-th true row is where the count reaches k.
    return jnp.searchsorted(jnp.cumsum(flags), jnp.arange(1, size + 1))
