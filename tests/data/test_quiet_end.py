"""The noise at the end of a run: its formula, and that it is the policy that acts."""

import math
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data.quiet_end import QUIET, next_noise
from cmbpo.networks import Policy
from cmbpo.policy.surrogate import surrogate
from cmbpo.trajectory import Samples

N_OBS, N_ACT, ROWS = 3, 2, 64


def after(noise: float, *, env_steps: int, cost=0.0, quiet_end: float = 0.2, steps: float = 10.0):
    return next_noise(
        noise,
        env_steps=env_steps,
        total_steps=1000,
        quiet_end=quiet_end,
        steps=steps,
        cost=np.atleast_1d(cost),
        target=np.full(np.size(cost), 6.0),
    )


def test_within_the_target_it_falls_by_as_much_in_each_step():
    level, levels = 1.0, []
    for env_steps in range(700, 1001, 10):
        level = after(level, env_steps=env_steps)
        levels.append(level)
    assert levels[:10] == [1.0] * 10, "until a fifth of the steps is left"
    falls = [b / a for a, b in pairwise(levels[9:30])]
    assert falls == pytest.approx([QUIET ** (10.0 / 200.0)] * 20)
    assert levels[29:] == pytest.approx([QUIET, QUIET]), "and not further"


@pytest.mark.parametrize("cost", [6.1, [0.0, 6.1], np.inf])
def test_beyond_the_target_of_any_cost_it_waits(cost):
    assert after(0.7, env_steps=900, cost=cost) == 0.7


def test_a_run_that_goes_on_is_loud_again():
    assert after(0.1, env_steps=700, cost=100.0) == 1.0


def test_without_a_quiet_end_there_is_none():
    assert {after(0.1, env_steps=t, quiet_end=0.0) for t in (0, 999, 1100)} == {1.0}


def policy(level: float) -> Policy:
    made = Policy(
        N_OBS, N_ACT, hidden=(8,), log_std=-0.7, last_layer_scale=1.0, key=jax.random.key(0)
    )
    return eqx.tree_at(lambda p: p.noise, made, jnp.float32(level))


def test_a_quiet_policy_is_one_whose_deviation_is_that_much_smaller():
    """Drawn, weighed and measured as a policy of that deviation, with the Fisher matrix of it."""
    quiet, loud = policy(0.1), policy(1.0)
    narrow = eqx.tree_at(lambda p: p.log_std, loud, loud.log_std + math.log(0.1))
    obs = jax.random.normal(jax.random.key(1), (ROWS, N_OBS))
    drawn = jax.vmap(lambda o, k: quiet(o).sample(key=k))(
        obs, jax.random.split(jax.random.key(2), ROWS)
    )
    samples = Samples(
        obs=obs,
        act=drawn,
        advantage=jax.random.normal(jax.random.key(3), (ROWS,)),
        cost_advantage=jax.random.normal(jax.random.key(4), (ROWS, 1)),
        target=jnp.zeros(ROWS),
        cost_target=jnp.zeros((ROWS, 1)),
        valid=jnp.ones(ROWS, bool),
    )
    one, other = (surrogate(p, samples, horizon=1000.0) for p in (quiet, narrow))
    v = jax.random.normal(jax.random.key(5), one.theta.shape)
    np.testing.assert_allclose(one.fisher(v), other.fisher(v), rtol=1e-4)
    for found, wanted in zip(one.gradients(), other.gradients(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-3)
    # The noise is no part of θ: what an update returns is as quiet as what it began with.
    assert float(one.rebuild(one.theta + v).noise) == pytest.approx(0.1)
    zero = jnp.zeros(N_ACT)
    np.testing.assert_allclose(quiet.act(obs[0], zero), loud.act(obs[0], zero))
    spread = quiet.act(obs[0], zero + 1.0) - quiet.act(obs[0], zero)
    np.testing.assert_allclose(spread, 0.1 * math.exp(-0.7), rtol=1e-5)
