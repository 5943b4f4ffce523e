"""The noise at the end of a run: its formula, and that it is the policy that acts."""

import math
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data.quiet_end import QUIET, noise
from cmbpo.networks import Policy
from cmbpo.policy.surrogate import surrogate
from cmbpo.trajectory import Samples

N_OBS, N_ACT, ROWS = 3, 2, 64


def test_it_falls_by_as_much_in_each_step_of_the_last_share():
    levels = [noise(t, total_steps=1000, quiet_end=0.2) for t in range(0, 1001, 50)]
    assert levels[:17] == [1.0] * 17
    ratios = [b / a for a, b in pairwise(levels[16:])]
    assert ratios == pytest.approx([QUIET**0.25] * 4)
    assert noise(1400, total_steps=1000, quiet_end=0.2) == pytest.approx(QUIET)


def test_without_a_quiet_end_there_is_none():
    assert {noise(t, total_steps=10, quiet_end=0.0) for t in (0, 10, 20)} == {1.0}


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
