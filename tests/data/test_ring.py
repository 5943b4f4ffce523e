"""What both rings share: rows go behind the newest, and what they replaced can be put back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive, replay
from cmbpo.data.ring import is_written_over, next_to_go, places, put_back
from tests.data.test_archive import CAPACITY, N_ACT, N_COST, N_OBS, numbered


def with_archive(ring, call, valid):
    return archive.add(ring, *numbered(5 * call, valid), call)


def with_replay(ring, call, valid):
    return replay.add(ring, numbered(5 * call, valid)[0])


RINGS = [(archive.empty, with_archive), (replay.empty, with_replay)]


@pytest.mark.parametrize(("empty", "add"), RINGS)
def test_what_was_written_over_is_put_back_to_the_bit(empty, add):
    rng = np.random.default_rng(0)
    ring = empty(CAPACITY, N_OBS, N_ACT, N_COST)
    for call in range(12):
        before, gone = ring, next_to_go(ring, 5)
        ring = add(ring, call, rng.random(5) < 0.7)
        again = put_back(ring, gone)
        for x, y in zip(jax.tree.leaves(again), jax.tree.leaves(before), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_rows_that_are_not_kept_get_a_place_outside():
    ring = with_replay(replay.empty(4, N_OBS, N_ACT, N_COST), 0, np.array([1, 1, 1], bool))
    kept = jnp.array([True, False, True])
    assert places(ring, kept).tolist() == [3, 4, 0]


def test_a_ring_that_was_given_away_says_so():
    ring = replay.empty(CAPACITY, N_OBS, N_ACT, N_COST)
    assert not is_written_over(ring)
    jax.jit(with_replay, donate_argnums=0, static_argnums=1)(ring, 0, np.ones(5, bool))
    assert is_written_over(ring)
