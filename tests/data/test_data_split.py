import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data import data_split
from cmbpo.data.archive import Archive
from cmbpo.trajectory import Steps
from cmbpo.data.data_split import Order
from cmbpo.networks import Gaussian

is_held_out = jax.jit(data_split.is_held_out, static_argnames=("holdout", "max_holdout"))
is_seen = jax.jit(data_split.is_seen, static_argnames="subsample")


def archive_of(rows: int, *, capacity: int = 4096) -> Archive:
    zeros, pairs = jnp.zeros(rows), jnp.zeros((rows, 2))
    steps = Steps(
        obs=pairs,
        act=pairs,
        next_obs=pairs,
        reward=zeros,
        cost=zeros[:, None],
        terminated=zeros.astype(bool),
        last=zeros.astype(bool),
        valid=jnp.ones(rows, bool),
    )
    return archives.add(archives.empty(capacity, 2, 2, 1), steps, Gaussian(pairs, pairs), 0)


def test_no_row_is_both_learned_and_held_out_and_networks_learn_from_different_rows():
    archive = archive_of(3000)
    held = np.asarray(is_held_out(archive, holdout=0.2, max_holdout=10_000))
    seen = np.stack([is_seen(archive, m, subsample=0.8) for m in range(7)])
    assert not held[3000:].any()
    assert not seen[:, 3000:].any()
    assert held.sum() == pytest.approx(600, abs=80)
    assert np.abs(seen.sum(axis=1) - 2400).max() < 80
    # Independent shares of 0.8 differ in 2 · 0.8 · 0.2 of the rows.
    for m in range(7):
        for n in range(m):
            assert (seen[m] != seen[n])[:3000].mean() == pytest.approx(0.32, abs=0.04)
        assert seen[m][held].mean() == pytest.approx(0.8, abs=0.06)


def test_a_row_once_learned_is_never_held_out_and_keeps_its_networks():
    small, large = archive_of(1000), archive_of(4000)
    held_small, held_large = (
        np.asarray(is_held_out(a, holdout=0.2, max_holdout=300)) for a in (small, large)
    )
    assert not (held_large & ~held_small)[:1000].any()
    for m in range(3):
        before = is_seen(small, m, subsample=0.8)[:1000]
        np.testing.assert_array_equal(before, is_seen(large, m, subsample=0.8)[:1000])


@pytest.mark.parametrize("count", [1, 2, 131, 997, 131 * 211, 5000])
def test_an_epoch_visits_each_own_row_once(count):
    own = jnp.zeros(30_000, bool).at[jnp.arange(count) + 17].set(True)
    order = Order(own)
    orders = set()
    for epoch in range(3):
        rows = np.asarray(order.walk(key=jax.random.key(epoch))(jnp.arange(count)))
        np.testing.assert_array_equal(np.sort(rows), np.arange(count) + 17)
        orders.add(tuple(rows[:5].tolist()))
    assert len(orders) == 3 or count <= 2


def test_a_batch_is_spread_over_all_rows():
    order = Order(jnp.ones(30_000, bool))
    for epoch in range(5):
        batch = order.walk(key=jax.random.key(epoch))(jnp.arange(4096, 4096 + 2048))
        share, _ = np.histogram(np.asarray(batch), bins=10, range=(0, 30_000))
        assert np.abs(share - 204.8).max() < 25
