"""Advantages against the textbook sum in plain NumPy, on every kind of ending."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.networks import Critic, Normaliser
from cmbpo.policy.advantage import CHUNK, bounds_of_rewards, estimate, gae, normalise
from cmbpo.trajectory import Samples, Steps

N, OBS, ACT, COST = 5, 3, 2, 2
NUMBERS = {"discount": 0.9, "lam": 0.8, "cost_discount": 0.7, "cost_lam": 0.6}


def gae_by_definition(reward, value, next_value, terminated, last, gamma, lam):
    """Aₜ = Σₖ (γλ)ᵏ δₜ₊ₖ, summed to the end of t's trajectory."""
    delta = reward + gamma * next_value * (1 - terminated) - value
    found = np.zeros(len(reward))
    for t in range(len(reward)):
        for k in range(len(reward) - t):
            found[t] += (gamma * lam) ** k * delta[t + k]
            if last[t + k]:
                break
    return found


def random_row(rng, T):
    reward, value, next_value = rng.normal(size=(3, T))
    last = rng.random(T) < 0.2
    terminated = last & (rng.random(T) < 0.5)
    return reward, value, next_value, terminated, last


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_gae_is_its_definition(x64, lam):
    compiled = jax.jit(partial(gae, discount=0.97, lam=lam))
    for seed in range(5):
        row = random_row(np.random.default_rng(seed), 40)
        expected = gae_by_definition(*row, 0.97, lam)
        np.testing.assert_allclose(compiled(*map(jnp.array, row)), expected, rtol=1e-9, atol=1e-12)


def test_with_lambda_one_the_target_is_the_discounted_return(x64):
    reward = np.array([1.0, 2.0, 3.0])
    value, next_value = np.array([5.0, 7.0, 9.0]), np.array([7.0, 9.0, 100.0])
    ends = np.array([False, False, True])
    found = gae(*map(jnp.array, (reward, value, next_value, ends, ends)), discount=0.5, lam=1.0)
    np.testing.assert_allclose(found + value, [1 + 1 + 0.75, 2 + 1.5, 3.0])


def test_nothing_follows_a_terminal_step(x64):
    row = random_row(np.random.default_rng(0), 30)
    last = row[4].copy()
    last[10] = True
    terminated = row[3].copy()
    terminated[10] = True
    base = gae(*map(jnp.array, (*row[:3], terminated, last)), discount=0.9, lam=0.9)
    changed = [x.copy() for x in row[:3]]
    for x in changed:
        x[11:] += 5.0
    changed[2][10] += 5.0
    other = gae(*map(jnp.array, (*changed, terminated, last)), discount=0.9, lam=0.9)
    np.testing.assert_array_equal(base[:11], other[:11])


def critics():
    keys = jax.random.split(jax.random.key(0), 1 + COST)

    def scaled(k):
        critic = Critic(OBS, hidden=(8,), members=2, key=k)
        output = Normaliser(0.5 * jnp.ones(1), 20.0 * jnp.ones(1))
        return eqx.tree_at(lambda c: c.output, critic, output)

    return scaled(keys[0]), jax.vmap(scaled)(keys[1:])


def random_steps(seed=0, invalid=0.0, T=23, ends=0.2):
    """Copies with automatic resets; some rows are padding behind the end of a trajectory."""
    rng = np.random.default_rng(seed)
    last = rng.random((T, N)) < ends
    terminated = last & (rng.random((T, N)) < 0.5)
    obs = rng.normal(size=(T, N, OBS))
    next_obs = np.where(last[..., None], rng.normal(size=(T, N, OBS)), np.roll(obs, -1, axis=0))
    next_obs[-1] = rng.normal(size=(N, OBS))
    valid = np.ones((T, N), bool)
    for n in range(N):
        final = np.flatnonzero(last[:, n])
        if rng.random() < invalid and len(final):
            valid[final[-1] + 1 :, n] = False
    return Steps(
        obs=jnp.array(obs, jnp.float32),
        act=jnp.array(rng.normal(size=(T, N, ACT)), jnp.float32),
        next_obs=jnp.array(next_obs, jnp.float32),
        reward=jnp.array(rng.normal(size=(T, N)), jnp.float32),
        cost=jnp.array(rng.random((T, N, COST)) < 0.3, jnp.float32),
        terminated=jnp.array(terminated),
        last=jnp.array(last),
        valid=jnp.array(valid),
    )


CRITICS = critics()
compiled_estimate = jax.jit(
    partial(estimate, **NUMBERS), static_argnames=("terminal_cost_steps", "bounds", "cost_bounds")
)
value_of = jax.jit(lambda critic, x: jax.vmap(jax.vmap(critic))(x))


def run(
    steps,
    *,
    terminal_cost_steps=None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    cost_bound: float | None = 0.6,
) -> Samples:
    return compiled_estimate(
        steps,
        *CRITICS,
        terminal_cost_steps=terminal_cost_steps,
        bounds=bounds,
        cost_bounds=None if cost_bound is None else (0.0, cost_bound),
    )


@pytest.mark.parametrize(
    ("terminal_cost_steps", "bounds", "cost_bound", "T"),
    [
        (None, (-np.inf, np.inf), None, 23),
        (2.0, (-3.0, 5.0), 0.6, 23),
        (None, (-np.inf, np.inf), 0.6, 500),
    ],
)
def test_estimates_are_their_definition(terminal_cost_steps, bounds, cost_bound, T):
    steps = random_steps(T=T, ends=0.2 if T == 23 else 0.6)
    assert (T == 500) == (int(steps.last.sum()) > CHUNK)
    found = run(
        steps, terminal_cost_steps=terminal_cost_steps, bounds=bounds, cost_bound=cost_bound
    )
    critic, cost_critic = CRITICS
    last = np.asarray(steps.last).copy()
    last[-1] = True
    v = np.clip(value_of(critic, steps.obs), *bounds)
    v_next = np.clip(value_of(critic, steps.next_obs), *bounds)
    for n in range(N):
        expected = gae_by_definition(
            steps.reward[:, n], v[:, n], v_next[:, n], steps.terminated[:, n], last[:, n], 0.9, 0.8
        )
        np.testing.assert_allclose(found.advantage[:, n], expected, rtol=2e-4, atol=2e-4)
        target = np.clip(expected + v[:, n], *bounds)
        np.testing.assert_allclose(found.target[:, n], target, rtol=2e-4, atol=2e-4)
    top = np.inf if cost_bound is None else cost_bound
    bottom = -np.inf if cost_bound is None else 0.0
    for i in range(COST):
        one = jax.tree.map(lambda x, i=i: x[i], cost_critic)
        v = np.clip(value_of(one, steps.obs), bottom, top)
        v_next = np.clip(value_of(one, steps.next_obs), bottom, top)
        if terminal_cost_steps is not None:
            v_next = np.where(steps.terminated, terminal_cost_steps * steps.cost[..., i], v_next)
        for n in range(N):
            expected = gae_by_definition(
                steps.cost[:, n, i], v[:, n], v_next[:, n], np.zeros(T), last[:, n], 0.7, 0.6
            )
            np.testing.assert_allclose(
                found.cost_advantage[:, n, i], expected, rtol=2e-4, atol=2e-4
            )
            target = np.clip(expected + v[:, n], bottom, top)
            np.testing.assert_allclose(found.cost_target[:, n, i], target, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("rewards", "bounds"),
    [((0.5, 2.0), (0.0, 20.0)), ((-3.0, -1.0), (-30.0, 0.0)), ((-1.0, 4.0), (-10.0, 40.0))],
)
def test_no_value_is_beyond_the_best_or_the_worst_step_for_ever(rewards, bounds):
    steps = random_steps(seed=3, invalid=1.0)
    least, greatest = rewards
    share = (steps.reward - steps.reward.min()) / (steps.reward.max() - steps.reward.min())
    # Padding may hold anything.
    seen = jnp.where(steps.valid, least + (greatest - least) * share, 1e6)
    ends = jnp.zeros_like(steps.valid).at[:2, 0].set(True) & steps.valid
    assert int(ends.sum()) == 2
    worst = jnp.zeros_like(ends).at[0, 0].set(True)
    seen = jnp.where(ends, jnp.where(worst, least, greatest), seen)
    both = eqx.tree_at(lambda s: s.reward, steps, seen)
    calm = eqx.tree_at(lambda s: s.reward, steps, jnp.where(steps.valid, least, 1e6))
    found = np.array(bounds_of_rewards([calm, both], discount=0.9))
    np.testing.assert_allclose(found, bounds, rtol=1e-5)


def test_padding_has_no_weight_and_cannot_leak():
    steps = random_steps(seed=3, invalid=1.0)
    assert not bool(steps.valid.all())
    clean = run(steps)

    def poisoned(x):
        padding = ~steps.valid.reshape(*steps.valid.shape, *[1] * (x.ndim - 2))
        return jnp.where(padding, jnp.nan if x.dtype == jnp.float32 else True, x)

    dirty = eqx.tree_at(lambda s: s.valid, jax.tree.map(poisoned, steps), steps.valid)
    for x, y in zip(jax.tree.leaves(clean), jax.tree.leaves(run(dirty)), strict=True):
        np.testing.assert_array_equal(x, y)
    padding = np.asarray(~steps.valid)
    assert (np.asarray(clean.advantage)[padding] == 0.0).all()
    assert (np.asarray(clean.cost_target)[padding] == 0.0).all()


def test_a_trajectory_ends_before_padding_even_if_nobody_said_so():
    steps = random_steps(seed=3, invalid=1.0)
    unmarked = eqx.tree_at(lambda s: s.last, steps, steps.last & jnp.roll(steps.valid, -1, axis=0))
    truth = run(steps)
    found = run(unmarked)
    np.testing.assert_allclose(found.advantage, truth.advantage, rtol=1e-6, atol=1e-6)


def test_a_reset_does_not_leak_into_the_trajectory_before_it():
    steps = random_steps(seed=1)
    t, n = (int(x[0]) for x in np.nonzero(np.asarray(steps.last)[:-1]))
    changed = eqx.tree_at(lambda s: s.obs, steps, steps.obs.at[t + 1, n].add(10.0))
    before, after = run(steps), run(changed)
    np.testing.assert_array_equal(before.advantage[: t + 1, n], after.advantage[: t + 1, n])
    assert float(before.advantage[t + 1, n]) != float(after.advantage[t + 1, n])


def test_cost_goes_on_after_a_terminal_state_and_reward_does_not():
    steps = random_steps(seed=2)
    t, n = (int(x[0]) for x in np.nonzero(np.asarray(steps.terminated)))
    changed = eqx.tree_at(lambda s: s.next_obs, steps, steps.next_obs.at[t, n].add(3.0))
    before, after = run(steps, cost_bound=None), run(changed, cost_bound=None)
    assert float(before.advantage[t, n]) == float(after.advantage[t, n])
    assert (np.asarray(before.cost_advantage[t, n]) != np.asarray(after.cost_advantage[t, n])).all()


def test_normalised_advantages_have_mean_zero_and_rewards_deviation_one():
    samples = run(random_steps(seed=3, invalid=1.0))
    found = normalise(samples)
    valid = np.asarray(samples.valid)
    np.testing.assert_allclose(found.advantage[valid].mean(), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.advantage[valid].std(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found.cost_advantage[valid].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(
        found.cost_advantage[valid].std(axis=0),
        samples.cost_advantage[valid].std(axis=0),
        rtol=1e-5,
    )
    assert (np.asarray(found.advantage)[~valid] == 0.0).all()
