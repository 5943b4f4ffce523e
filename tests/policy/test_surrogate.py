"""The surrogate against its definition in plain NumPy, and the Fisher matrix against a Hessian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.networks import Normaliser, Policy
from cmbpo.policy.surrogate import flatten, surrogate
from cmbpo.trajectory import Samples

ROWS, OBS, ACT, COST, HORIZON = 60, 3, 2, 2, 1000.0


def policy(key=0) -> Policy:
    pi = Policy(
        OBS, ACT, hidden=(5, 4), log_std=-0.3, last_layer_scale=0.7, key=jax.random.key(key)
    )
    return eqx.tree_at(
        lambda p: p.normaliser, pi, Normaliser(0.3 * jnp.ones(OBS), 2.0 * jnp.ones(OBS))
    )


def samples(pi: Policy, seed=0) -> Samples:
    keys = jax.random.split(jax.random.key(seed), 5)
    obs = jax.random.normal(keys[0], (ROWS, OBS))
    act = jax.vmap(pi)(obs).sample(key=keys[1])
    return Samples(
        obs=obs,
        act=act,
        advantage=jax.random.normal(keys[2], (ROWS,)),
        cost_advantage=jax.random.normal(keys[3], (ROWS, COST)),
        target=jnp.zeros(ROWS),
        cost_target=jnp.zeros((ROWS, COST)),
        valid=jax.random.uniform(keys[4], (ROWS,)) < 0.8,
    )


def moved(theta, size=0.05):
    return theta + size * jax.random.normal(jax.random.key(9), theta.shape)


def test_theta_is_network_and_deviation_and_nothing_else():
    pi = policy()
    theta, rebuild = flatten(pi)
    assert theta.size == 3 * 5 + 5 + 5 * 4 + 4 + 4 * 2 + 2 + ACT
    again = rebuild(moved(theta))
    np.testing.assert_array_equal(flatten(again)[0], moved(theta))
    np.testing.assert_array_equal(again.normaliser.std, pi.normaliser.std)


def test_predictions_are_their_definition(x64):
    pi = policy()
    batch = samples(pi)
    model = surrogate(pi, batch, horizon=HORIZON)
    theta = moved(model.theta)
    new, old = jax.vmap(model.rebuild(theta))(batch.obs), jax.vmap(pi)(batch.obs)
    valid = np.asarray(batch.valid)
    ratio = np.exp(np.asarray(new.log_prob(batch.act) - old.log_prob(batch.act)))[valid]
    found = jax.jit(model.predict)(theta)
    a, a_c = np.asarray(batch.advantage)[valid], np.asarray(batch.cost_advantage)[valid]
    np.testing.assert_allclose(found.reward, (ratio * a).mean() - a.mean(), rtol=1e-9)
    expected = HORIZON * ((ratio[:, None] * a_c).mean(axis=0) - a_c.mean(axis=0))
    np.testing.assert_allclose(found.cost, expected, rtol=1e-9)
    np.testing.assert_allclose(found.kl, np.asarray(new.kl(old))[valid].mean(), rtol=1e-9)


def test_the_old_policy_predicts_no_change():
    pi = policy()
    model = surrogate(pi, samples(pi), horizon=HORIZON)
    found = model.predict(model.theta)
    assert float(found.reward) == 0.0
    assert float(found.kl) == 0.0
    np.testing.assert_array_equal(found.cost, [0.0, 0.0])


def test_gradients_are_finite_differences(x64):
    pi = policy()
    model = surrogate(pi, samples(pi), horizon=HORIZON)
    g, b = jax.jit(model.gradients)()
    predict = jax.jit(model.predict)
    for seed in range(4):
        v = jax.random.normal(jax.random.key(seed), model.theta.shape)
        ahead, behind = predict(model.theta + 1e-5 * v), predict(model.theta - 1e-5 * v)
        np.testing.assert_allclose(g @ v, (ahead.reward - behind.reward) / 2e-5, rtol=1e-5)
        np.testing.assert_allclose(b @ v, (ahead.cost - behind.cost) / 2e-5, rtol=1e-5)


def test_the_fisher_product_is_the_hessian_of_the_mean_kl(x64):
    pi = policy()
    model = surrogate(pi, samples(pi), horizon=HORIZON)
    hessian = jax.jit(jax.hessian(lambda theta: model.predict(theta).kl))(model.theta)
    found = jax.jit(jax.vmap(model.fisher))(jnp.eye(model.theta.size))
    np.testing.assert_allclose(found, hessian, atol=1e-10)


def test_half_the_fisher_form_is_the_kl_of_a_small_step(x64):
    pi = policy()
    model = surrogate(pi, samples(pi), horizon=HORIZON)
    step = 1e-3 * jax.random.normal(jax.random.key(1), model.theta.shape)
    kl = model.predict(model.theta + step).kl
    np.testing.assert_allclose(0.5 * step @ model.fisher(step), kl, rtol=1e-2)


def test_padding_has_no_influence():
    pi = policy()
    batch = samples(pi)
    noise = jnp.where(batch.valid, 0.0, 100.0)
    dirty = eqx.tree_at(lambda s: s.advantage, batch, batch.advantage + noise)
    clean, dirty = (surrogate(pi, x, horizon=HORIZON) for x in (batch, dirty))
    theta = moved(clean.theta)
    assert float(clean.predict(theta).reward) == float(dirty.predict(theta).reward)
    np.testing.assert_array_equal(clean.fisher(theta), dirty.fisher(theta))


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_the_fisher_matrix_of_some_rows_is_that_of_those_rows_alone(x64, share):
    pi = policy()
    batch = samples(pi)
    rows = np.sort(np.random.default_rng(0).choice(ROWS, round(share * ROWS), replace=False))
    some = surrogate(pi, batch, horizon=HORIZON, fisher_share=share)
    alone = surrogate(pi, jax.tree.map(lambda x: x[rows], batch), horizon=HORIZON)
    v = moved(some.theta)
    np.testing.assert_allclose(some.fisher(v), alone.fisher(v), rtol=1e-10)
    assert float(some.predict(v).kl) != float(alone.predict(v).kl)
