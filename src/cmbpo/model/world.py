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
from cmbpo.model.model_errors import with_errors
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

    `cost_model` judges what the task does not know; None where it knows both. `errors` are what the
    networks missed of real steps, in units of σ (`held_out_errors`); None: next states are means.
    """

    ensemble: Ensemble
    cost_model: CostModel | None
    task: KnownTask = eqx.field(static=True)
    cost_over_members: bool = eqx.field(static=True)
    errors: Float[Array, "E rows obs"] | None = None

    def step(self, policy: Policy, obs: Float[Array, "lanes obs"], *, key: PRNGKeyArray) -> Moves:
        """An action of the policy, and for each what a random elite predicts.

        The next state is its mean, with an error of a real step where there are `errors`; the
        reward is its mean. The cost is the mean over all networks' next states, or that of the
        chosen one, which also says whether the trajectory ends. A learned end is drawn with its
        probability: a threshold would bias how often trajectories end, and never end any where no
        state is likely to be terminal.
        """
        key_act, key_elite, key_end, key_error = jax.random.split(key, 4)
        lanes, n_obs = obs.shape
        act = jax.vmap(policy)(obs).sample(key=key_act)
        prediction = predict(self.ensemble, obs, act)
        # A new elite for every lane and step, as in the authors' code: no trajectory can exploit
        # one network's errors for long.
        elite = jax.random.choice(key_elite, self.ensemble.elites, (lanes,))
        chosen = elite, jnp.arange(lanes)
        delta = prediction.mean[..., :n_obs]
        if self.errors is not None:
            delta = with_errors(prediction, self.errors, key=key_error)
        everyones = jax.vmap(lambda one: moved(self.ensemble, obs, one))(delta)
        next_obs = everyones[chosen]
        cost = terminated = None
        if self.cost_model is not None:
            judged = judge(self.cost_model, obs, act, everyones)
            own = judged[chosen]
            if self.cost_model.n_cost:
                value = judged.mean(axis=0) if self.cost_over_members else own
                cost = value[:, : self.cost_model.n_cost]
            if self.cost_model.ends:
                terminated = jax.random.uniform(key_end, (lanes,)) < own[:, -1]
        if cost is None and self.cost_over_members:
            cost = jax.vmap(lambda state: self.task.costs(obs, act, state))(everyones).mean(axis=0)
        elif cost is None:
            cost = self.task.costs(obs, act, next_obs)
        if terminated is None:
            terminated = self.task.terminated(obs, act, next_obs)
        return Moves(
            act=act,
            next_obs=next_obs,
            reward=prediction.mean[chosen][:, n_obs],
            cost=cost,
            terminated=terminated,
            disagreement=disagreement(prediction),
        )
