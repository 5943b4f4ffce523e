"""PPO's loss against its definition, and passes that end where the policy has moved enough."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.networks import Policy
from cmbpo.policy import clipped
from cmbpo.policy.surrogate import flatten, surrogate
from cmbpo.trajectory import Samples

OBS, ACT, ROWS = 3, 2, 402
NUMBERS = {"horizon": 1000.0, "learning_rate": 3e-3, "iterations": 30}
run = jax.jit(
    partial(clipped.clipped_step, **NUMBERS, key=jax.random.key(5)),
    static_argnames=("minibatches", "stop_kl"),
)


def setting() -> tuple[Policy, Samples]:
    keys = jax.random.split(jax.random.key(0), 3)
    policy = Policy(OBS, ACT, hidden=(16,), log_std=-0.5, last_layer_scale=0.5, key=keys[0])
    obs = jax.random.normal(keys[1], (ROWS, OBS))
    act = jax.vmap(policy)(obs).sample(key=keys[2])
    advantage = act[:, 0] * jnp.sign(obs[:, 0]) + act[:, 1]
    samples = Samples(
        obs=obs,
        act=act,
        advantage=advantage - advantage.mean(),
        cost_advantage=0.02 * act[:, :1],
        target=jnp.zeros(ROWS),
        cost_target=jnp.zeros((ROWS, 1)),
        valid=jnp.arange(ROWS) % 5 != 0,
    )
    return policy, samples


def test_the_loss_is_its_definition():
    rng = np.random.default_rng(0)
    ratio, advantage = np.exp(rng.normal(size=50)), rng.normal(size=50)
    valid = rng.random(50) < 0.7
    gains = [
        min(r * a, min(max(r, 0.8), 1.2) * a)
        for r, a, v in zip(ratio, advantage, valid, strict=True)
        if v
    ]
    found = clipped.clipped_loss(
        jnp.array(ratio, jnp.float32),
        jnp.array(advantage, jnp.float32),
        jnp.array(valid),
        clip=0.2,
    )
    np.testing.assert_allclose(found, -np.mean(gains), rtol=1e-5)


def test_there_is_nothing_to_gain_beyond_the_clip():
    slope = jax.grad(
        lambda r: clipped.clipped_loss(r, jnp.array([1.0, -1.0]), jnp.ones(2, bool), clip=0.2)
    )
    np.testing.assert_array_equal(slope(jnp.array([1.3, 0.7])), [0.0, 0.0])
    np.testing.assert_allclose(slope(jnp.array([0.7, 1.3])), [-0.5, 0.5])


@pytest.mark.slow
def test_the_passes_end_soon_after_the_kl_is_reached():
    policy, samples = setting()
    new, _, report = run(
        policy, clipped.start_optimiser(policy), samples, minibatches=1, stop_kl=0.012
    )
    assert 1 < int(report.passes) < 30
    assert 0.012 < float(report.kl) < 0.03
    assert float(report.reward_change) > 0.0
    truth = surrogate(policy, samples, horizon=1000.0).predict(flatten(new)[0])
    np.testing.assert_allclose(report.kl, truth.kl, rtol=1e-4)
    np.testing.assert_allclose(report.cost_change, truth.cost, rtol=1e-3)


def test_a_pass_that_goes_much_too_far_is_taken_back():
    policy, samples = setting()
    new, _, report = clipped.clipped_step(
        policy,
        clipped.start_optimiser(policy),
        samples,
        **{**NUMBERS, "learning_rate": 1.0},
        minibatches=6,
        stop_kl=0.02,
        key=jax.random.key(5),
    )
    assert 0.0 < report.kl <= clipped.OVERSHOOT * 0.02
    model = surrogate(policy, samples, horizon=1000.0)
    np.testing.assert_allclose(model.predict(flatten(new)[0]).kl, report.kl, rtol=1e-4)


def test_without_a_stop_all_passes_are_made():
    policy, samples = setting()
    _, state, report = run(
        policy, clipped.start_optimiser(policy), samples, minibatches=4, stop_kl=1e9
    )
    assert int(report.passes) == 30
    assert int(state.count) == 30 * 4


def test_padding_teaches_nothing():
    policy, samples = setting()
    noise = jnp.where(samples.valid, 0.0, 50.0)
    dirty = eqx.tree_at(lambda s: s.advantage, samples, samples.advantage + noise)
    found = [
        flatten(run(policy, clipped.start_optimiser(policy), x, minibatches=1, stop_kl=0.012)[0])[0]
        for x in (samples, dirty)
    ]
    np.testing.assert_array_equal(found[0], found[1])
