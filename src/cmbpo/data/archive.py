"""Every real transition, by the policy that made it: what the ensemble learns from."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cmbpo.data.ring import Ring, places, put, worth_keeping
from cmbpo.networks import Gaussian
from cmbpo.trajectory import Steps


class Archive(Ring):
    """A ring of transitions.

    `behaviour` is the distribution each action was drawn from, `epoch` the index of that policy,
    which never falls from one row to the next.
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
    kept = worth_keeping(steps)
    place = places(archive, kept)

    def written(old: Array, new: Array) -> Array:
        return put(old, new, place)

    return Archive(
        obs=written(archive.obs, steps.obs),
        act=written(archive.act, steps.act),
        next_obs=written(archive.next_obs, steps.next_obs),
        reward=written(archive.reward, steps.reward),
        cost=written(archive.cost, steps.cost),
        terminated=written(archive.terminated, steps.terminated),
        behaviour=jax.tree.map(written, archive.behaviour, behaviour),
        epoch=written(archive.epoch, jnp.full(kept.size, epoch)),
        added=archive.added + jnp.sum(kept),
    )
