"""The real cost rate against sums written out, and its standard error against many repetitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.policy.cost_estimate import estimate, nothing_seen, observe

HORIZON = 1000.0


def batches(rng, updates=5, T=7, N=4, C=2):
    cost = rng.integers(0, 2, (updates, T, N, C)).astype(np.float32)
    valid = rng.random((updates, T, N)) < 0.8
    return cost, valid


@pytest.mark.parametrize("time_constant", [0.0, 0.5, 4.0])
def test_the_estimate_is_the_faded_cost_rate(time_constant):
    cost, valid = batches(np.random.default_rng(0))
    seen = nothing_seen(2)
    for c, v in zip(cost, valid, strict=True):
        seen = observe(seen, jnp.array(c), jnp.array(v), time_constant=time_constant)
    # An update of n < 1000 steps makes what was seen before it n/1000 of an update older.
    worth = valid.sum(axis=(1, 2)) / 1000.0
    age = np.append(np.cumsum(worth[:0:-1])[::-1], 0.0)
    w = np.exp(-age / time_constant) if time_constant > 0 else (age == 0).astype(float)
    y = (cost * valid[..., None]).sum(axis=1)
    n = valid.sum(axis=1)
    rate = np.einsum("u,unc->c", w, y) / np.einsum("u,un->", w, n)
    found = estimate(seen, horizon=HORIZON)
    np.testing.assert_allclose(found.mean, HORIZON * rate, rtol=1e-5)

    m = (w.sum() * 4) ** 2 / ((w**2).sum() * 4)
    residual = y - rate * n[..., None]
    square = np.einsum("u,unc->c", w**2, residual**2) * m / (m - 1)
    error = np.sqrt(square) / np.einsum("u,un->", w, n)
    np.testing.assert_allclose(found.standard_error, HORIZON * error, rtol=1e-3)


def test_only_valid_rows_count():
    cost = jnp.array([[[1.0], [1.0]], [[jnp.nan], [0.0]]])
    valid = jnp.array([[True, True], [False, True]])
    seen = observe(nothing_seen(1), cost, valid, time_constant=0.0)
    np.testing.assert_allclose(estimate(seen, horizon=3.0).mean, [2.0], rtol=1e-6)


def test_nothing_seen_costs_nothing_and_is_not_sure():
    found = estimate(nothing_seen(2), horizon=HORIZON)
    np.testing.assert_array_equal(found.mean, [0.0, 0.0])
    assert np.isinf(found.standard_error).all()


def test_the_standard_error_is_the_spread_of_repetitions():
    """Independent copies, each with its own chance of cost in a step."""

    def once(key):
        key_rate, key_cost = jax.random.split(key)
        chance = jax.random.uniform(key_rate, (1, 40, 1), maxval=0.2)
        cost = (jax.random.uniform(key_cost, (25, 40, 1)) < chance).astype(jnp.float32)
        seen = observe(nothing_seen(1), cost, jnp.ones((25, 40), bool), time_constant=4.0)
        return estimate(seen, horizon=HORIZON)

    found = jax.jit(jax.vmap(once))(jax.random.split(jax.random.key(0), 500))
    typical = np.sqrt(np.mean(found.standard_error**2))
    np.testing.assert_allclose(typical, np.std(found.mean), rtol=0.1)


def test_a_long_memory_is_surer_than_a_short_one():
    cost, valid = batches(np.random.default_rng(1), updates=20)

    def error(time_constant):
        seen = nothing_seen(2)
        for c, v in zip(cost, valid, strict=True):
            seen = observe(seen, jnp.array(c), jnp.array(v), time_constant=time_constant)
        return np.asarray(estimate(seen, horizon=HORIZON).standard_error)

    assert (error(4.0) < error(0.0)).all()


def test_memory_is_as_long_in_real_steps_however_many_updates_they_make():
    def faded(steps: int, updates: int) -> float:
        seen = observe(
            nothing_seen(1), jnp.ones((steps, 1, 1)), jnp.ones((steps, 1), bool), time_constant=2.0
        )
        for _ in range(updates):
            seen = observe(
                seen, jnp.zeros((steps, 1, 1)), jnp.ones((steps, 1), bool), time_constant=2.0
            )
        return float(seen.cost[0]) / steps

    assert faded(250, 8) == pytest.approx(faded(500, 4), rel=1e-5)
    assert faded(500, 4) == pytest.approx(np.exp(-1.0), rel=1e-5)
    assert faded(4000, 2) == pytest.approx(np.exp(-1.0), rel=1e-5), (
        "or in updates, if these are more"
    )
