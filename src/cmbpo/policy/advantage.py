"""Generalised advantage estimates of reward and costs, for real and imagined steps alike."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cmbpo.networks import Critic
from cmbpo.trajectory import Samples, Steps, true_rows

CHUNK = 1024


def gae(
    reward: Float[Array, " T"],
    value: Float[Array, " T"],
    next_value: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    last: Bool[Array, " T"],
    *,
    discount: float,
    lam: float,
) -> Float[Array, " T"]:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16).

        δₜ = rₜ + γ·V(sₜ₊₁)·(1 − terminatedₜ) − V(sₜ)
        Aₜ = δₜ + γλ·(1 − lastₜ)·Aₜ₊₁

    The steps may hold several trajectories end to end. `last` marks the final step of each, however
    it ended; `terminated` only those that ended in a terminal state, where nothing more is to come.
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value

    def step(a_next, x):
        delta_t, last_t = x
        a = delta_t + discount * lam * jnp.where(last_t, 0.0, a_next)
        return a, a

    start = jnp.zeros((), delta.dtype)
    # Unrolled because a GPU pays for each turn of a loop, not for the arithmetic in it.
    return jax.lax.scan(step, start, (delta, last), reverse=True, unroll=8)[1]


Bounds = tuple[Float[Array, ""] | float, Float[Array, ""] | float]
"""The least and the greatest value that there can be."""


def bounds_of_rewards(parts: list[Steps], *, discount: float) -> Bounds:
    """V of the least reward of any step for ever, and of the greatest; 0 where all is over.

        min(0, minₜ rₜ) / (1 − γ) ≤ V ≤ max(0, maxₜ rₜ) / (1 − γ)

    A V that bootstraps from itself can run away: a hopper's fell from 300 to −6,000,000 within
    6000 real steps, while a step earned 1.5.
    """
    seen = [jnp.where(steps.valid, steps.reward, 0.0) for steps in parts]
    least = jnp.stack([rewards.min() for rewards in seen]).min()
    greatest = jnp.stack([rewards.max() for rewards in seen]).max()
    room = 1.0 / (1.0 - discount)
    return room * jnp.minimum(least, 0.0), room * jnp.maximum(greatest, 0.0)


def bounded(value: Float[Array, "*batch"], bounds: Bounds | None) -> Float[Array, "*batch"]:
    """The value within its bounds, if it has any."""
    return value if bounds is None else jnp.clip(value, *bounds)


def estimate(
    steps: Steps,
    critic: Critic,
    cost_critic: Critic,
    *,
    discount: float,
    lam: float,
    cost_discount: float,
    cost_lam: float,
    terminal_cost_steps: float | None,
    bounds: Bounds,
    cost_bounds: Bounds | None,
) -> Samples:
    """Advantages and value targets of steps with axes time and copy.

    After a terminal state no reward follows, but cost does (to fall is not the end of cost): V_c of
    that state, or what the terminal step cost for `terminal_cost_steps` more. Cuts and time limits
    bootstrap with V(s'). V and V_c are kept within their bounds, as predictions and as targets.
    `cost_critic` holds one critic for each cost along its first axis.
    """

    def values(obs: Float[Array, "rows obs"]) -> Float[Array, "rows k"]:
        reward_value = jax.vmap(critic)(obs)
        cost_value = jax.vmap(lambda one: jax.vmap(one)(obs), out_axes=1)(cost_critic)
        return jnp.concatenate(
            [bounded(reward_value, bounds)[:, None], bounded(cost_value, cost_bounds)], axis=1
        )

    valid = steps.valid
    # A trajectory that padding follows has ended, whoever forgot to say so.
    follows = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    last = steps.last | ~valid | ~follows
    row = valid[:, :, None]
    # Padding may hold anything, NaN too, and 0 · NaN is no zero in the sums below.
    obs, act = jnp.where(row, steps.obs, 0.0), jnp.where(row, steps.act, 0.0)
    value = values(obs.reshape(-1, obs.shape[-1])).reshape(*valid.shape, -1)
    value = jnp.where(row, value, 0.0)
    # Where physics blew up there is no next state to value; the state before stands in for it.
    sound = jnp.isfinite(steps.next_obs).all(axis=-1, keepdims=True)
    next_obs = jnp.where(sound, steps.next_obs, obs)
    next_value = _next_values(values, next_obs, value, last & valid)

    cost_next_value = next_value[..., 1:]
    if terminal_cost_steps is not None:
        cost_next_value = jnp.where(
            steps.terminated[:, :, None], terminal_cost_steps * steps.cost, cost_next_value
        )

    over_copies = jax.vmap(partial(gae, discount=discount, lam=lam), in_axes=1, out_axes=1)
    advantage = over_copies(
        jnp.where(valid, steps.reward, 0.0),
        value[..., 0],
        next_value[..., 0],
        steps.terminated,
        last,
    )
    over_copies = jax.vmap(partial(gae, discount=cost_discount, lam=cost_lam), 1, 1)
    over_costs = jax.vmap(over_copies, in_axes=(2, 2, 2, None, None), out_axes=2)
    # Cost goes on behind a terminal state, so none of its steps is terminal here.
    never = jnp.zeros_like(last)
    cost_advantage = over_costs(
        jnp.where(row, steps.cost, 0.0), value[..., 1:], cost_next_value, never, last
    )
    return Samples(
        obs=obs,
        act=act,
        advantage=jnp.where(valid, advantage, 0.0),
        cost_advantage=jnp.where(row, cost_advantage, 0.0),
        target=jnp.where(valid, bounded(advantage + value[..., 0], bounds), 0.0),
        cost_target=jnp.where(row, bounded(cost_advantage + value[..., 1:], cost_bounds), 0.0),
        valid=valid,
    )


def _next_values(
    values: Callable[[Float[Array, "rows obs"]], Float[Array, "rows k"]],
    next_obs: Float[Array, "T N obs"],
    value: Float[Array, "T N k"],
    ends: Bool[Array, "T N"],
) -> Float[Array, "T N k"]:
    """V of the next state. Inside a trajectory it is the next row's; at its end it is computed."""
    rows = ends.size
    chunk = min(CHUNK, rows)
    flat_obs = next_obs.reshape(rows, -1)
    # Few rows end a trajectory: only for these is V(s') computed, in chunks of a fixed shape.
    where = true_rows(ends.reshape(-1), -(-rows // chunk) * chunk)
    inside = jnp.concatenate([value[1:], jnp.zeros_like(value[:1])]).reshape(rows, -1)

    def fill(i, next_value):
        index = jax.lax.dynamic_slice(where, (i * chunk,), (chunk,))
        at_end = values(flat_obs.at[index].get(mode="clip"))
        return next_value.at[index].set(at_end, mode="drop")

    return jax.lax.fori_loop(0, -(-ends.sum() // chunk), fill, inside).reshape(value.shape)


def normalise(samples: Samples) -> Samples:
    """Reward advantages with mean 0 and deviation 1; cost advantages with mean 0, not rescaled."""
    weight = samples.valid / jnp.maximum(samples.valid.sum(), 1)
    mean = jnp.sum(weight * samples.advantage)
    centred = samples.advantage - mean
    std = jnp.sqrt(jnp.sum(weight * centred**2))
    axes = tuple(range(weight.ndim))
    # Not rescaled: A_c in units of cost is what the step holds against the limit.
    cost = samples.cost_advantage
    cost_mean = jnp.sum(weight[..., None] * cost, axis=axes, keepdims=True)
    return eqx.tree_at(
        lambda s: (s.advantage, s.cost_advantage),
        samples,
        (
            jnp.where(samples.valid, centred / jnp.maximum(std, 1e-8), 0.0),
            jnp.where(samples.valid[..., None], cost - cost_mean, 0.0),
        ),
    )
