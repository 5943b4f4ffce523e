import jax
import numpy as np
import pytest

from cmbpo import tasks
from cmbpo.data.collect import collect
from cmbpo.data.ledger import Ledger
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


def test_the_episodes_that_end_are_those_of_the_ledger(point):
    simulator, ledger, policy = point
    simulator = Simulator(simulator.task, N, seed=0, episode_steps=3)
    real, episodes = collect(
        simulator, ledger, policy, steps=STEPS, rows=ROWS, key=jax.random.key(1)
    )
    assert [(e.env_steps, e.length) for e in episodes] == [(3 * N, 3)] * N + [(6 * N, 3)] * N
    np.testing.assert_array_equal(np.flatnonzero(real.last[:STEPS, 0]), [2, 5, 6])
    returns = np.asarray(real.reward)[:3].sum(axis=0)
    np.testing.assert_allclose([e.ret for e in episodes[:N]], returns, rtol=1e-5)
    np.testing.assert_allclose(ledger.cumulative_cost, real.cost.sum(axis=(0, 1)), rtol=1e-6)
    assert ledger.env_steps == N * STEPS
