from collections import deque

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data.archive import Archive, add, empty
from cmbpo.networks import Gaussian
from cmbpo.trajectory import Steps

CAPACITY, N_OBS, N_ACT, N_COST = 13, 3, 2, 2


def numbered(first: int, valid: np.ndarray) -> tuple[Steps, Gaussian]:
    """Rows whose every entry is the row's number."""
    n = len(valid)
    number = jnp.arange(first, first + n, dtype=jnp.float32)

    def columns(width: int):
        return jnp.broadcast_to(number[:, None], (n, width))

    steps = Steps(
        obs=columns(N_OBS),
        act=columns(N_ACT),
        next_obs=columns(N_OBS) + 0.5,
        reward=number,
        cost=columns(N_COST),
        terminated=number % 2 == 0,
        last=jnp.zeros(n, bool),
        valid=jnp.asarray(valid),
    )
    return steps, Gaussian(columns(N_ACT), -columns(N_ACT))


def held(archive: Archive) -> list[float]:
    """The archive's rows, oldest first."""
    positions = archive.by_age(jnp.arange(int(archive.size)))
    return np.asarray(archive.reward)[positions].tolist()


def test_it_holds_the_newest_valid_rows_in_their_order():
    rng = np.random.default_rng(0)
    traces = []

    def traced(*args):
        traces.append(1)
        return add(*args)

    store = jax.jit(traced, donate_argnums=0)
    archive = empty(CAPACITY, N_OBS, N_ACT, N_COST)
    expected, added = deque(maxlen=CAPACITY), 0
    for call in range(12):
        valid = rng.random(5) < 0.7
        steps, behaviour = numbered(5 * call, valid)
        archive = store(archive, steps, behaviour, call)
        expected.extend(np.asarray(steps.reward)[valid].tolist())
        added += valid.sum()
        assert held(archive) == list(expected)
        assert int(archive.added) == added
        assert int(archive.cursor) == added % CAPACITY
    number = archive.reward
    np.testing.assert_array_equal(archive.obs, np.tile(number[:, None], N_OBS))
    np.testing.assert_array_equal(archive.next_obs, np.tile(number[:, None], N_OBS) + 0.5)
    np.testing.assert_array_equal(archive.behaviour.log_std, -np.tile(number[:, None], N_ACT))
    np.testing.assert_array_equal(archive.terminated, number % 2 == 0)
    np.testing.assert_array_equal(archive.epoch, number // 5)
    assert len(traces) == 1


def test_each_row_knows_its_number_among_all_ever_added():
    archive = empty(CAPACITY, N_OBS, N_ACT, N_COST)
    assert (np.asarray(archive.insertion()) < 0).all()
    for call in range(4):
        archive = add(archive, *numbered(5 * call, np.ones(5, bool)), call)
        index = np.asarray(archive.insertion())
        np.testing.assert_array_equal(index[index >= 0], np.asarray(archive.reward)[index >= 0])
        assert (index >= 0).sum() == int(archive.size)


def test_a_step_at_which_the_physics_failed_is_left_out():
    steps, behaviour = numbered(0, np.ones(5, bool))
    broken = eqx.tree_at(lambda s: s.next_obs, steps, steps.next_obs.at[2, 1].set(jnp.nan))
    archive = add(empty(CAPACITY, N_OBS, N_ACT, N_COST), broken, behaviour, 0)
    assert held(archive) == [0.0, 1.0, 3.0, 4.0]
    assert int(archive.added) == 4


def test_more_rows_than_fit_are_refused():
    archive = empty(CAPACITY, N_OBS, N_ACT, N_COST)
    with pytest.raises(ValueError, match="14 rows at once"):
        add(archive, *numbered(0, np.ones(14, bool)), 0)
