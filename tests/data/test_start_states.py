import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from cmbpo.data import archive as archives
from cmbpo.data.archive import Archive
from cmbpo.data.start_states import past_policies
from cmbpo.networks import Gaussian, Policy
from cmbpo.trajectory import Steps

N_OBS, N_ACT = 2, 1

weigh = jax.jit(past_policies, static_argnames=("temperature", "policies", "samples"))


def archive_of(epochs: list[int], means: np.ndarray, *, capacity: int) -> Archive:
    n = len(epochs)
    rng = np.random.default_rng(0)
    archive = archives.empty(capacity, N_OBS, N_ACT, 2)
    for start in range(0, n, 10):
        rows = slice(start, start + 10)
        count = len(epochs[rows])
        obs = jnp.asarray(rng.normal(size=(count, N_OBS)), jnp.float32)
        zeros = jnp.zeros(count)
        steps = Steps(
            obs=obs,
            act=jnp.zeros((count, N_ACT)),
            next_obs=obs,
            reward=zeros,
            cost=jnp.zeros((count, 2)),
            terminated=zeros.astype(bool),
            last=zeros.astype(bool),
            valid=jnp.ones(count, bool),
        )
        behaviour = Gaussian(jnp.asarray(means[rows], jnp.float32)[:, None], zeros[:, None])
        archive = archives.add(archive, steps, behaviour, epochs[start])
    return archive


def still_policy() -> Policy:
    """π(a|s) = N(0, 1) everywhere."""
    policy = Policy(
        N_OBS, N_ACT, hidden=(4,), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(1)
    )
    last = policy.net.layers[-1]
    return eqx.tree_at(lambda p: p.net.layers[-1].weight, policy, jnp.zeros_like(last.weight))


def test_past_policies_are_weighted_by_their_divergence_and_share_it_among_their_rows():
    epochs = [3] * 30 + [4] * 10 + [6] * 20
    means = np.array([2.0] * 30 + [1.0] * 10 + [0.5] * 20)
    archive = archive_of(epochs, means, capacity=100)
    starts = weigh(
        archive, still_policy(), temperature=0.7, policies=8, samples=256, key=jax.random.key(0)
    )
    weight = np.exp(-0.7 * 0.5 * np.array([0.5, 1.0, 2.0]) ** 2)
    probability = weight / weight.sum()
    np.testing.assert_allclose(starts.probability[jnp.array([0, 2, 3])], probability, rtol=1e-5)
    np.testing.assert_allclose(starts.probability.sum(), 1.0, rtol=1e-6)
    np.testing.assert_allclose(starts.effective(), 1.0 / (probability**2).sum(), rtol=1e-5)
    rows = np.asarray(starts.draw(archive, (20_000,), key=jax.random.key(1)))
    share = np.bincount(rows, minlength=100) / rows.size
    expected = np.repeat(probability[::-1], [30, 10, 20]) / np.repeat([30, 10, 20], [30, 10, 20])
    np.testing.assert_allclose(share[:60], expected, atol=0.004)
    assert share[60:].sum() == 0.0


def test_starts_follow_the_ring_and_very_old_policies_count_as_one():
    epochs = [k for k in range(8) for _ in range(10)]
    archive = archive_of(epochs, np.zeros(80), capacity=50)
    starts = weigh(
        archive, still_policy(), temperature=5.0, policies=3, samples=256, key=jax.random.key(0)
    )
    np.testing.assert_allclose(starts.probability, 1.0 / 3.0, rtol=1e-5)
    rows = starts.draw(archive, (3000,), key=jax.random.key(1))
    share = np.bincount(np.asarray(archive.epoch)[rows], minlength=8) / 3000
    np.testing.assert_allclose(share, [0, 0, 0] + [1 / 9] * 3 + [1 / 3] * 2, atol=0.03)
