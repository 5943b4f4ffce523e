"""Constrained problems that can be solved on paper: each update must find their best safe policy.

One state; actions aᵢ ~ N(μᵢ, σᵢ²); reward Σ aᵢ; cost i is (aᵢ − offsetᵢ)², limit dᵢ. Its mean is
(μᵢ − offsetᵢ)² + σᵢ², so the best safe mean, for a given deviation, is offsetᵢ + √(dᵢ − σᵢ²).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from cmbpo.networks import Policy
from cmbpo.policy import clipped
from cmbpo.policy.advantage import normalise
from cmbpo.policy.cost_control import no_cost_seen, steer
from cmbpo.policy.lagrangian import adam_multiplier, ascend, control, penalise, pid_multiplier
from cmbpo.policy.trust_region import (
    Region,
    barrier_step,
    cpo_step,
    steered_step,
    trust_region_step,
)
from cmbpo.trajectory import Samples

REGION = Region(max_kl=0.01, horizon=1.0, cg_damping=1e-3)
ROWS = 1024
OFFSET = {1: np.array([0.0]), 2: np.array([0.0, 1.0])}
LIMIT = {1: np.array([1.0]), 2: np.array([1.0, 0.6])}


def policy_at(mean, deviation=0.3) -> Policy:
    policy = Policy(
        1,
        len(mean),
        hidden=(),
        log_std=float(np.log(deviation)),
        last_layer_scale=0.0,
        key=jax.random.key(0),
    )
    return eqx.tree_at(lambda p: p.net.layers[0].bias, policy, jnp.asarray(mean, jnp.float32))


def mean_and_deviation(policy: Policy):
    pi = policy(jnp.zeros(1))
    return pi.mean, jnp.exp(pi.log_std)


def costs(policy: Policy):
    mean, deviation = mean_and_deviation(policy)
    return (mean - OFFSET[mean.size]) ** 2 + deviation**2


def samples(policy: Policy) -> Samples:
    """Actions at the quantiles of each normal, each in an order of its own, so means are exact."""
    mean, deviation = mean_and_deviation(policy)
    n = mean.size
    z = norm.ppf((jnp.arange(ROWS) + 0.5) / ROWS)
    z = jnp.stack([z[(jnp.arange(ROWS) * k) % ROWS] for k in (1, 381)[:n]], axis=1)
    act = mean[None, :] + deviation[None, :] * z / z.std()
    cost = (act - OFFSET[n][None, :]) ** 2
    reward = act.sum(axis=1)
    return Samples(
        obs=jnp.zeros((ROWS, 1)),
        act=act,
        advantage=reward - mean.sum(),
        cost_advantage=cost - costs(policy)[None, :],
        target=reward,
        cost_target=cost,
        valid=jnp.ones(ROWS, bool),
    )


def excess(policy: Policy):
    value = costs(policy)
    return value - LIMIT[value.size].astype(value.dtype)


def with_cpo(policy, state):
    return cpo_step(policy, samples(policy), excess(policy), REGION)[0], state


def with_barrier(policy, recovering):
    policy, recovering, _ = barrier_step(
        policy,
        samples(policy),
        excess(policy),
        jnp.asarray(LIMIT[recovering.size], jnp.float32),
        recovering,
        REGION,
        cost_gain=1.0,
        hysteresis=0.95,
    )
    return policy, recovering


def with_steering(policy, control):
    cost = costs(policy)
    aim = jnp.asarray(LIMIT[cost.size], cost.dtype)
    control, share = steer(control, measured=cost, spent=cost, episodes=jnp.full((), 60.0), aim=aim)
    return steered_step(policy, samples(policy), share, aim - cost, aim, REGION)[0], control


def with_trpo(policy, state):
    return trust_region_step(policy, samples(policy), REGION)[0], state


def with_trpo_lag(policy, multiplier):
    multiplier = ascend(multiplier, excess(policy))
    batch = penalise(samples(policy), multiplier)
    return trust_region_step(policy, batch, REGION)[0], multiplier


def with_trpo_pid(policy, multiplier):
    multiplier = control(multiplier, excess(policy), gains=(1.0, 0.05, 0.1), smoothing=0.5)
    batch = penalise(normalise(samples(policy)), multiplier)
    return trust_region_step(policy, batch, REGION)[0], multiplier


def with_ppo_lag(policy, state):
    multiplier, opt_state = state
    multiplier = ascend(multiplier, excess(policy), learning_rate=0.02)
    batch = penalise(samples(policy), multiplier)
    policy, opt_state, _ = clipped.clipped_step(
        policy,
        opt_state,
        batch,
        horizon=1.0,
        learning_rate=3e-3,
        iterations=10,
        minibatches=1,
        stop_kl=0.012,
        key=jax.random.key(0),
    )
    return policy, (multiplier, opt_state)


def start_state(update, n):
    return {
        with_cpo: jnp.zeros(()),
        with_trpo: jnp.zeros(()),
        with_barrier: jnp.zeros(n, bool),
        with_steering: no_cost_seen(n),
        with_trpo_lag: adam_multiplier(n),
        with_trpo_pid: pid_multiplier(n),
        with_ppo_lag: (adam_multiplier(n), clipped.start_optimiser(policy_at(np.zeros(n)))),
    }[update]


def improve(update, starts, *, updates, hold=False):
    """Mean, deviation and costs after each update, from each start; `hold` keeps the deviation."""
    n = starts.shape[1]

    def one(carry, _):
        policy, state = carry
        better, state = update(policy, state)
        if hold:
            better = eqx.tree_at(lambda p: p.log_std, better, policy.log_std)
        return (better, state), (*mean_and_deviation(better), costs(better))

    def from_start(start):
        policy = eqx.tree_at(lambda p: p.net.layers[0].bias, policy_at(np.zeros(n)), start)
        return jax.lax.scan(one, (policy, start_state(update, n)), None, length=updates)[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(from_start))(starts))


STARTS = {
    1: jnp.array([[-3.0], [0.0], [0.9], [3.0]]),
    2: jnp.array([[2.0, -2.0], [0.0, 0.0], [-1.0, 3.0]]),
}


def best_mean(deviation):
    n = deviation.shape[-1]
    return OFFSET[n] + np.sqrt(LIMIT[n] - deviation**2)


@pytest.mark.parametrize("n", [1, 2])
def test_cpo_reaches_the_best_safe_policy(n):
    mean, deviation, cost = improve(with_cpo, STARTS[n], updates=250)
    np.testing.assert_allclose(mean[:, -1], best_mean(deviation[:, -1]), atol=2e-2)
    assert (cost[:, -50:] <= LIMIT[n] * 1.005).all()


@pytest.mark.parametrize("n", [1, 2])
def test_the_barrier_step_reaches_the_best_safe_policy_and_stays_below_the_limit(n):
    mean, deviation, cost = improve(with_barrier, STARTS[n], updates=400)
    np.testing.assert_allclose(mean[:, -50:].mean(axis=1), best_mean(deviation[:, -1]), atol=5e-2)
    assert (cost[:, -50:].mean(axis=1) <= LIMIT[n]).all()
    assert (cost[:, -50:] <= LIMIT[n] * 1.03).all()


@pytest.mark.parametrize("n", [1, 2])
def test_the_steered_step_reaches_the_best_safe_policy_and_holds_the_limit_in_the_mean(n):
    mean, deviation, cost = improve(with_steering, STARTS[n], updates=600, hold=True)
    np.testing.assert_allclose(mean[:, -50:].mean(axis=1), best_mean(deviation[:, -1]), atol=5e-2)
    held = cost[:, -300:].mean(axis=1)
    np.testing.assert_allclose(held, np.broadcast_to(LIMIT[n], held.shape), rtol=0.03)


@pytest.mark.parametrize(
    ("update", "n"),
    [
        (with_trpo_lag, 1),
        (with_trpo_lag, 2),
        (with_trpo_pid, 1),
        (with_ppo_lag, 1),
        (with_ppo_lag, 2),
    ],
)
def test_multipliers_reach_the_best_safe_policy(update, n):
    """Their iterates circle the answer, so their mean is compared, with the deviation held."""
    mean, deviation, cost = improve(update, STARTS[n], updates=900, hold=True)
    np.testing.assert_allclose(mean[:, -300:].mean(axis=1), best_mean(deviation[:, -1]), atol=5e-2)
    assert (cost[:, -300:].mean(axis=1) <= LIMIT[n] * 1.03).all()


def test_without_constraints_the_limit_is_passed():
    _, _, cost = improve(with_trpo, STARTS[1][1:2], updates=100)
    assert (cost[:, -1] > 10.0 * LIMIT[1]).all()


@pytest.mark.parametrize(
    ("update", "passed_by"), [(with_cpo, 1.03), (with_barrier, 1.03), (with_steering, 1.05)]
)
def test_a_safe_policy_stays_safe_on_its_way(update, passed_by):
    """Steered, the mean over time is the limit: what was saved on the way is spent, slowly."""
    start = jnp.array([[0.0], [0.5]])
    _, _, cost = improve(update, start, updates=60)
    assert (cost <= LIMIT[1] * passed_by).all()
