"""The learned world that imagined steps are taken in."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cmbpo.model.disagreement import disagreement
from cmbpo.model.ensemble import Ensemble, moved, predict
from cmbpo.model.learned_cost import CostModel, judge
from cmbpo.networks import Policy


@runtime_checkable
class KnownTask(Protocol):
    """What is known of a task without its simulator."""

    def costs(self, obs: Array, act: Array, next_obs: Array) -> Array:
        """Costs of steps, one column for each constraint."""
        ...

    def terminated(self, obs: Array, act: Array, next_obs: Array) -> Array:
        """Whether steps lead to terminal states."""
        ...


@dataclass(frozen=True)
class NothingKnown:
    """A task whose cost and end are both learned: programs for one such serve all others."""

    def costs(self, obs: Array, act: Array, next_obs: Array) -> Array:
        """Not known."""
        raise NotImplementedError

    def terminated(self, obs: Array, act: Array, next_obs: Array) -> Array:
        """Not known."""
        raise NotImplementedError


class Moves(eqx.Module):
    """One imagined step of trajectories side by side."""

    act: Float[Array, "*batch act"]
    next_obs: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch cost"]
    terminated: Bool[Array, "*batch"]
    disagreement: Float[Array, "*batch"]


class World(eqx.Module):
    """The learned world: the ensemble's dynamics and reward, cost and end from task or cost_model.

    `cost_model` judge what the task does not know; None where it knows both.
    """

    ensemble: Ensemble
    cost_model: CostModel | None
    task: KnownTask = eqx.field(static=True)
    cost_over_members: bool = eqx.field(static=True)
    end_over_members: bool = eqx.field(static=True, default=False)

    def step(self, policy: Policy, obs: Float[Array, "lanes obs"], *, key: PRNGKeyArray) -> Moves:
        """An action of the policy, and the mean prediction of a random elite for each.

        The cost is the mean over all networks' next states, or that of the chosen one. The
        trajectory ends where any network, with the noise it expects, leads to a terminal state, and
        then costs what these states do; or where the chosen one's mean does. A learned end is drawn
        with its probability, the largest or that of the chosen one: a threshold would bias how
        often trajectories end, and never end any where no state is likely to be terminal.
        """
        key_act, key_elite = jax.random.split(key)
        lanes, n_obs = obs.shape
        act = jax.vmap(policy)(obs).sample(key=key_act)
        prediction = predict(self.ensemble, obs, act)
        # A new elite for every lane and step, as in the authors' code: no trajectory can exploit
        # one network's errors for long. Its mean, not a draw: σ² is for disagreement only.
        elite = jax.random.choice(key_elite, self.ensemble.elites, (lanes,))
        chosen = prediction.mean[elite, jnp.arange(lanes)]

        def led_to(delta: Float[Array, "lanes obs"]) -> Float[Array, "lanes obs"]:
            return moved(self.ensemble, obs, delta)

        next_obs = led_to(chosen[:, :n_obs])
        cost = terminated = None
        if self.cost_model is not None:
            everyones = jax.vmap(led_to)(prediction.mean[..., :n_obs])
            judged = judge(self.cost_model, obs, act, everyones)
            own = judged[elite, jnp.arange(lanes)]
            if self.cost_model.n_cost:
                value = judged.mean(axis=0) if self.cost_over_members else own
                cost = value[:, : self.cost_model.n_cost]
            if self.cost_model.ends:
                probable = judged.max(axis=0) if self.end_over_members else own
                terminated = (
                    jax.random.uniform(jax.random.fold_in(key, 2), (lanes,)) < probable[:, -1]
                )
        if cost is None and self.cost_over_members:
            cost = jax.vmap(lambda mean: self.task.costs(obs, act, led_to(mean[:, :n_obs])))(
                prediction.mean
            ).mean(axis=0)
        elif cost is None:
            cost = self.task.costs(obs, act, next_obs)
        if terminated is None and self.end_over_members:
            # A mean state never falls: the fall is in the noise around it.
            noise = jax.random.normal(jax.random.fold_in(key, 3), prediction.mean.shape)
            expected = prediction.mean + jnp.sqrt(prediction.variance) * noise
            everyones = jax.vmap(led_to)(expected[..., :n_obs])
            ends = jax.vmap(lambda state: self.task.terminated(obs, act, state))(everyones)
            terminated = ends.any(axis=0)
            if self.cost_model is None or not self.cost_model.n_cost:
                there = jax.vmap(lambda state: self.task.costs(obs, act, state))(everyones)
                at_end = jnp.sum(jnp.where(ends[..., None], there, 0.0), axis=0)
                at_end = at_end / jnp.maximum(ends.sum(axis=0), 1)[:, None]
                cost = jnp.where(terminated[:, None], at_end, cost)
        elif terminated is None:
            terminated = self.task.terminated(obs, act, next_obs)
        return Moves(
            act=act,
            next_obs=next_obs,
            reward=chosen[:, n_obs],
            cost=cost,
            terminated=terminated,
            disagreement=disagreement(prediction),
        )
