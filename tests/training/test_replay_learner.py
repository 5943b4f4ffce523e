"""The program of an update from the buffer: in the units of its rewards and costs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.algorithms import sac_lagrangian
from cmbpo.data import replay as replays
from cmbpo.policy.lagrangian import pid_multiplier
from cmbpo.training.learner import CostMeasure
from cmbpo.training.protocol import finite
from cmbpo.training.replay_learner import learn, made
from tests.data.test_archive import numbered
from tests.tiny import tiny

SETTINGS = tiny("sac-lag").for_programs()
HORIZON, TARGET = 100, 10.0


@pytest.fixture(scope="module")
def parts():
    learner = sac_lagrangian.start(3, 2, 2, SETTINGS, key=jax.random.key(0))
    steps, _ = numbered(1, np.ones(10, bool))
    act = jnp.tanh(jax.random.normal(jax.random.key(1), (10, 2)))
    return learner, eqx.tree_at(lambda s: s.act, steps, act)


def updated(parts, *, cost: float, scale: float = 1.0, price: float = 1.0):
    learner, steps = parts
    scaled = eqx.tree_at(
        lambda s: (s.reward, s.cost), steps, (scale * steps.reward, price * steps.cost)
    )
    replay = replays.add(replays.empty(20, 3, 2, 2), scaled)
    one = jnp.ones(2)
    measured = CostMeasure(price * cost * one, price * cost * one, one, jnp.ones(()))
    return learn(
        learner,
        pid_multiplier(2),
        replay,
        measured,
        price * TARGET * one,
        jax.random.key(2),
        settings=SETTINGS,
        horizon=HORIZON,
        real_steps=5,
    )


def test_the_multiplier_moves_before_the_steps_and_by_what_was_measured(parts):
    (_, over, _), (_, under, _) = updated(parts, cost=30.0), updated(parts, cost=1.0)
    assert float(over.value.min()) > 1.0 > float(under.value.max())


def test_an_update_is_the_same_whatever_rewards_and_costs_are_counted_in(parts):
    """With powers of two, so that rounding is the same: the record alone has other units."""
    plain, _, record = updated(parts, cost=30.0)
    scaled, _, other = updated(parts, cost=30.0, scale=8.0, price=4.0)
    for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(scaled), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other.multiplier, 2.0 * record.multiplier, rtol=1e-5)
    np.testing.assert_allclose(other.units.reward, 8.0 * record.units.reward, rtol=1e-5)


def test_what_is_not_finite_is_told_apart(parts):
    learner, steps = parts
    broken = eqx.tree_at(
        lambda l: l.critics.nets.layers[0].bias, learner, replace_fn=lambda b: b * jnp.nan
    )
    assert all(finite(made(learner, steps)).values())
    found = finite(made(broken, steps))
    assert [name for name, whole in found.items() if not whole] == ["the critics"]
