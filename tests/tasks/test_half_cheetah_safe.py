"""HalfCheetahSafe: facts by hand, its edge, its reward."""

import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.tasks.simulated import ThreadedCopies

TASK = cmbpo.tasks.get("HalfCheetahSafe")


def quiet_start() -> np.ndarray:
    """The start without its noise."""
    return np.concatenate([[0.0], TASK.model.qpos0, np.zeros(10)])[None]


def test_facts_of_the_model():
    model = TASK.model
    assert (model.nq, model.nv, model.nu) == (10, 10, 7)
    assert model.body_mass.sum() == pytest.approx(14.0)
    assert model.body("obstacle").mass[0] == pytest.approx(1.58e-4, rel=0.01)
    assert model.opt.timestep == TASK.timestep
    assert TASK.dt == pytest.approx(0.05)
    np.testing.assert_array_equal(model.actuator_gear[:, 0], [120, 90, 60, 120, 60, 30, 120])
    slide = model.joint("obstacle")
    assert (slide.damping[0], slide.armature[0], slide.stiffness[0]) == (0.2, 0.1, 0.0)


def test_the_obstacle_comes_closer_and_runs_away():
    """10 → about 8.04 m near step 37, and about 169 m in 1000 steps, each within 1 %."""
    world = ThreadedCopies(TASK, threads=1)
    state = quiet_start()
    obs = TASK.observe(state, np.empty((1, 0)))
    assert obs[0, 19] == 1.0
    obstacle = np.empty(1000)
    for k in range(1000):
        out = world.step(state, obs, np.zeros((1, 6)))
        state, obs = out.state, out.obs
        obstacle[k] = 10.0 + state[0, 10]
    nearest = obstacle.argmin() + 1
    assert obstacle.min() == pytest.approx(8.04, rel=0.01)
    assert abs(nearest - 37) <= 2
    assert obstacle[-1] - 10.0 == pytest.approx(169.0, rel=0.01)
    assert abs(state[0, 1]) < 0.2


def test_the_obstacle_can_be_pushed():
    world = ThreadedCopies(TASK, threads=1)
    state = quiet_start()
    state[0, 10] = -9.2
    state[0, 11] = 8.0
    obs = TASK.observe(state, np.empty((1, 0)))
    for _ in range(5):
        out = world.step(state, obs, np.zeros((1, 6)))
        state, obs = out.state, out.obs
    assert obs[0, 17] > 1.0


def test_observation_entries():
    state = np.arange(21.0)[None] / 10.0
    obs = TASK.observe(state, np.empty((1, 0)))[0]
    qpos, qvel, time = state[0, 1:11], state[0, 11:], state[0, 0]
    np.testing.assert_allclose(obs[:8], qpos[1:9])
    np.testing.assert_allclose(obs[8:17], qvel[:9])
    assert obs[17] == qvel[9]
    assert obs[18] == pytest.approx(0.02 * np.sin(time / 3) ** 2 - 0.004)
    assert obs[19] == pytest.approx((10.0 + qpos[9] - qpos[0]) / 10.0)
    far = state.copy()
    far[0, 10] = 1000.0
    assert TASK.observe(far, np.empty((1, 0)))[0, 19] == 5.0


@pytest.mark.parametrize(
    ("distance", "cost"), [(2.0, 0.0), (1.999, 1.0), (-1.999, 1.0), (-2.0, 0.0), (0.0, 1.0)]
)
def test_cost_within_two_metres_of_the_obstacle(distance, cost):
    obs = np.zeros(20)
    obs[19] = distance / 10.0
    assert TASK.cost(obs, np.zeros(6), obs) == cost
    assert not TASK.terminated(obs, np.zeros(6), obs)


@pytest.mark.parametrize("weight", [0.1, 0.5])
def test_reward_is_speed_less_control_of_the_clipped_action(weight):
    task = cmbpo.tasks.get("HalfCheetahSafe", control_cost=weight)
    copies = task.copies(2, threads=1)
    state, obs = copies.begin(np.arange(2), [np.random.default_rng(i) for i in range(2)])
    step = copies.step(state, obs, np.full((2, 6), 3.0))
    before, after = state[:, 1], step.state[:, 1]
    np.testing.assert_allclose(step.terms["reward_forward"], (after - before) / 0.05, rtol=1e-12)
    np.testing.assert_allclose(step.terms["reward_control"], -weight * 6.0)
    np.testing.assert_allclose(
        step.reward, step.terms["reward_forward"] + step.terms["reward_control"]
    )


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_wrong_control_cost_is_refused(wrong):
    with pytest.raises(ValueError, match=r"control_cost is .*allowed: a finite number, 0 or more"):
        cmbpo.tasks.get("HalfCheetahSafe", control_cost=wrong)
