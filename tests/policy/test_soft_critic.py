"""The targets of soft actor-critic against their definition, written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.policy.soft_critic import SoftCritics, after_the_end, pessimistic, soft_target, track

ROWS, COSTS = 50, 2
GAMMA, GAMMA_C, ALPHA = 0.99, 0.9, 0.3
END = np.array([0.0, -4.0, -7.0])


def target_by_definition(reward, cost, double, log_prob, terminated):
    """One row at a time, one cost at a time, costs as costs: larger is worse."""
    found = np.zeros((ROWS, 1 + COSTS))
    for i in range(ROWS):
        soft_value = min(double[i, 0]) - ALPHA * log_prob[i]
        found[i, 0] = reward[i] + GAMMA * (0.0 if terminated[i] else soft_value)
        for k in range(COSTS):
            to_come = -END[1 + k] if terminated[i] else max(-double[i, 1 + k])
            found[i, 1 + k] = -(cost[i, k] + GAMMA_C * to_come)
    return found


def test_the_target_is_the_soft_bellman_target_of_the_worse_of_two_critics(x64):
    rng = np.random.default_rng(0)
    reward, cost = rng.normal(size=ROWS), rng.random((ROWS, COSTS))
    double, log_prob = rng.normal(size=(ROWS, 1 + COSTS, 2)), rng.normal(size=ROWS)
    terminated = rng.random(ROWS) < 0.3
    signal = np.concatenate([reward[:, None], -cost], axis=1)
    found = jax.vmap(
        lambda s, v, p, t: soft_target(
            s,
            v,
            p,
            t,
            discount=jnp.array([GAMMA, GAMMA_C, GAMMA_C]),
            temperature=jnp.array(ALPHA),
            terminal_value=jnp.array(END),
        )
    )(
        jnp.array(signal),
        pessimistic(jnp.array(double)),
        jnp.array(log_prob),
        jnp.array(terminated),
    )
    expected = target_by_definition(reward, cost, double, log_prob, terminated)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_after_the_end_nothing_is_earned_and_costs_go_on_as_they_are(x64):
    """A cost of c̄ in every step of a chain without end has the value c̄/(1 − γ)."""
    rate = np.array([0.2, 0.05])
    forever = np.array([GAMMA_C**t * rate for t in range(2000)]).sum(axis=0)
    found = after_the_end(jnp.array(rate), cost_discount=GAMMA_C)
    np.testing.assert_allclose(found, [0.0, *-forever], rtol=1e-9)


@pytest.fixture(scope="module")
def critics():
    return SoftCritics(3, 2, 1 + COSTS, hidden=(16, 8), key=jax.random.key(0))


def test_each_signal_has_two_networks_that_differ(critics):
    said = critics(jnp.ones(3), jnp.ones(2))
    assert said.shape == (1 + COSTS, 2)
    assert len(np.unique(np.asarray(said))) == said.size


def test_with_layer_norm_what_they_say_of_far_away_actions_stays_bounded(critics):
    near = np.abs(np.asarray(critics(jnp.ones(3), jnp.ones(2)))).max()
    far = np.abs(np.asarray(critics(1e6 * jnp.ones(3), -1e6 * jnp.ones(2)))).max()
    assert far < 20 * max(near, 1e-3)


def test_the_slow_copy_moves_by_half_a_percent(critics):
    zero = jax.tree.map(jnp.zeros_like, critics)
    moved = track(zero, critics)
    for x, y in zip(jax.tree.leaves(moved), jax.tree.leaves(critics), strict=True):
        np.testing.assert_allclose(x, 0.005 * y, rtol=1e-6)
