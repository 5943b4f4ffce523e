"""The rules of the multipliers against their formulas, and the penalised advantage."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from cmbpo.policy.lagrangian import (
    AdamMultiplier,
    PidMultiplier,
    adam_multiplier,
    ascend,
    control,
    follow,
    penalise,
    pid_multiplier,
    relative,
    start,
)
from cmbpo.trajectory import Samples


def test_multipliers_start_where_they_are_told():
    np.testing.assert_allclose(adam_multiplier(2).value, [1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(adam_multiplier(1, first=0.01).value, [0.01], rtol=1e-5)
    np.testing.assert_allclose(pid_multiplier(3, first=0.5).value, [0.5, 0.5, 0.5])


def test_adam_follows_its_formula():
    multiplier = adam_multiplier(2)
    xi, m, v = np.log(np.expm1(1.0)) * np.ones(2), np.zeros(2), np.zeros(2)
    rng = np.random.default_rng(0)
    for t in range(1, 8):
        excess = rng.normal(size=2) * 20.0
        multiplier = ascend(multiplier, jnp.array(excess, jnp.float32), learning_rate=0.05)
        m, v = 0.9 * m + 0.1 * excess, 0.999 * v + 0.001 * excess**2
        xi = xi + 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(multiplier.value, np.log1p(np.exp(xi)), rtol=1e-4)


def test_a_broken_limit_raises_only_its_own_multiplier():
    multiplier = adam_multiplier(2)
    for _ in range(20):
        multiplier = ascend(multiplier, jnp.array([5.0, -5.0]), learning_rate=0.05)
    assert multiplier.value[0] > 1.5
    assert 0.0 < multiplier.value[1] < 0.7


def test_the_controller_follows_its_formula():
    rng = np.random.default_rng(0)
    excess = rng.normal(size=(9, 1)) * 10.0
    multiplier = pid_multiplier(1, first=0.3, delay=3)
    integral, smooth, past = 0.3, 0.0, [0.0, 0.0, 0.0]
    for e in excess[:, 0]:
        multiplier = control(
            multiplier, jnp.array([e], jnp.float32), gains=(0.1, 0.01, 0.2), smoothing=0.8
        )
        integral = max(0.0, integral + 0.01 * e)
        smooth = 0.8 * smooth + 0.2 * e
        rise = max(0.0, smooth - past.pop(0))
        past.append(smooth)
        expected = max(0.0, 0.1 * smooth + integral + 0.2 * rise)
        np.testing.assert_allclose(multiplier.value, [expected], rtol=1e-4, atol=1e-6)


def test_no_multiplier_is_ever_negative():
    adam, pid = adam_multiplier(1, first=0.1), pid_multiplier(1, first=0.1)
    for _ in range(50):
        adam = ascend(adam, jnp.array([-10.0]), learning_rate=0.05)
        pid = control(pid, jnp.array([-10.0]), gains=(0.1, 0.01, 0.01))
    assert float(adam.value[0]) >= 0.0
    assert float(pid.value[0]) == 0.0


def test_multipliers_follow_the_rule_that_they_were_started_with():
    gains = (0.1, 0.01, 0.2)
    adam, pid = start("adam", 2), start("pid", 2)
    assert isinstance(adam, AdamMultiplier)
    assert isinstance(pid, PidMultiplier)
    excess, target = jnp.array([3.0, -1.0]), jnp.array([6.0, 2.0])
    told = jnp.array([0.5, -0.5])
    for found, expected in (
        (follow(adam, excess, target, gains=gains), ascend(adam, excess)),
        (follow(pid, excess, target, gains=gains), control(pid, told, gains=gains)),
    ):
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)


def test_the_excess_is_told_in_limits_and_bounded():
    excess, target = jnp.array([-4.0, 5.0, 1e3]), jnp.array([4.0, 10.0, 10.0])
    np.testing.assert_allclose(relative(excess, target), [-1.0, 0.5, 2.0])
    np.testing.assert_allclose(relative(1e-3 * excess, 1e-3 * target), [-1.0, 0.5, 2.0], rtol=1e-6)
    np.testing.assert_allclose(relative(excess, target, least=20.0), [-0.2, 0.25, 2.0])
    of_no_limit = relative(jnp.array([0.0, 0.1]), jnp.zeros(2))
    np.testing.assert_array_equal(of_no_limit, [0.0, 2.0])


def some_samples(advantage, cost, valid) -> Samples:
    rows = len(advantage)
    return Samples(
        obs=jnp.zeros((rows, 1)),
        act=jnp.zeros((rows, 1)),
        advantage=jnp.array(advantage, jnp.float32),
        cost_advantage=jnp.array(cost, jnp.float32),
        target=jnp.zeros(rows),
        cost_target=jnp.zeros_like(jnp.array(cost, jnp.float32)),
        valid=jnp.array(valid),
    )


def fixed_adam(value) -> AdamMultiplier:
    xi = jnp.log(jnp.expm1(jnp.array(value, jnp.float32)))
    return AdamMultiplier(xi, adam_multiplier(len(value)).opt_state)


def fixed_pid(value) -> PidMultiplier:
    return replace(pid_multiplier(len(value)), value=jnp.array(value, jnp.float32))


def test_the_penalised_advantage_is_its_formula():
    rng = np.random.default_rng(0)
    advantage, cost = rng.normal(size=10), rng.normal(size=(10, 2)) * [0.1, 30.0]
    cost = cost - cost[:8].mean(axis=0)
    valid = np.arange(10) < 8
    samples = some_samples(advantage, cost, valid)
    for multiplier, unit in ((fixed_adam, np.ones(2)), (fixed_pid, cost[:8].std(axis=0))):
        found = penalise(samples, multiplier([2.0, 0.5]))
        expected = (advantage - 2.0 * cost[:, 0] / unit[0] - 0.5 * cost[:, 1] / unit[1]) / 3.5
        np.testing.assert_allclose(found.advantage[:8], expected[:8], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found.cost_advantage, samples.cost_advantage)


def test_no_unit_of_cost_changes_what_is_penalised_and_no_cost_penalises_nothing():
    rng = np.random.default_rng(0)
    advantage, cost = rng.normal(size=10), rng.normal(size=(10, 1))
    cost -= cost.mean()
    one, other, none = (
        penalise(some_samples(advantage, unit * cost, np.ones(10, bool)), fixed_pid([1.5]))
        for unit in (1.0, 1e-4, 0.0)
    )
    np.testing.assert_allclose(one.advantage, other.advantage, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(none.advantage, advantage / 2.5, rtol=1e-5)
