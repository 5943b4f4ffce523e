import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data import data_split
from cmbpo.data.archive import Archive
from cmbpo.data.data_split import HOLDOUT, MAX_HOLDOUT, MOST_ROWS, STRIDES, Order
from cmbpo.networks import Gaussian
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Steps

is_held_out = jax.jit(data_split.is_held_out, static_argnames=("holdout", "max_holdout"))


def rows_of(rows: int) -> tuple[Steps, Gaussian]:
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
    return steps, Gaussian(pairs, pairs)


def archive_of(rows: int, *, capacity: int = 4096) -> Archive:
    return archives.add(archives.empty(capacity, 2, 2, 1), *rows_of(rows), 0)


def test_a_fifth_of_the_rows_is_held_out_and_none_that_is_not_there():
    held = np.asarray(is_held_out(archive_of(3000)))
    assert not held[3000:].any()
    assert HOLDOUT == 0.2
    # Three standard deviations of 3,000 independent draws.
    assert held.sum() == pytest.approx(600, abs=3.0 * np.sqrt(3000 * 0.2 * 0.8))


def test_held_out_rows_are_spread_over_all_ages():
    held = np.asarray(is_held_out(archive_of(4000)))
    share = held[:4000].reshape(10, 400).mean(axis=1)
    np.testing.assert_allclose(share, 0.2, atol=4.0 * np.sqrt(0.2 * 0.8 / 400))


def test_a_row_once_learned_is_never_held_out():
    small, large = archive_of(1000), archive_of(4000)
    held_small, held_large = (
        np.asarray(is_held_out(a, holdout=0.2, max_holdout=300)) for a in (small, large)
    )
    assert not (held_large & ~held_small)[:1000].any()
    assert held_large.sum() == pytest.approx(300, abs=3.0 * np.sqrt(300))


def test_a_row_keeps_its_part_when_the_ring_goes_round():
    """Of rows that stay, those held out are the same before and after others are overwritten."""
    before = archive_of(1000, capacity=1000)
    after = archives.add(before, *rows_of(400), 0)
    held_before, held_after = (np.asarray(is_held_out(a)) for a in (before, after))
    np.testing.assert_array_equal(held_before[400:], held_after[400:])
    assert (held_before[:400] != held_after[:400]).any()


def test_positions_of_held_out_rows_are_all_of_them_and_in_use():
    archive = archive_of(3000)
    rows, used = data_split.holdout_rows(archive)
    expected = np.flatnonzero(np.asarray(is_held_out(archive)))
    np.testing.assert_array_equal(np.asarray(rows)[np.asarray(used)], expected)
    assert rows.shape == (min(MAX_HOLDOUT, 4096),)


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


def test_of_the_strides_one_suits_every_list():
    """A prime visits every entry once unless it divides the length, and not all of them can."""
    for prime in STRIDES:
        assert all(prime % n for n in range(2, prime))
    assert math.prod(STRIDES) > MOST_ROWS


def test_the_largest_archive_is_walked_without_overflow():
    count = 2_000_000
    with pytest.raises(ValueError, match="archive_size"):
        TrainSettings(archive_size=count + 1)
    order = Order(jnp.ones(count, bool))
    for seed in range(3):
        rows = np.asarray(order.walk(key=jax.random.key(seed))(jnp.arange(count)))
        np.testing.assert_array_equal(np.bincount(rows, minlength=count), 1)
