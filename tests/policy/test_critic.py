"""Critics fit known functions, keep their values when their units change, and ignore padding."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from cmbpo.networks import Critic, Normaliser
from cmbpo.policy.critic import SHRINK, _orders, critic_optimiser, fit_critic, renormalise

ROWS, OBS = 1500, 3
fit = jax.jit(partial(fit_critic, learning_rate=3e-3), static_argnames=("batch_size", "epochs"))


def problem(seed=0):
    obs = jax.random.normal(jax.random.key(seed), (ROWS, OBS)) * jnp.array([[1.0, 30.0, 0.1]])
    target = 500.0 + 40.0 * jnp.sin(obs[:, 0]) + obs[:, 1] + 200.0 * obs[:, 2]
    return obs, target, jnp.ones(ROWS, bool)


def untrained() -> Critic:
    return Critic(OBS, hidden=(32, 32), members=2, key=jax.random.key(1))


def trained(data, epochs=40):
    critic = untrained()
    return fit(
        critic,
        critic_optimiser(critic),
        *data,
        batch_size=256,
        epochs=epochs,
        key=jax.random.key(2),
    )


def explained(critic, obs, target):
    values = jax.vmap(critic)(obs)
    return 1.0 - float(jnp.mean((target - values) ** 2) / jnp.var(target))


def test_a_fit_explains_a_known_function():
    data = problem()
    critic, _, loss = trained(data)
    obs, target, _ = problem(seed=7)
    assert explained(critic, obs, target) > 0.98
    assert float(loss) < 0.01


def test_each_network_learns_on_its_own():
    critic, _, _ = trained(problem())
    weight = critic.members.layers[0].weight
    assert float(jnp.abs(weight[0] - weight[1]).max()) > 0.1


def test_changing_the_units_changes_no_value():
    critic, _, _ = trained(problem(), epochs=2)
    obs, target, valid = problem(seed=5)
    moved = renormalise(critic, 2.0 * obs + 1.0, 0.5 * target - 30.0, valid, fresh=jnp.array(False))
    assert float(jnp.abs(moved.output.mean - critic.output.mean)[0]) > 100.0
    np.testing.assert_allclose(jax.vmap(moved)(obs), jax.vmap(critic)(obs), rtol=1e-4, atol=1e-2)


def test_units_are_the_statistics_of_the_valid_rows():
    obs, target, _ = problem()
    valid = jnp.arange(ROWS) % 3 != 0
    moved = renormalise(untrained(), obs, target, valid, fresh=jnp.array(True))
    keep = np.asarray(valid)
    np.testing.assert_allclose(moved.input.mean, obs[keep].mean(axis=0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(moved.input.std, obs[keep].std(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moved.output.std, [target[keep].std()], rtol=1e-4)


def test_the_unit_of_values_shrinks_slowly_and_grows_at_once():
    critic, _, _ = trained(problem(), epochs=2)
    obs, target, valid = problem()

    def deviation(scale):
        moved = renormalise(critic, obs, scale * target, valid, fresh=jnp.array(False))
        return float((moved.output.std / critic.output.std)[0])

    np.testing.assert_allclose(deviation(0.0), SHRINK, rtol=1e-5)
    np.testing.assert_allclose(deviation(10.0), 10.0, rtol=1e-4)


def test_padding_teaches_nothing():
    obs, target, _ = problem()
    valid = jnp.arange(ROWS) % 2 == 0
    clean = trained((obs, target, valid), epochs=2)
    other = jnp.where(valid, target, -1e4)
    dirty = trained((obs, other, valid), epochs=2)
    for x, y in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_array_equal(x, y)


def test_constant_targets_are_learned_without_trouble():
    obs, _, valid = problem()
    critic, _, loss = trained((obs, jnp.zeros(ROWS), valid), epochs=5)
    assert np.isfinite(float(loss))
    assert float(jnp.abs(jax.vmap(critic)(obs)).max()) < 1e-2


def test_every_pass_sees_every_row_once_in_a_new_order():
    orders = _orders(120, 2, batch_size=50, epochs=4, key=jax.random.key(0))
    assert orders.shape == (4 * 3, 2, 40)
    passes = np.asarray(orders).reshape(4, 3, 2, 40)
    for one in passes:
        for member in range(2):
            assert sorted(one[:, member].ravel()) == list(range(120))
    first_batches = [frozenset(one[0, m].tolist()) for one in passes for m in range(2)]
    assert len(set(first_batches)) == 8


def test_costs_are_fitted_by_mapping_over_their_critics():
    keys = jax.random.split(jax.random.key(0), 2)
    both = jax.vmap(lambda k: Critic(OBS, hidden=(8,), members=2, key=k))(keys)
    state = jax.vmap(critic_optimiser)(both)
    obs, target, valid = problem()
    targets = jnp.stack([target, -target], axis=1)

    @jax.jit
    def fit_both(both, state):
        def one(critic, opt_state, column, key):
            return fit_critic(
                critic,
                opt_state,
                obs,
                column,
                valid,
                learning_rate=1e-3,
                batch_size=256,
                epochs=2,
                key=key,
            )

        return jax.vmap(one, in_axes=(0, 0, 1, 0))(both, state, targets, keys)

    both, state, loss = fit_both(both, state)
    assert loss.shape == (2,)
    np.testing.assert_allclose(both.output.mean[0], -both.output.mean[1], rtol=1e-6)


def test_a_later_fit_starts_where_the_last_one_ended():
    data = problem()
    critic, state, first = trained(data, epochs=5)
    _, _, second = fit(critic, state, *data, batch_size=256, epochs=5, key=jax.random.key(3))
    assert float(second) < float(first)


def test_values_come_in_the_units_of_the_output():
    critic = eqx.tree_at(
        lambda c: c.output, untrained(), Normaliser(7.0 * jnp.ones(1), jnp.zeros(1))
    )
    assert float(critic(jnp.ones(OBS))) == 7.0
