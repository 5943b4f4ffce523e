"""The rules of the multipliers against their formulas, and the penalised advantage."""

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
    excess = jnp.array([3.0, -1.0])
    for found, expected in (
        (follow(adam, excess, gains=gains), ascend(adam, excess)),
        (follow(pid, excess, gains=gains), control(pid, excess, gains=gains)),
    ):
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_penalised_advantage_is_its_formula():
    rng = np.random.default_rng(0)
    advantage, cost = rng.normal(size=10), rng.normal(size=(10, 2))
    samples = Samples(
        obs=jnp.zeros((10, 1)),
        act=jnp.zeros((10, 1)),
        advantage=jnp.array(advantage, jnp.float32),
        cost_advantage=jnp.array(cost, jnp.float32),
        target=jnp.zeros(10),
        cost_target=jnp.zeros((10, 2)),
        valid=jnp.ones(10, bool),
    )
    found = penalise(samples, jnp.array([2.0, 0.5]))
    expected = (advantage - 2.0 * cost[:, 0] - 0.5 * cost[:, 1]) / 3.5
    np.testing.assert_allclose(found.advantage, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.cost_advantage, samples.cost_advantage)
