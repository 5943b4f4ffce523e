"""Where imagined trajectories start: in states of past policies like the present one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cmbpo.data.archive import Archive
from cmbpo.networks import Policy


class Starts(eqx.Module):
    """Pr(π_k) of the past policies, newest first, and where their rows lie in the archive."""

    probability: Float[Array, " K"]
    first: Int[Array, " K"]
    count: Int[Array, " K"]

    def effective(self) -> Float[Array, ""]:
        """Effective number of policies: 1/Σ Pr²."""
        return 1.0 / jnp.sum(self.probability**2)

    def draw(
        self, archive: Archive, shape: tuple[int, ...], *, key: PRNGKeyArray
    ) -> Int[Array, "..."]:
        """Positions of start states: a policy by its probability, then any of its rows."""
        key_policy, key_row = jax.random.split(key)
        cumulative = jnp.cumsum(self.probability)
        u = jax.random.uniform(key_policy, shape) * cumulative[-1]
        k = jnp.clip(jnp.searchsorted(cumulative, u, side="right"), 0, self.count.shape[0] - 1)
        within = (jax.random.uniform(key_row, shape) * self.count[k]).astype(jnp.int32)
        return archive.by_age(self.first[k] + jnp.minimum(within, self.count[k] - 1))


def past_policies(
    archive: Archive,
    policy: Policy,
    *,
    temperature: float,
    policies: int = 1024,
    samples: int = 8192,
    key: PRNGKeyArray,
) -> Starts:
    """Boltzmann distribution over past policies (section IV).

        Pr(π_k) ∝ exp(−β · mean KL(π ‖ π_k) over states of π_k)

    The means are over a sample of the archive, evenly spread over it. Policies older than the
    newest `policies` count as one.
    """
    newest = archive.epoch[archive.by_age(archive.size - 1)]
    # A fixed number of policies, so that the shapes do not grow with the run.
    age = jnp.clip(newest - archive.epoch, 0, policies - 1)
    filled = jnp.arange(archive.capacity) < archive.size
    count = jnp.zeros(policies, jnp.int32).at[age].add(filled.astype(jnp.int32))
    first = archive.size - jnp.cumsum(count)

    jitter = jax.random.uniform(key, (samples,))
    # One draw in each of equal stretches: every policy is met in proportion to its rows.
    spread = (jnp.arange(samples) + jitter) * (archive.size / samples)
    rows = archive.by_age(jnp.minimum(spread.astype(jnp.int32), archive.size - 1))
    behaviour = jax.tree.map(lambda x: x[rows], archive.behaviour)
    kl = jax.vmap(policy)(archive.obs[rows]).kl(behaviour)
    seen = jnp.zeros(policies).at[age[rows]].add(1.0)
    mean_kl = jnp.zeros(policies).at[age[rows]].add(kl) / jnp.maximum(seen, 1.0)
    # Rounding may leave a KL a little below zero; nearer than equal no policy is.
    logit = jnp.where((count > 0) & (seen > 0), -temperature * jnp.maximum(mean_kl, 0.0), -jnp.inf)
    return Starts(jax.nn.softmax(logit), first, count)
