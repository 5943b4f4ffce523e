"""The replay buffer: real transitions of all policies so far, to be drawn from at random."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cmbpo.data.ring import Ring, places, put, worth_keeping
from cmbpo.trajectory import Steps


class Transitions(eqx.Module):
    """Steps without their order. `terminated` marks terminal states, not episodes out of time."""

    obs: Float[Array, "*batch obs"]
    act: Float[Array, "*batch act"]
    next_obs: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch cost"]
    terminated: Bool[Array, "*batch"]


class Replay(Ring):
    """A ring of transitions."""

    rows: Transitions
    added: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Most rows it can hold."""
        return self.rows.reward.shape[0]

    def sample(self, n: int, *, key: PRNGKeyArray) -> Transitions:
        """`n` transitions, each drawn uniformly from all that there are."""
        index = jax.random.randint(key, (n,), 0, jnp.maximum(self.size, 1))
        return jax.tree.map(lambda x: x[index], self.rows)


def empty(capacity: int, n_obs: int, n_act: int, n_cost: int) -> Replay:
    """A buffer without rows."""
    rows = Transitions(
        obs=jnp.zeros((capacity, n_obs)),
        act=jnp.zeros((capacity, n_act)),
        next_obs=jnp.zeros((capacity, n_obs)),
        reward=jnp.zeros(capacity),
        cost=jnp.zeros((capacity, n_cost)),
        terminated=jnp.zeros(capacity, bool),
    )
    return Replay(rows=rows, added=jnp.zeros((), jnp.int32))


def add(replay: Replay, steps: Steps) -> Replay:
    """The buffer with the rows of `steps` that are worth keeping behind its newest, in order."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[steps.valid.ndim :]), steps)
    kept = worth_keeping(flat)
    place = places(replay, kept)
    new = Transitions(
        flat.obs, flat.act, flat.next_obs, flat.reward, flat.cost, terminated=flat.terminated
    )
    rows = jax.tree.map(lambda old, x: put(old, x, place), replay.rows, new)
    return Replay(rows=rows, added=replay.added + jnp.sum(kept))


class Units(eqx.Module):
    """Root mean squares: of all rewards, and of those costs that are not zero."""

    reward: Float[Array, ""]
    cost: Float[Array, " cost"]


def units(replay: Replay) -> Units:
    """What rewards and costs are counted in; 1 where there were none yet."""
    there = jnp.arange(replay.capacity) < replay.size
    return Units(
        reward=_root_mean_square(replay.rows.reward[:, None], there[:, None])[0],
        cost=_root_mean_square(replay.rows.cost, there[:, None] & (replay.rows.cost != 0.0)),
    )


def _root_mean_square(
    x: Float[Array, "rows n"], counted: Bool[Array, "rows _"]
) -> Float[Array, " n"]:
    count = jnp.sum(counted, axis=0)
    mean = jnp.sum(jnp.where(counted, x, 0.0) ** 2, axis=0) / jnp.maximum(count, 1)
    return jnp.where(mean > 0.0, jnp.sqrt(mean), 1.0)
