"""Errors of held-out real steps, and imagined steps that make them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data.archive import Archive
from cmbpo.data.data_split import is_held_out
from cmbpo.data.start_states import Starts, past_policies
from cmbpo.model import model_errors
from cmbpo.model.ensemble import Ensemble, predict
from cmbpo.model.model_errors import ROWS, held_out_errors
from cmbpo.networks import Policy
from cmbpo.trajectory import Steps

N_OBS, N_ACT, MEMBERS, CAPACITY = 2, 1, 3, 20_000
OFF = 3.0
"""Factor by which the networks think σ larger than it is."""

errors_of = jax.jit(lambda *args: held_out_errors(*args[:3], key=args[3]))
with_errors = jax.jit(lambda *args: model_errors.with_errors(*args[:2], key=args[2]))


def sigma(obs):
    """Of the real noise: the larger, the farther to the right."""
    return 0.1 * np.exp(0.5 * np.asarray(obs)[..., :1])


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    """Networks that know Δs = (0.2·a, −0.1·s₁), and σ but for a factor."""
    blank = Ensemble(
        N_OBS, N_ACT, hidden=(), members=MEMBERS, elites=MEMBERS, key=jax.random.key(0)
    )
    weight = np.zeros((2 * (N_OBS + 1), N_OBS + N_ACT))
    weight[0, 2], weight[1, 1], weight[3:5, 0] = 0.2, -0.1, 1.0
    bias = np.zeros(2 * (N_OBS + 1))
    bias[3:5] = 2.0 * np.log(OFF * 0.1)
    layer = blank.members.layers[0]
    return eqx.tree_at(
        lambda e: (e.members.layers[0].weight, e.members.layers[0].bias),
        blank,
        (jnp.broadcast_to(weight, layer.weight.shape), jnp.broadcast_to(bias, layer.bias.shape)),
    )


def noise(rows: int, seed: int) -> np.ndarray:
    """Of mean 0 and variance 1, skewed, its two columns correlated."""
    one, other = np.random.default_rng(seed).exponential(size=(2, rows)) - 1.0
    return np.stack([one, 0.8 * one + 0.6 * other], axis=-1)


def remembered(archive: Archive, policy: Policy, missed: np.ndarray, *, epoch: int) -> Archive:
    """Steps of the policy that the networks' means miss by so many σ."""
    rows, random = len(missed), np.random.default_rng(epoch)
    obs = random.uniform(-1.0, 1.0, (rows, N_OBS))
    act = random.uniform(-1.0, 1.0, (rows, N_ACT))
    delta = np.stack([0.2 * act[:, 0], -0.1 * obs[:, 1]], axis=-1) + sigma(obs) * missed
    seen = jnp.asarray(obs, jnp.float32)
    zeros = jnp.zeros(rows)
    steps = Steps(
        obs=seen,
        act=jnp.asarray(act, jnp.float32),
        next_obs=jnp.asarray(obs + delta, jnp.float32),
        reward=zeros,
        cost=zeros[:, None],
        terminated=zeros.astype(bool),
        last=zeros.astype(bool),
        valid=jnp.ones(rows, bool),
    )
    return archives.add(archive, steps, jax.vmap(policy)(seen), epoch)


def policy_of(seed: int) -> Policy:
    return Policy(
        N_OBS, N_ACT, hidden=(4,), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(seed)
    )


def starts_of(archive: Archive, policy: Policy, temperature: float = 20.0) -> Starts:
    return past_policies(archive, policy, temperature=temperature, key=jax.random.key(1))


@pytest.fixture(scope="module")
def archive() -> Archive:
    empty = archives.empty(CAPACITY, N_OBS, N_ACT, 1)
    return remembered(empty, policy_of(0), noise(CAPACITY, 0), epoch=0)


@pytest.fixture(scope="module")
def errors(ensemble, archive):
    return errors_of(ensemble, archive, starts_of(archive, policy_of(0)), jax.random.key(2))


def test_an_error_is_what_the_mean_missed_over_sigma(ensemble, archive, errors):
    """Of as many held-out rows; each is found among all, by the definition."""
    assert errors.shape == (MEMBERS, ROWS, N_OBS)
    expected = predict(ensemble, archive.obs, archive.act)
    missed = archive.next_obs - archive.obs - expected.mean[0, :, :N_OBS]
    every = np.asarray(missed / np.sqrt(expected.variance[0, :, :N_OBS]))
    held = every[np.asarray(is_held_out(archive))]
    nearest = [np.abs(held - one).max(axis=1).min() for one in np.asarray(errors[0])]
    np.testing.assert_allclose(nearest, 0.0, atol=1e-5)
    np.testing.assert_allclose(OFF * held.std(axis=0), 1.0, rtol=0.15)


def test_no_error_is_of_a_row_that_networks_were_fitted_to(ensemble):
    """Rows that are not held out are missed by 1000 σ, also where few others are there."""
    for rows in (30, 3000):
        empty, policy = archives.empty(3000, N_OBS, N_ACT, 1), policy_of(0)
        held = is_held_out(remembered(empty, policy, np.zeros((rows, N_OBS)), epoch=0))
        missed = np.where(np.asarray(held)[:rows, None], 1.0, 1000.0) * np.ones((rows, N_OBS))
        marked = remembered(empty, policy, missed, epoch=0)
        errors = errors_of(ensemble, marked, starts_of(marked, policy), jax.random.key(2))
        assert 0 < held.sum() < rows
        np.testing.assert_allclose(errors, 1.0 / OFF, rtol=1e-3)


def test_where_nothing_is_held_out_errors_are_zero(ensemble):
    few, policy = archives.empty(2, N_OBS, N_ACT, 1), policy_of(0)
    for rows in (2, 1):  # the third goes in place of the first, which is held out
        few = remembered(few, policy, np.ones((rows, N_OBS)), epoch=0)
    assert not is_held_out(few).any()
    errors = errors_of(ensemble, few, starts_of(few, policy), jax.random.key(2))
    np.testing.assert_array_equal(errors, 0.0)


def test_errors_are_of_policies_like_the_present_one(ensemble):
    old, new = policy_of(0), policy_of(5)
    both = archives.empty(4000, N_OBS, N_ACT, 1)
    for epoch, policy in enumerate((old, new)):
        both = remembered(both, policy, np.full((2000, N_OBS), 1.0 + epoch), epoch=epoch)
    starts = starts_of(both, new, temperature=1e4)
    newest = errors_of(ensemble, both, starts, jax.random.key(2))
    np.testing.assert_allclose(newest, 2.0 / OFF, rtol=1e-3)
    of_both = errors_of(ensemble, both, starts_of(both, new, temperature=0.0), jax.random.key(2))
    assert float((of_both > 1.5 / OFF).mean()) == pytest.approx(0.5, abs=4.0 * 0.5 / ROWS**0.5)


def imagined(ensemble, archive, obs: np.ndarray, lanes: int, draws: int = 8) -> np.ndarray:
    """What is added to the mean of one network in so many lanes that stand in one state."""
    starts, seen = starts_of(archive, policy_of(0)), jnp.tile(jnp.array(obs), (lanes, 1))
    prediction = predict(ensemble, seen, jnp.zeros((lanes, N_ACT)))
    found = []
    for seed in range(draws):
        key_errors, key_lanes = jax.random.split(jax.random.key(seed))
        errors = errors_of(ensemble, archive, starts, key_errors)
        delta = with_errors(prediction, errors, key_lanes)
        found.append(np.asarray(delta - prediction.mean[..., :N_OBS])[1])
    return np.concatenate(found)


@pytest.mark.parametrize("place", [-0.8, 0.8])
def test_imagined_steps_have_the_noise_of_real_ones_though_sigma_is_off(ensemble, archive, place):
    """Mean, covariance, skew and tails, in a state where the noise is small or large."""
    obs = np.array([place, 0.3], np.float32)
    found = imagined(ensemble, archive, obs, lanes=4000) / sigma(obs)
    truth = noise(200_000, 1)
    # There are some 2,600 different rows behind them; the variance of e² is 8.
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=4.0 / 2600**0.5)
    np.testing.assert_allclose(np.cov(found.T), np.cov(truth.T), atol=4.0 * (8.0 / 2600) ** 0.5)
    for share in (0.02, 0.25, 0.5, 0.75, 0.98):
        wanted = np.quantile(truth, share, axis=0)
        np.testing.assert_allclose(
            (found <= wanted).mean(axis=0), share, atol=4.0 * (share * (1 - share) / 2600) ** 0.5
        )


def test_all_networks_make_the_error_of_one_step(ensemble, archive, errors):
    lanes = 50
    obs = jnp.asarray(np.random.default_rng(3).uniform(-1.0, 1.0, (lanes, N_OBS)), jnp.float32)
    prediction = predict(ensemble, obs, jnp.zeros((lanes, N_ACT)))
    # Told apart by network: what was missed of row i is i + ½·network.
    marked = jnp.arange(ROWS)[None, :, None] + 0.5 * jnp.arange(MEMBERS)[:, None, None]
    marked = jnp.broadcast_to(marked, errors.shape)
    delta = with_errors(prediction, marked, jax.random.key(4))
    added = (delta - prediction.mean[..., :N_OBS]) / np.sqrt(prediction.variance[..., :N_OBS])
    row = np.asarray(added) - 0.5 * np.arange(MEMBERS)[:, None, None]
    np.testing.assert_allclose(row, np.broadcast_to(row[:1, :, :1], row.shape), atol=1e-2)
    assert len(np.unique(row[0, :, 0].round())) > lanes // 2, "another for each lane"
