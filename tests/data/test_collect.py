import jax
import numpy as np
import pytest

from cmbpo import tasks
from cmbpo.data.collect import RECENT, Ledger, collect
from cmbpo.envs.simulator import Simulator
from cmbpo.networks import Policy

N, STEPS, ROWS = 3, 7, 9


@pytest.fixture
def point():
    task = tasks.get("PointCircle")
    policy = Policy(
        len(task.obs_names),
        len(task.act_names),
        hidden=(8,),
        log_std=1.0,
        last_layer_scale=1.0,
        key=jax.random.key(0),
    )
    return Simulator(task, N, seed=0), Ledger(N, 1), policy


def test_a_record_holds_what_the_simulator_did(point):
    simulator, ledger, policy = point
    real, _ = collect(simulator, ledger, policy, steps=STEPS, rows=ROWS, key=jax.random.key(1))
    again = Simulator(simulator.task, N, seed=0)
    for t in range(STEPS):
        np.testing.assert_array_equal(real.obs[t], again.obs.astype(np.float32))
        step = again.step(np.clip(np.asarray(real.act[t]), -1.0, 1.0))
        np.testing.assert_array_equal(real.next_obs[t], step.next_obs.astype(np.float32))
        np.testing.assert_array_equal(real.reward[t], step.reward.astype(np.float32))
        np.testing.assert_array_equal(real.cost[t], step.cost.astype(np.float32))


def test_padding_is_not_valid_and_ends_every_trajectory(point):
    simulator, ledger, policy = point
    real, _ = collect(simulator, ledger, policy, steps=STEPS, rows=ROWS, key=jax.random.key(1))
    assert real.valid[:STEPS].all()
    assert not real.valid[STEPS:].any()
    assert real.last[STEPS - 1].all()


def test_the_draw_is_recorded_though_the_robot_gets_it_clipped(point):
    simulator, ledger, policy = point
    real, _ = collect(simulator, ledger, policy, steps=STEPS, rows=ROWS, key=jax.random.key(1))
    assert np.abs(real.act).max() > 1.0


def test_draws_are_standard_normal_and_follow_from_the_key(point):
    simulator, _, policy = point
    start = simulator.state()

    def draws(seed: int, steps: int) -> np.ndarray:
        simulator.restore(start)
        real, _ = collect(
            simulator, Ledger(N, 1), policy, steps=steps, rows=400, key=jax.random.key(seed)
        )
        mean = jax.vmap(jax.vmap(policy))(real.obs).mean
        return np.asarray(real.act - mean)[:steps] / np.exp(np.asarray(policy.log_std))

    many = draws(1, 400)
    np.testing.assert_array_equal(many[:30], draws(1, 30))
    assert np.abs(many[:30] - draws(2, 30)).max() > 0.1
    assert abs(many.mean()) < 4.0 / many.size**0.5
    assert abs(many.var() - 1.0) < 4.0 * (2.0 / many.size) ** 0.5


def test_a_ledger_adds_up_episodes_by_copy():
    ledger = Ledger(2, 1)
    reward, cost, no = np.array([1.0, 2.0]), np.array([[0.0], [1.0]]), np.zeros(2, bool)
    assert ledger.note(reward, cost, no, no, cut=no, allotted=np.array(3)) == []
    (ended,) = ledger.note(reward, cost, np.array([False, True]), no, cut=no, allotted=np.array(3))
    assert (ended.ret, ended.cost, ended.length, ended.terminated) == (4.0, (2.0,), 2, True)
    (full,) = ledger.note(reward, cost, no, np.array([True, False]), cut=~no, allotted=np.array(3))
    assert (full.ret, full.length, full.env_steps, full.terminated) == (3.0, 3, 6, False)
    assert ledger.length.tolist() == [0, 1]
    assert ledger.cumulative_cost.tolist() == [3.0]


def test_an_episode_cut_short_by_staggering_is_spent_but_not_reported():
    ledger = Ledger(1, 1)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    assert ledger.note(np.ones(1), np.ones((1, 1)), no, yes, cut=yes, allotted=np.array(5)) == []
    assert ledger.cumulative_cost.tolist() == [1.0]
    assert ledger.length.tolist() == [0]


def test_an_episode_that_the_environment_truncates_early_is_reported():
    ledger = Ledger(1, 1)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    (ended,) = ledger.note(np.ones(1), np.ones((1, 1)), no, yes, cut=no, allotted=np.array(5))
    assert (ended.length, ended.terminated) == (1, False)


def test_means_are_over_the_newest_episodes_only():
    ledger = Ledger(1, 1)
    yes, no = np.ones(1, bool), np.zeros(1, bool)
    assert np.isnan(ledger.means()["Metrics/EpRet"])
    for ret in range(RECENT + 5):
        ledger.note(np.array([float(ret)]), np.zeros((1, 1)), yes, no, cut=no, allotted=np.array(5))
    assert ledger.means()["Metrics/EpRet"] == np.arange(5, RECENT + 5).mean()


def test_a_ledger_continues_from_its_state():
    ledger = Ledger(2, 1)
    no = np.zeros(2, bool)
    ledger.note(np.ones(2), np.ones((2, 1)), no, no, cut=no, allotted=np.array(5))
    copy = Ledger(2, 1)
    copy.restore(ledger.state())
    args = (np.ones(2), np.ones((2, 1)), np.array([True, False]), no)
    assert copy.note(*args, cut=no, allotted=np.array(5)) == ledger.note(
        *args, cut=no, allotted=np.array(5)
    )
