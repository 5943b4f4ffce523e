"""Every real transition, by the policy that made it: what the ensemble learns from."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cmbpo.networks import Gaussian
from cmbpo.trajectory import Steps


class Archive(eqx.Module):
    """A ring of transitions, preallocated; when it is full the oldest are overwritten.

    `behaviour` is the distribution each action was drawn from, `epoch` the index of that policy,
    which never falls from one row to the next. `added` counts the rows of all times.
    """

    obs: Float[Array, "capacity obs"]
    act: Float[Array, "capacity act"]
    next_obs: Float[Array, "capacity obs"]
    reward: Float[Array, " capacity"]
    cost: Float[Array, "capacity cost"]
    terminated: Bool[Array, " capacity"]
    behaviour: Gaussian
    epoch: Int[Array, " capacity"]
    added: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Most rows it can hold."""
        return self.reward.shape[0]

    @property
    def size(self) -> Int[Array, ""]:
        """Rows it holds, the first of the arrays."""
        return jnp.minimum(self.added, self.capacity)

    @property
    def cursor(self) -> Int[Array, ""]:
        """Position of the next row."""
        return self.added % self.capacity

    def by_age(self, age: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """Positions of rows counted from the oldest."""
        return (self.added - self.size + age) % self.capacity

    def insertion(self) -> Int[Array, " capacity"]:
        """Number of each row among all that were ever added; negative where there is none yet."""
        behind = (self.cursor - 1 - jnp.arange(self.capacity)) % self.capacity
        return self.added - 1 - behind


def empty(capacity: int, n_obs: int, n_act: int, n_cost: int) -> Archive:
    """An archive without rows."""
    obs, act = jnp.zeros((capacity, n_obs)), jnp.zeros((capacity, n_act))
    return Archive(
        obs=obs,
        act=act,
        next_obs=jnp.zeros_like(obs),
        reward=jnp.zeros(capacity),
        cost=jnp.zeros((capacity, n_cost)),
        terminated=jnp.zeros(capacity, bool),
        behaviour=Gaussian(jnp.zeros_like(act), jnp.zeros_like(act)),
        epoch=jnp.zeros(capacity, jnp.int32),
        added=jnp.zeros((), jnp.int32),
    )


def add(
    archive: Archive, steps: Steps, behaviour: Gaussian, epoch: Int[Array, ""] | int
) -> Archive:
    """The archive with the valid rows of `steps` behind its newest, in their order.

    `steps` and `behaviour` have one axis of rows, at most as many as the archive can hold. A step
    at which the physics failed, whose next state is no number, teaches nothing and is left out.
    """
    rows = steps.valid.shape[0]
    if rows > archive.capacity:
        raise ValueError(f"{rows} rows at once; allowed: at most the capacity {archive.capacity}")
    # One row that is no number would make every fit of the ensemble one.
    kept = steps.valid & jnp.isfinite(steps.next_obs).all(axis=-1) & jnp.isfinite(steps.reward)
    offset = jnp.cumsum(kept) - 1
    # Rows that are not kept get a position outside, which `mode="drop"` ignores: no dynamic shapes.
    position = jnp.where(kept, (archive.cursor + offset) % archive.capacity, archive.capacity)

    def put(old: Array, new: Array) -> Array:
        return old.at[position].set(new.astype(old.dtype), mode="drop")

    return Archive(
        obs=put(archive.obs, steps.obs),
        act=put(archive.act, steps.act),
        next_obs=put(archive.next_obs, steps.next_obs),
        reward=put(archive.reward, steps.reward),
        cost=put(archive.cost, steps.cost),
        terminated=put(archive.terminated, steps.terminated),
        behaviour=jax.tree.map(put, archive.behaviour, behaviour),
        epoch=put(archive.epoch, jnp.full(rows, epoch)),
        added=archive.added + jnp.sum(kept),
    )


def next_to_go(archive: Archive, rows: int) -> Archive:
    """A small archive of the rows, or free places, that the next `rows` would be written to."""
    position = (archive.cursor + jnp.arange(rows)) % archive.capacity

    def at_position(x: Array) -> Array:
        return x[position] if x.ndim else x

    return jax.tree.map(at_position, archive)


def put_back(archive: Archive, gone: Archive) -> Archive:
    """The archive as it was when `next_to_go` returned `gone`, if no more were added since."""
    position = (gone.added + jnp.arange(gone.capacity)) % archive.capacity

    def put(now: Array, before: Array) -> Array:
        return now.at[position].set(before) if now.ndim else before

    return jax.tree.map(put, archive, gone)
