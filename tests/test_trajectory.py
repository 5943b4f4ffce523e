"""Samples of several sources joined into one batch of fixed size, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.trajectory import Samples, join, true_rows


def some(seed: int, *shape: int, share: float = 0.6) -> Samples:
    """Random samples with these leading axes, of which a share is valid."""
    rng = np.random.default_rng(seed)

    def values(*columns: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=(*shape, *columns)), jnp.float32)

    return Samples(
        obs=values(3),
        act=values(2),
        advantage=values(),
        cost_advantage=values(2),
        target=values(),
        cost_target=values(2),
        valid=jnp.asarray(rng.random(shape) < share),
    )


joined = jax.jit(join, static_argnames="size")
PARTS = (some(0, 7, 5), some(1, 40), some(2, 4, 3, 2))
"""Of one, two and three axes, 35 + 40 + 24 rows."""


def valid_rows(name: str) -> np.ndarray:
    return np.concatenate(
        [np.asarray(getattr(part, name))[np.asarray(part.valid)] for part in PARTS]
    )


COUNT = len(valid_rows("advantage"))


@pytest.mark.parametrize("size", [10, COUNT - 1, COUNT, COUNT + 1, 200])
def test_join_keeps_the_valid_rows_of_all_parts_in_order_and_fills_up_with_nothing(size):
    found = joined(PARTS, size)
    kept = min(size, COUNT)
    np.testing.assert_array_equal(found.valid, np.arange(size) < kept)
    for name in ("obs", "act", "advantage", "cost_advantage", "target", "cost_target"):
        rows = np.asarray(getattr(found, name))
        assert len(rows) == size
        np.testing.assert_array_equal(rows[:kept], valid_rows(name)[:kept])
        np.testing.assert_array_equal(rows[kept:], 0.0)


def test_nothing_valid_is_joined_to_nothing():
    found = joined((some(3, 20, share=0.0),), 6)
    assert not bool(found.valid.any())
    np.testing.assert_array_equal(found.obs, 0.0)


@pytest.mark.parametrize("size", [1, 5, 30])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_true_rows_are_the_first_that_numpy_finds_and_then_none(size, share):
    flags = np.random.default_rng(4).random(25) < share
    numbers = np.flatnonzero(flags)[:size]
    expected = np.concatenate([numbers, np.full(size - len(numbers), 25)])
    np.testing.assert_array_equal(true_rows(jnp.asarray(flags), size), expected)
