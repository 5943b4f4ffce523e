"""What the squashed policy maximises, against its definition, and where its entropy settles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.networks import SquashedPolicy
from cmbpo.policy.soft_actor import ENTROPY, policy_loss, temperature_gradient, weights
from cmbpo.policy.soft_critic import SoftCritics

ROWS = 20
LAMBDA = np.array([2.0, 0.5])


@pytest.fixture(scope="module")
def parts():
    keys = jax.random.split(jax.random.key(0), 4)
    policy = SquashedPolicy(3, 2, hidden=(8,), log_std=-0.5, last_layer_scale=1.0, key=keys[0])
    critics = SoftCritics(3, 2, 3, hidden=(8,), key=keys[1])
    obs, noise = jax.random.normal(keys[2], (ROWS, 3)), jax.random.normal(keys[3], (ROWS, 2))
    return policy, critics, obs, noise


def test_the_loss_is_that_of_the_penalised_soft_values(parts):
    policy, critics, obs, noise = parts
    alpha = 0.3
    total, log_probs = 0.0, []
    for one, draw in zip(obs, noise, strict=True):
        act, log_prob = policy(one).draw(draw)
        double = np.asarray(critics(one, act))
        # networks 1 and 2 are of −c: the larger cost of two is the less of these
        reward, costs = double[0].min(), (-double[1:]).max(axis=1)
        total += (alpha * float(log_prob) - reward + LAMBDA @ costs) / (1.0 + LAMBDA.sum())
        log_probs.append(float(log_prob))
    found, entropy = policy_loss(
        policy,
        critics,
        obs,
        noise,
        temperature=jnp.array(alpha),
        multiplier=jnp.asarray(LAMBDA, jnp.float32),
    )
    np.testing.assert_allclose(found, total / ROWS, rtol=1e-4)
    np.testing.assert_allclose(entropy, -np.mean(log_probs), rtol=1e-4)


def test_without_multipliers_only_the_reward_counts():
    np.testing.assert_allclose(weights(jnp.zeros(2)), [1.0, 0.0, 0.0])
    np.testing.assert_allclose(weights(jnp.array([1.0, 2.0])), [0.25, 0.25, 0.5])


def test_the_temperature_rises_where_there_is_too_little_entropy_and_falls_where_too_much():
    wanted = ENTROPY * 3
    assert float(temperature_gradient(jnp.array(wanted - 1.0), n_act=3)) < 0.0
    assert float(temperature_gradient(jnp.array(wanted + 1.0), n_act=3)) > 0.0
    assert float(temperature_gradient(jnp.array(wanted), n_act=3)) == 0.0
