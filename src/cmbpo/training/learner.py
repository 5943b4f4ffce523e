"""All that learns in a run, and the phases of an update as compiled programs."""

from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cmbpo.algorithms.update import Constraint, PolicyStep, algorithm
from cmbpo.model import state as model
from cmbpo.model.state import Model
from cmbpo.networks import Actor, Critic, Normaliser, Policy
from cmbpo.normalisation import with_more
from cmbpo.policy import advantage, cost_estimate
from cmbpo.policy.cost_estimate import RealCost
from cmbpo.policy.critic import critic_optimiser, fit_critic
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.trajectory import Samples, Steps, join

A = TypeVar("A", bound=Actor)


class Learner(eqx.Module):
    """Everything that learns. `model` is None for the model-free algorithms."""

    policy: Policy
    critic: Critic
    critic_opt: PyTree
    cost_critic: Critic
    cost_critic_opt: PyTree
    improvement: PyTree
    real_cost: RealCost
    model: Model | None
    key: PRNGKeyArray


class BatchValues(eqx.Module):
    """What the critics say of a batch: means of its advantages and targets, range of V_c.

    The range is of V_c at this update's real states as it is used, so bounded where it is: a
    network beyond its bound shows as a value at it, and how far beyond in the loss of its fit.
    """

    advantage: Float[Array, ""]
    target: Float[Array, ""]
    cost_target: Float[Array, " cost"]
    cost_min: Float[Array, " cost"]
    cost_max: Float[Array, " cost"]


class CostMeasure(eqx.Module):
    """J_c as the step is told it, that of this update's real steps alone, and its standard error.

    All in cost per horizon; `episodes` is how many horizons those real steps are.
    """

    used: Float[Array, " cost"]
    real: Float[Array, " cost"]
    standard_error: Float[Array, " cost"]
    episodes: Float[Array, ""]


class CriticFit(eqx.Module):
    """The loss of the last pass over the batch, for V and each V_c."""

    loss: Float[Array, ""]
    cost_loss: Float[Array, " cost"]


def start(settings: TrainSettings, task: Task) -> Learner:
    """An untrained learner."""
    n_cost = len(task.cost_limits)
    n_obs, n_act = task.observation_space.shape[0], task.action_space.shape[0]
    key, key_policy, key_critic, key_cost, key_model = jax.random.split(
        jax.random.key(settings.seed), 5
    )
    p, c = settings.policy, settings.critic
    policy = Policy(
        n_obs,
        n_act,
        hidden=p.hidden,
        log_std=p.log_std,
        last_layer_scale=p.last_layer_scale,
        compresses=p.compress,
        key=key_policy,
    )
    untrained = partial(_critic, n_obs, c.hidden, c.members)
    reward_critic = untrained(key_critic)
    cost_critic = jax.vmap(untrained)(jax.random.split(key_cost, n_cost))
    learned = None
    if ALGORITHMS[settings.algo].data == "real and imagined":
        learned = model.start(
            n_obs,
            n_act,
            n_cost,
            settings,
            knows_cost=task.knows_cost,
            knows_termination=task.knows_termination,
            key=key_model,
        )
    return Learner(
        policy=policy,
        critic=reward_critic,
        critic_opt=critic_optimiser(reward_critic),
        cost_critic=cost_critic,
        cost_critic_opt=jax.vmap(critic_optimiser)(cost_critic),
        improvement=algorithm(settings.algo).start(policy, n_cost, settings),
        real_cost=cost_estimate.nothing_seen(n_cost),
        model=learned,
        key=key,
    )


def _critic(n_obs: int, hidden: tuple[int, ...], members: int, key: PRNGKeyArray) -> Critic:
    return Critic(n_obs, hidden=hidden, members=members, key=key)


@partial(jax.jit, static_argnames="settings")
def gather(
    reward_critic: Critic, cost_critic: Critic, parts: list[Steps], settings: TrainSettings
) -> tuple[Samples, BatchValues]:
    """Advantages of real and imagined steps, joined into the batch of one update."""
    s = settings.advantage
    bounds = advantage.bounds_of_rewards(parts, discount=s.discount)
    cost_bounds = (0.0, 1.0 / (1.0 - s.cost_discount)) if settings.critic.bound_cost else None
    estimates = [
        advantage.estimate(
            steps,
            reward_critic,
            cost_critic,
            discount=s.discount,
            lam=s.lam,
            cost_discount=s.cost_discount,
            cost_lam=s.cost_lam,
            terminal_cost_steps=s.terminal_cost_steps,
            bounds=bounds,
            cost_bounds=cost_bounds,
        )
        for steps in parts
    ]
    samples = join(estimates, settings.batch_size)
    real = parts[0].obs.reshape(-1, parts[0].obs.shape[-1])
    cost_value = jax.vmap(lambda one: jax.vmap(one)(real))(cost_critic)
    cost_value = advantage.bounded(cost_value, cost_bounds)
    seen = parts[0].valid.reshape(1, -1)
    count = samples.valid.sum()
    values = BatchValues(
        advantage=jnp.sum(samples.advantage) / count,
        target=jnp.sum(samples.target) / count,
        cost_target=jnp.sum(samples.cost_target, axis=0) / count,
        cost_min=jnp.min(jnp.where(seen, cost_value, jnp.inf), axis=1),
        cost_max=jnp.max(jnp.where(seen, cost_value, -jnp.inf), axis=1),
    )
    if s.apart:
        return join([advantage.normalise(part) for part in estimates], settings.batch_size), values
    return advantage.normalise(samples), values


@partial(jax.jit, static_argnames=("settings", "horizon"))
def measure_cost(
    seen: RealCost, real: Steps, imagined_rate: Array | None, settings: TrainSettings, horizon: int
) -> tuple[RealCost, CostMeasure]:
    """J_c for the step: of real steps, the larger of real and imagined, or of the mixed batch.

    Real copies need some updates to get where a new policy costs; imagined ones, which start
    anywhere in the episodes of recent policies, are there at once.
    """
    s = settings.cost_estimate
    seen = cost_estimate.observe(seen, real.cost, real.valid, time_constant=s.time_constant)
    estimate = cost_estimate.estimate(seen, horizon=float(horizon))
    weight = real.valid.astype(real.cost.dtype)[..., None]
    rate = (weight * real.cost).sum(axis=(0, 1)) / weight.sum()
    used = estimate.mean
    if s.source == "larger" and imagined_rate is not None:
        used = jnp.maximum(used, horizon * imagined_rate)
    if s.source == "batch" and imagined_rate is not None:
        share = weight.sum() / settings.batch_size
        used = horizon * (share * rate + (1.0 - share) * imagined_rate)
    episodes = weight.sum() / horizon
    return seen, CostMeasure(used, horizon * rate, estimate.standard_error, episodes)


@partial(jax.jit, static_argnames=("settings", "horizon"))
def improve(
    policy: Policy,
    state: PyTree,
    samples: Samples,
    cost: CostMeasure,
    target: Float[Array, " cost"],
    key: PRNGKeyArray,
    *,
    settings: TrainSettings,
    horizon: int,
) -> tuple[Policy, PyTree, PolicyStep, Float[Array, ""]]:
    """The policy update of the algorithm, with J_c as measured; no deviation falls below its least.

    Also the mean deviation of the actions afterwards.
    """
    policy, state, step = algorithm(settings.algo).improve(
        policy,
        state,
        samples,
        Constraint(cost.used - target, target, spent=cost.real, episodes=cost.episodes),
        settings=settings,
        horizon=horizon,
        key=key,
    )
    # After the step, outside the trust region: the step may lower σ, exploration must not end.
    std = jnp.maximum(jnp.exp(policy.log_std), settings.policy.min_std)
    policy = eqx.tree_at(lambda p: p.log_std, policy, jnp.log(std))
    return policy, state, step, jnp.exp(policy.log_deviation).mean()


@jax.jit
def with_units_of_all(policy: A, real: Steps, before: Float[Array, ""]) -> A:
    """The policy in the units of all real steps: `before`, those of its units, and `real`."""
    obs = real.obs.reshape(-1, real.obs.shape[-1])
    normaliser = with_more(policy.normaliser, before, obs, real.valid.reshape(-1))
    return eqx.tree_at(lambda p: p.normaliser, policy, normaliser)


def with_first_units(policy: A, obs: Float[np.ndarray, "rows obs"]) -> A:
    """The policy that sees observations in the standard units of those given."""
    std = obs.std(axis=0)
    # What never moved, such as a contact that was not made, keeps its own unit.
    std = np.where(std < 1e-6, 1.0, np.maximum(std, 1e-2))
    normaliser = Normaliser(jnp.asarray(obs.mean(axis=0)), jnp.asarray(std))
    return eqx.tree_at(lambda p: p.normaliser, policy, normaliser)


@partial(jax.jit, static_argnames="settings")
def fit_critics(
    learner: Learner, samples: Samples, key: PRNGKeyArray, settings: TrainSettings
) -> tuple[dict[str, PyTree], CriticFit]:
    """V and every V_c on the targets of the batch: the learner's new fields."""
    s = settings.critic
    fit = partial(
        fit_critic, learning_rate=s.learning_rate, batch_size=s.batch_size, epochs=s.epochs
    )
    key_reward, key_cost = jax.random.split(key)
    reward_critic, reward_opt, loss = fit(
        learner.critic,
        learner.critic_opt,
        samples.obs,
        samples.target,
        samples.valid,
        key=key_reward,
    )
    cost_critic, cost_opt, cost_loss = jax.vmap(
        lambda one, opt, target, k: fit(one, opt, samples.obs, target, samples.valid, key=k),
        in_axes=(0, 0, 1, 0),
    )(
        learner.cost_critic,
        learner.cost_critic_opt,
        samples.cost_target,
        jax.random.split(key_cost, samples.cost_target.shape[1]),
    )
    fields = {
        "critic": reward_critic,
        "critic_opt": reward_opt,
        "cost_critic": cost_critic,
        "cost_critic_opt": cost_opt,
    }
    return fields, CriticFit(loss, cost_loss)


def made(learner: Learner, samples: Samples) -> dict[str, PyTree]:
    """What an update makes, in the order it is made."""
    return {
        "the batch": (samples.obs, samples.act),
        "the advantages": (samples.advantage, samples.cost_advantage),
        "the policy": learner.policy,
        "V": learner.critic,
        "V_c": learner.cost_critic,
    }
