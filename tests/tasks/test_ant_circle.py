"""AntCircle: facts by hand, its edges, its reward."""

import mujoco
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.envs.simulator import Simulator

TASK = cmbpo.tasks.get("AntCircle")


def test_facts_of_the_model():
    model = TASK.model
    assert (model.nq, model.nv, model.nu) == (15, 14, 8)
    assert model.body_mass.sum() == pytest.approx(0.911, abs=1e-3)
    assert TASK.dt == pytest.approx(0.02)
    assert model.opt.timestep == TASK.timestep
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    np.testing.assert_array_equal(model.actuator_gear[:, 0], np.ones(8))
    np.testing.assert_array_equal(model.actuator_ctrlrange, np.tile([-150.0, 150.0], (8, 1)))
    np.testing.assert_array_equal(model.geom_solref, np.tile([0.02, 1.0], (model.ngeom, 1)))
    np.testing.assert_array_equal(model.geom_solimp[:, :3], np.tile([0.8, 0.8, 0.01], (14, 1)))


def test_starts_bent_at_the_centre():
    states = np.stack([TASK.start(np.random.default_rng(i)) for i in range(500)])
    mean = [0, 0, 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1]
    np.testing.assert_allclose(states[:, 1:16].mean(axis=0), mean, atol=2e-3)
    np.testing.assert_allclose(states[:, 1:16].std(axis=0), 0.01, rtol=0.2)
    np.testing.assert_allclose(states[:, 16:].std(axis=0), 0.1, rtol=0.2)


def test_observes_and_rewards_the_centre_of_mass():
    simulator = Simulator(TASK, 2, seed=0)
    random = np.random.default_rng(0)
    model, data = TASK.model, mujoco.MjData(TASK.model)
    for _ in range(15):
        simulator.step(random.uniform(-1, 1, (2, 8)))
    step = simulator.step(random.uniform(-1, 1, (2, 8)))
    for i in range(2):
        row = simulator.state()["physics"][i]
        data.qpos[:], data.qvel[:] = row[1:16], row[16:]
        mujoco.mj_forward(model, data)
        mass = model.body_mass[1:, None]
        com = (mass * data.xipos[1:]).sum(axis=0) / mass.sum()
        np.testing.assert_allclose(step.next_obs[i, 29:], com, atol=1e-12)
        velocity = np.zeros((13, 6))
        for body in range(1, 14):
            kind = mujoco.mjtObj.mjOBJ_BODY
            mujoco.mj_objectVelocity(model, data, kind, body, velocity[body - 1], 0)
        v = (mass * velocity[:, 3:]).sum(axis=0) / mass.sum()
        x, y = com[:2]
        reward = (x * v[1] - y * v[0]) / (1 + abs(np.sqrt(x**2 + y**2) - 10.0))
        assert step.reward[i] == pytest.approx(reward, abs=1e-9)
    np.testing.assert_array_equal(step.next_obs[:, :29], simulator.state()["physics"][:, 1:])


def test_full_action_is_150_newton_metres():
    np.testing.assert_array_equal(
        TASK.control(np.zeros((1, 30)), np.full((1, 8), -1.0)), np.full((1, 8), -150.0)
    )


@pytest.mark.parametrize(
    ("x", "cost"), [(2.999, 0.0), (3.0, 1.0), (-3.0, 1.0), (-2.999, 0.0), (9.0, 1.0)]
)
def test_cost_from_the_lines_on(x, cost):
    obs = np.zeros(32)
    obs[2], obs[29] = 0.5, x
    assert TASK.cost(obs, np.zeros(8), obs) == cost


@pytest.mark.parametrize(
    ("z", "ended"), [(0.2, False), (0.1999, True), (1.0, False), (1.0001, True)]
)
def test_ends_too_low_or_too_high_at_no_cost(z, ended):
    obs = np.zeros(32)
    obs[2] = z
    assert TASK.terminated(obs, np.zeros(8), obs) == ended
    assert TASK.cost(obs, np.zeros(8), obs) == 0.0
