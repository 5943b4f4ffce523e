"""The Gaussian against SciPy, the networks against matrix products, and how they start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cmbpo.networks import Critic, Gaussian, Linear, Mlp, Normaliser, Policy, identity_normaliser

MEAN, OTHER_MEAN = np.array([0.3, -1.0]), np.array([0.1, -0.4])
LOG_STD, OTHER_LOG_STD = np.array([-0.5, 0.4]), np.array([0.2, -0.1])


def test_log_prob_is_that_of_independent_normals(x64):
    act = np.array([0.7, -0.2])
    found = Gaussian(jnp.array(MEAN), jnp.array(LOG_STD)).log_prob(jnp.array(act))
    np.testing.assert_allclose(found, stats.norm.logpdf(act, MEAN, np.exp(LOG_STD)).sum())


def test_entropy_is_that_of_independent_normals(x64):
    found = Gaussian(jnp.array(MEAN), jnp.array(LOG_STD)).entropy()
    np.testing.assert_allclose(found, stats.norm.entropy(MEAN, np.exp(LOG_STD)).sum())


def test_kl_is_the_integral_of_its_definition(x64):
    x = np.linspace(-25.0, 25.0, 200_001)
    log_p = stats.norm.logpdf(x[:, None], MEAN, np.exp(LOG_STD))
    log_q = stats.norm.logpdf(x[:, None], OTHER_MEAN, np.exp(OTHER_LOG_STD))
    expected = np.trapezoid(np.exp(log_p) * (log_p - log_q), x, axis=0).sum()
    self = Gaussian(jnp.array(MEAN), jnp.array(LOG_STD))
    other = Gaussian(jnp.array(OTHER_MEAN), jnp.array(OTHER_LOG_STD))
    np.testing.assert_allclose(self.kl(other), expected, rtol=1e-6)
    assert float(self.kl(self)) == 0.0


def test_samples_have_the_mean_and_the_deviation():
    gaussian = Gaussian(
        jnp.broadcast_to(jnp.array([1.0, -2.0]), (20_000, 2)),
        jnp.broadcast_to(jnp.log(jnp.array([0.5, 2.0])), (20_000, 2)),
    )
    draws = gaussian.sample(key=jax.random.key(0))
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -2.0], atol=0.06)
    np.testing.assert_allclose(draws.std(axis=0), [0.5, 2.0], rtol=0.03)


def test_a_layer_starts_with_glorots_variance():
    weight = Linear(300, 200, scale=2.0, key=jax.random.key(0)).weight
    np.testing.assert_allclose(weight.std(), 2.0 * (2.0 / 500) ** 0.5, rtol=0.02)
    assert abs(weight.mean()) < 1e-3


def test_a_perceptron_is_its_matrix_products():
    net = Mlp((3, 4, 2), activation=jnp.tanh, key=jax.random.key(0))
    x = np.array([0.1, -0.7, 2.0], np.float32)
    first, last = net.layers
    hidden = np.tanh(np.asarray(first.weight) @ x + np.asarray(first.bias))
    expected = np.asarray(last.weight) @ hidden + np.asarray(last.bias)
    np.testing.assert_allclose(net(jnp.array(x)), expected, rtol=1e-5)


def test_a_normaliser_undoes_itself():
    normaliser = Normaliser(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    x = jnp.array([4.0, 5.0])
    np.testing.assert_allclose(normaliser(x), [6.0, 7.0 / 3.0], rtol=1e-6)
    np.testing.assert_allclose(normaliser.undo(normaliser(x)), x, rtol=1e-6)
    np.testing.assert_allclose(identity_normaliser(2)(x), x)


def test_a_small_last_layer_starts_near_zero_action():
    def largest(scale: float) -> float:
        policy = Policy(
            4, 2, hidden=(16,), log_std=-0.5, last_layer_scale=scale, key=jax.random.key(0)
        )
        obs = jax.random.normal(jax.random.key(1), (50, 4))
        return float(jnp.abs(jax.vmap(policy)(obs).mean).max())

    assert largest(0.01) < 0.05 < largest(1.0)


def test_the_policy_sees_normalised_observations():
    policy = Policy(3, 1, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(0))
    shift = Normaliser(jnp.ones(3), 2.0 * jnp.ones(3))
    shifted = eqx.tree_at(lambda p: p.normaliser, policy, shift)
    obs = jnp.array([0.5, 1.0, -2.0])
    np.testing.assert_allclose(shifted(1.0 + 2.0 * obs).mean, policy(obs).mean, rtol=1e-5)


def test_a_critic_is_the_mean_of_independent_networks():
    critic = Critic(3, hidden=(8,), members=3, key=jax.random.key(0))
    critic = eqx.tree_at(
        lambda c: c.output, critic, Normaliser(5.0 * jnp.ones(1), 2.0 * jnp.ones(1))
    )
    obs = jnp.array([0.5, 1.0, -2.0])
    each = [jax.tree.map(lambda x, i=i: x[i], critic.members)(obs)[0] for i in range(3)]
    assert len({float(v) for v in each}) == 3
    np.testing.assert_allclose(critic(obs), 5.0 + 2.0 * np.mean(each), rtol=1e-6)


def test_an_untrained_critic_says_almost_nothing():
    critic = Critic(3, hidden=(64, 64), members=3, key=jax.random.key(0))
    values = jax.vmap(critic)(jax.random.normal(jax.random.key(1), (50, 3)))
    assert float(jnp.abs(values).max()) < 0.1


@pytest.mark.parametrize("leading", [(), (5,), (5, 2)])
def test_a_gaussian_keeps_leading_axes(leading):
    gaussian = Gaussian(jnp.zeros((*leading, 3)), jnp.zeros((*leading, 3)))
    assert gaussian.log_prob(jnp.zeros((*leading, 3))).shape == leading
    assert gaussian.kl(gaussian).shape == leading
    assert gaussian.entropy().shape == leading
