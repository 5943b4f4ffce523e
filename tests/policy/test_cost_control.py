"""The controller of a cost: its formula, and that it pins the mean where a sign pins the median."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.policy.cost_control import (
    FIRST,
    INTEGRAL,
    LEAST,
    MOST,
    PROPORTIONAL,
    CostControl,
    no_cost_seen,
    steer,
)

AIM = 9.0


def steered(control, *, measured, spent, episodes=1.0, aim: float | list[float] = AIM):
    as_costs = [jnp.atleast_1d(jnp.asarray(x, jnp.float32)) for x in (measured, spent, aim)]
    return steer(
        control,
        measured=as_costs[0],
        spent=as_costs[1],
        episodes=jnp.float32(episodes),
        aim=as_costs[2],
    )


def test_it_follows_its_formula():
    control = CostControl(jnp.array([0.1, 0.2]), jnp.array([True, True]))
    control, share = steered(
        control, measured=[4.0, 12.0], spent=[0.0, 30.0], episodes=2.0, aim=[9.0, 5.0]
    )
    integral = [0.1 + INTEGRAL * 2 * -1.0, 0.2 + INTEGRAL * 2 * 5.0]
    np.testing.assert_allclose(control.integral, integral, rtol=1e-5)
    above = np.log([13.0 / 18.0, 17.0 / 10.0])
    np.testing.assert_allclose(share, PROPORTIONAL * above + integral, rtol=1e-5)


def test_nothing_is_integrated_before_a_cost_was_seen():
    control, share = no_cost_seen(2), jnp.zeros(2)
    for _ in range(200):
        control, share = steered(control, measured=[0.0, 3.0], spent=[0.0, 3.0], aim=[9.0, 9.0])
    assert control.integral[0] == pytest.approx(FIRST)
    assert control.integral[1] < FIRST
    assert LEAST <= share[0] < 0.05


def test_what_a_long_disaster_leaves_is_bounded_and_paid_off_in_time():
    control, share = no_cost_seen(1), jnp.zeros(1)
    for _ in range(500):
        control, share = steered(control, measured=1000.0, spent=1000.0)
    assert (control.integral[0], share[0]) == (pytest.approx(MOST), 1.0)
    updates = 0
    while share[0] >= 0.0:
        control, share = steered(control, measured=0.0, spent=0.0)
        updates += 1
    assert updates < MOST / INTEGRAL


def skewed_cost(rule, start, seed, *, rare, updates=12_000):
    """Cost of each update after the first quarter. A share `rare` of the updates has all of it.

    The logarithm of the mean falls by φ/4, and rises by what the reward's part of the step,
    √(1 − φ²), costs unforeseen.
    """

    def one(carry, key):
        state, log_mean = carry
        cost = jnp.where(jax.random.bernoulli(key, rare), jnp.exp(log_mean) / rare, 0.0)
        state, share = rule(state, cost)
        moved = -0.25 * share + 0.1 * jnp.sqrt(1.0 - share**2)
        return (state, jnp.clip(log_mean + moved, -3.0, 6.0)), cost

    keys = jax.random.split(jax.random.key(seed), updates)
    cost = jax.jit(lambda: jax.lax.scan(one, (start, jnp.zeros(())), keys)[1])()
    return np.asarray(cost)[updates // 4 :]


def by_sign(state, cost):
    """A recovery wherever the faded cost is above the aim."""
    state = 0.6 * state + 0.4 * cost
    return state, jnp.where(state > AIM, 1.0, 0.0)


def by_controller(state, cost):
    state, share = steered(state, measured=cost, spent=cost)
    return state, share[0]


@pytest.mark.parametrize("rare", [0.2, 0.12])
def test_the_mean_of_a_skewed_cost_is_the_aim_where_a_sign_misses_it(rare):
    """By a sign one of the two costs too little, the other half too much."""
    controlled = skewed_cost(by_controller, no_cost_seen(1), 0, rare=rare)
    signed = skewed_cost(by_sign, jnp.zeros(()), 0, rare=rare)
    assert np.median(controlled) == 0.0
    assert controlled.mean() == pytest.approx(AIM, rel=0.08)
    assert abs(signed.mean() - AIM) > 0.18 * AIM
