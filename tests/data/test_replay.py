"""The replay buffer holds the newest transitions and draws each as often as any other."""

from collections import deque

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data.replay import Replay, add, empty, units
from tests.data.test_archive import CAPACITY, N_ACT, N_COST, N_OBS, numbered


def filled(calls: int) -> Replay:
    replay = empty(CAPACITY, N_OBS, N_ACT, N_COST)
    for call in range(calls):
        replay = add(replay, numbered(5 * call, np.ones(5, bool))[0])
    return replay


def test_when_it_is_full_the_newest_valid_rows_replace_the_oldest():
    rng = np.random.default_rng(0)
    store = jax.jit(add, donate_argnums=0)
    replay, expected = empty(CAPACITY, N_OBS, N_ACT, N_COST), deque(maxlen=CAPACITY)
    for call in range(12):
        valid = rng.random(5) < 0.7
        steps, _ = numbered(5 * call, valid)
        replay = store(replay, steps)
        expected.extend(np.asarray(steps.reward)[valid].tolist())
        held = np.asarray(replay.rows.reward)[: int(replay.size)]
        assert sorted(held.tolist()) == sorted(expected)
    assert int(replay.added) > 2 * CAPACITY
    number = np.asarray(replay.rows.reward)
    np.testing.assert_array_equal(replay.rows.obs, np.tile(number[:, None], N_OBS))
    np.testing.assert_array_equal(replay.rows.next_obs, np.tile(number[:, None], N_OBS) + 0.5)
    np.testing.assert_array_equal(replay.rows.terminated, number % 2 == 0)


def test_the_steps_of_all_copies_are_rows_of_it():
    steps, _ = numbered(0, np.ones(6, bool))
    aside = jax.tree.map(lambda x: x.reshape(3, 2, *x.shape[1:]), steps)
    replay = add(empty(CAPACITY, N_OBS, N_ACT, N_COST), aside)
    assert np.asarray(replay.rows.reward)[:6].tolist() == [0, 1, 2, 3, 4, 5]


def test_an_episode_out_of_time_is_no_terminal_transition():
    steps, _ = numbered(1, np.ones(1, bool))
    late = eqx.tree_at(lambda s: s.last, steps, jnp.ones(1, bool))
    replay = add(empty(CAPACITY, N_OBS, N_ACT, N_COST), late)
    assert not bool(replay.rows.terminated[0])


def test_a_step_at_which_the_physics_failed_is_left_out():
    steps, _ = numbered(0, np.ones(5, bool))
    broken = eqx.tree_at(lambda s: s.next_obs, steps, steps.next_obs.at[2, 1].set(jnp.nan))
    replay = add(empty(CAPACITY, N_OBS, N_ACT, N_COST), broken)
    assert np.asarray(replay.rows.reward)[: int(replay.size)].tolist() == [0.0, 1.0, 3.0, 4.0]


def test_more_rows_than_fit_are_refused():
    with pytest.raises(ValueError, match="14 rows at once"):
        add(empty(CAPACITY, N_OBS, N_ACT, N_COST), numbered(0, np.ones(14, bool))[0])


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_every_row_there_is_is_drawn_equally_often_and_no_other(calls):
    replay, n = filled(calls), 40_000
    drawn = np.asarray(replay.sample(n, key=jax.random.key(0)).reward)
    rows, counts = np.unique(drawn, return_counts=True)
    assert rows.tolist() == sorted(np.asarray(replay.rows.reward)[: int(replay.size)].tolist())
    share = 1 / len(rows)
    assert np.abs(counts / n - share).max() < 5 * np.sqrt(share / n)


def test_units_are_root_mean_squares_of_rewards_and_of_the_costs_that_were_paid():
    steps, _ = numbered(1, np.ones(4, bool))
    cost = jnp.array([[0.0, 0.0], [3.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
    steps = eqx.tree_at(lambda s: s.cost, steps, cost)
    found = units(add(empty(CAPACITY, N_OBS, N_ACT, 2), steps))
    np.testing.assert_allclose(found.reward, np.sqrt((1 + 4 + 9 + 16) / 4), rtol=1e-6)
    np.testing.assert_allclose(found.cost, [np.sqrt((9 + 16) / 2), 1.0], rtol=1e-6)


def test_units_are_one_before_anything_was_earned():
    found = units(empty(CAPACITY, N_OBS, N_ACT, 1))
    assert (float(found.reward), found.cost.tolist()) == (1.0, [1.0])
