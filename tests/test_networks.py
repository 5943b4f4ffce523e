"""The distributions against SciPy, the networks against matrix products, and how they start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cmbpo.networks import (
    LOG_STD_RANGE,
    Critic,
    Gaussian,
    Linear,
    Mlp,
    Normaliser,
    Policy,
    SquashedGaussian,
    SquashedPolicy,
    identity_normaliser,
)

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


def squashed(mean, deviation) -> SquashedGaussian:
    return SquashedGaussian(jnp.asarray(mean), jnp.log(jnp.asarray(deviation)))


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.7, 0.3), (-2.0, 1.5)])
def test_the_density_of_a_squashed_gaussian_is_the_derivative_of_its_distribution(
    x64, mean, deviation
):
    """P(tanh(u) ≤ a) = Φ((atanh a − μ)/σ)."""
    act = np.linspace(-0.999, 0.999, 41)
    noise = (np.arctanh(act) - mean) / deviation
    pi = squashed(np.full((41, 1), mean), np.full((41, 1), deviation))
    found, log_prob = pi.draw(jnp.asarray(noise[:, None]))
    np.testing.assert_allclose(found[:, 0], act, atol=1e-9)
    step = 1e-6
    above, below = (stats.norm.cdf((np.arctanh(act + d) - mean) / deviation) for d in (step, -step))
    np.testing.assert_allclose(np.exp(log_prob), (above - below) / (2 * step), rtol=1e-4, atol=1e-9)


def test_the_density_of_a_squashed_gaussian_adds_up_to_one(x64):
    before = np.linspace(-12.0, 12.0, 4001)[:, None]
    pi = squashed(np.full_like(before, 0.4), np.full_like(before, 0.8))
    act, log_prob = pi.draw(jnp.asarray((before - 0.4) / 0.8))
    assert np.trapezoid(np.exp(log_prob), act[:, 0]) == pytest.approx(1.0, abs=1e-5)


def test_the_log_density_of_several_actions_is_the_sum_of_theirs():
    noise = jnp.array([0.3, -1.0])
    both = squashed([0.2, -0.4], [0.5, 2.0]).draw(noise)[1]
    apart = [
        squashed([m], [s]).draw(noise[i : i + 1])[1]
        for i, (m, s) in enumerate([(0.2, 0.5), (-0.4, 2.0)])
    ]
    np.testing.assert_allclose(both, sum(apart), rtol=1e-5)


def test_no_action_is_too_close_to_its_bound_for_a_finite_density_and_gradient():
    def log_prob(mean):
        return squashed([mean], [1.0]).draw(jnp.zeros(1))[1]

    for mean in (-30.0, 30.0):
        value, slope = jax.value_and_grad(log_prob)(mean)
        assert np.isfinite(value)
        assert np.isfinite(slope)


def test_a_squashed_policy_starts_nearly_uniform_and_acts_within_its_bounds():
    policy = SquashedPolicy(
        3, 2, hidden=(16,), log_std=0.0, last_layer_scale=0.01, key=jax.random.key(0)
    )
    obs, noise = jnp.ones(3), np.random.default_rng(0).normal(size=(4000, 2)).astype(np.float32)
    act = np.asarray(jax.vmap(lambda n: policy.act(obs, n))(jnp.asarray(noise)))
    assert np.abs(act).max() < 1.0
    np.testing.assert_allclose(act.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(act.std(axis=0), 1 / np.sqrt(3), atol=0.06)
    np.testing.assert_allclose(policy(obs).noiseless, policy.act(obs, jnp.zeros(2)), atol=1e-6)


def test_the_deviation_of_a_squashed_policy_is_the_states_and_stays_in_its_range():
    policy = SquashedPolicy(
        3, 2, hidden=(16,), log_std=0.0, last_layer_scale=300.0, key=jax.random.key(0)
    )
    found = jax.vmap(policy)(jax.random.normal(jax.random.key(1), (200, 3))).log_std
    assert len(np.unique(np.asarray(found))) > 2
    assert (found.min(), found.max()) == LOG_STD_RANGE


@pytest.mark.parametrize("n", [1, 7])
def test_both_policies_act_as_their_distribution_draws(n):
    keys = jax.random.split(jax.random.key(0), 3)
    obs, noise = jax.random.normal(keys[0], (n, 3)), jax.random.normal(keys[1], (n, 2))
    options = {"hidden": (8,), "log_std": -1.0, "last_layer_scale": 1.0, "key": keys[2]}
    gaussian, tanh = Policy(3, 2, **options), SquashedPolicy(3, 2, **options)
    pi = jax.vmap(gaussian)(obs)
    expected = pi.mean + jnp.exp(pi.log_std) * noise
    np.testing.assert_allclose(jax.vmap(gaussian.act)(obs, noise), expected, rtol=1e-5)
    expected = jax.vmap(tanh)(obs).draw(noise)[0]
    np.testing.assert_allclose(jax.vmap(tanh.act)(obs, noise), expected, rtol=1e-5)


@pytest.mark.parametrize(("activation", "total"), [(jnp.positive, 0.0), (jnp.square, 32.0)])
def test_layer_norm_gives_each_activation_inputs_of_mean_zero_and_deviation_one(activation, total):
    net = Mlp((4, 32, 1), activation=activation, layer_norm=True, key=jax.random.key(0))
    summing = eqx.tree_at(lambda n: n.layers[-1].weight, net, jnp.ones((1, 32)))
    np.testing.assert_allclose(summing(jnp.arange(4.0)), total, rtol=1e-3, atol=1e-4)


def test_a_policy_that_compresses_tells_far_observations_apart_where_tanh_is_flat():
    def mean(compresses: bool, obs: float) -> np.ndarray:
        policy = Policy(
            1,
            2,
            hidden=(16,),
            log_std=0.0,
            last_layer_scale=1.0,
            compresses=compresses,
            key=jax.random.key(0),
        )
        units = Normaliser(jnp.array([2.0]), jnp.array([0.25]))
        return np.asarray(eqx.tree_at(lambda p: p.normaliser, policy, units)(jnp.array([obs])).mean)

    def apart(compresses: bool) -> float:
        return float(np.abs(mean(compresses, 12.0) - mean(compresses, 9.0)).max())

    assert apart(True) > 20.0 * apart(False)
    np.testing.assert_allclose(mean(True, 2.01), mean(False, 2.01), atol=2e-3)
