"""The velocity tasks: step by step Gymnasium's v4 robots, with a threshold on their speed."""

import warnings
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.envs.simulator import Simulator
from cmbpo.tasks.environment import TaskEnv
from cmbpo.tasks.simulated import unsaid
from cmbpo.tasks.velocity.task import SpatialVelocityTask, VelocityTask
from cmbpo.training import loop
from tests.tiny import rows, steps, tiny

THRESHOLDS = {
    "HalfCheetah": 3.2096,
    "Ant": 2.6222,
    "Hopper": 0.7402,
    "Walker2d": 2.3415,
    "Swimmer": 0.2282,
    "Humanoid": 1.4149,
}
SPATIAL = ("Ant", "Humanoid")
FALLING = ("Ant", "Hopper", "Walker2d", "Humanoid")


def of(robot: str) -> VelocityTask:
    task = cmbpo.tasks.get(f"{robot}Velocity")
    assert isinstance(task, VelocityTask)
    return task


def gymnasiums(robot: str) -> Any:
    """Gymnasium's own robot; what is said of its file and of its age is not said."""
    with unsaid(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*out of date", category=DeprecationWarning)
        return gymnasium.make(f"{robot}-v4", disable_env_checker=True).unwrapped


def thrown(ours: TaskEnv, theirs: Any, seed: int) -> None:
    """Both at the same start, on their way along x with up to twice the free speed."""
    obs, _ = ours.reset(seed=seed)
    expected, _ = theirs.reset(seed=seed)
    np.testing.assert_array_equal(obs, expected)
    qvel = theirs.data.qvel.copy()
    qvel[0] = ours._state[0, 1 + theirs.model.nq] = (
        np.random.default_rng(seed).uniform(0.0, 2.0) * THRESHOLDS[of_name(ours)]
    )
    theirs.set_state(theirs.data.qpos.copy(), qvel)


def of_name(env: TaskEnv) -> str:
    return env.task.name.removesuffix("Velocity-v0")


@pytest.mark.parametrize("robot", THRESHOLDS)
def test_a_step_is_gymnasiums_to_the_bit_with_a_threshold_on_its_speed(robot):
    """From the first step of an episode to its end, with nothing set in between.

    Where ours starts its solver cold, Gymnasium's is made to.
    """
    ours, theirs = TaskEnv(of(robot)), gymnasiums(robot)
    random = np.random.default_rng(0)
    thrown(ours, theirs, 0)
    costs, ends = [], 0
    for k in range(400):
        if robot not in SPATIAL:
            theirs.data.qacc_warmstart[:] = 0.0
        act = random.uniform(-1.0, 1.0, theirs.model.nu)
        obs, reward, terminated, _, info = ours.step(act)
        expected, expected_reward, expected_end, _, told = theirs.step(
            act * ours.task.strongest  # pyright: ignore[reportAttributeAccessIssue]
        )
        np.testing.assert_array_equal(obs, expected)
        assert reward == pytest.approx(expected_reward, rel=1e-13, abs=1e-13)
        assert terminated == expected_end
        both = robot in SPATIAL
        speed = np.hypot(told["x_velocity"], told["y_velocity"]) if both else told["x_velocity"]
        assert info["cost"] == float(speed > THRESHOLDS[robot])
        costs.append(info["cost"])
        ends += terminated
        if terminated or k % 100 == 99:
            thrown(ours, theirs, k)
    assert 0.02 < np.mean(costs) < 0.98, "both sides of the threshold were seen"
    assert (ends > 0) == (robot in FALLING)


@pytest.mark.parametrize("robot", [robot for robot in THRESHOLDS if robot not in SPATIAL])
def test_a_cold_start_of_the_solver_hardly_matters(robot):
    task, theirs = of(robot), gymnasiums(robot)
    simulator = Simulator(task, 1, seed=0, threads=1)
    theirs.reset(seed=0)
    random = np.random.default_rng(0)
    for _ in range(200):
        row, act = simulator.state()["physics"][0], random.uniform(-1.0, 1.0, theirs.model.nu)
        # as a step leaves them: the state, and where the solver ended
        theirs.data.qpos[:], theirs.data.qvel[:] = np.split(row[1:], [theirs.model.nq])
        expected = theirs.step(act)[0]
        np.testing.assert_allclose(simulator.step(act[None]).next_obs[0], expected, atol=1e-9)


def test_without_the_kept_place_an_ants_speed_would_be_another():
    """The ant's place is read a stage before the end of its step: it is not that of its state."""
    ours, theirs = TaskEnv(of("Ant")), gymnasiums("Ant")
    ours.reset(seed=0)
    theirs.reset(seed=0)
    act = np.full(8, 0.5)
    for _ in range(10):
        ours.step(act)
        theirs.step(act)
    row = ours._state[0]
    np.testing.assert_array_equal(row[-2:], theirs.data.xpos[1, :2])
    assert 1e-7 < np.abs(row[1:3] - row[-2:]).max() < 1e-2
    np.testing.assert_array_equal(row[30:44], theirs.data.qacc_warmstart)


@pytest.mark.parametrize("robot", THRESHOLDS)
def test_what_is_known_and_what_is_learned(robot):
    task = of(robot)
    assert (task.knows_cost, task.knows_termination) == (False, True)
    assert (task.fastest, task.cost_limits) == (THRESHOLDS[robot], (25.0,))
    obs = Simulator(task, 2, seed=0).obs
    with pytest.raises(ValueError, match=rf"{robot}Velocity-v0 has no cost\(obs, act, next_obs\)"):
        task.costs(obs, np.zeros((2, len(task.act_names))), obs)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("robot", THRESHOLDS)
def test_the_end_of_robot_and_model_is_one(robot):
    task = of(robot)
    simulator = Simulator(task, 10, seed=0)
    random = np.random.default_rng(0)
    end_of = jax.jit(task.terminated)
    ends = 0
    for _ in range(60):
        obs, act = simulator.obs, random.uniform(-1.5, 1.5, (10, len(task.act_names)))
        step = simulator.step(act)
        np.testing.assert_array_equal(step.terminated, end_of(obs, act, step.next_obs))
        ends += step.terminated.sum()
    assert (ends > 0) == (robot in FALLING)


EDGES = {
    "Ant": [(0, 0.2, 1.0, False)],
    "Humanoid": [(0, 1.0, 2.0, True)],
    "Hopper": [(0, 0.7, np.inf, True), (1, -0.2, 0.2, True)],
    "Walker2d": [(0, 0.8, 2.0, True), (1, -1.0, 1.0, True)],
}


@pytest.mark.parametrize("robot", EDGES)
def test_an_end_has_its_edges(robot):
    task = of(robot)
    obs = Simulator(task, 1, seed=0).obs[0]
    for index, low, high, at_edge in EDGES[robot]:
        for edge, outwards in ((low, -1.0), (high, 1.0)):
            if np.isfinite(edge):
                told = []
                for value in (edge - outwards * 1e-6, edge, edge + outwards * 1e-6):
                    other = obs.copy()
                    other[index] = value
                    told.append(bool(task.failed(other)))
                    assert bool(task.failed(jnp.asarray(other))) == told[-1] or value == edge
                assert told == [False, at_edge, True]


def test_a_hopper_of_a_hundred_radians_a_second_ends_though_ten_are_observed():
    ours, theirs = TaskEnv(of("Hopper")), gymnasiums("Hopper")
    ours.reset(seed=0)
    theirs.reset(seed=0)
    ours._state[0, 12] = 150.0
    theirs.data.qvel[5] = 150.0
    obs, _, terminated, _, _ = ours.step(np.zeros(3))
    expected, _, expected_end, _, _ = theirs.step(np.zeros(3))
    np.testing.assert_array_equal(obs, expected)
    assert theirs.data.qvel[5] > 100.0
    assert obs.max() == 10.0
    assert terminated
    assert expected_end
    assert not of("Hopper").failed(obs)


@pytest.mark.parametrize("robot", SPATIAL)
def test_rows_keep_place_and_warm_start(robot):
    task = of(robot)
    assert isinstance(task, SpatialVelocityTask)
    simulator, model = Simulator(task, 2, seed=0, threads=1), task.model
    held = simulator.state()
    assert held["physics"].shape == (2, 1 + model.nq + 2 * model.nv + 2)
    act = np.full((2, model.nu), 0.3)
    first = [simulator.step(act) for _ in range(3)]
    simulator.restore(held)
    for step in first:
        again = simulator.step(act)
        np.testing.assert_array_equal(again.next_obs, step.next_obs)
        np.testing.assert_array_equal(again.reward, step.reward)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_fast")
def test_cpo_trains_on_one(tmp_path):
    folder, _ = loop.run(tiny("cpo", tmp_path, env_id="HopperVelocity-v0", total_steps=800))
    assert [float(row["Constraint/Limit"]) for row in rows(folder)] == [25.0, 25.0]


@pytest.mark.usefixtures("compiled_fast")
@pytest.mark.slow
def test_cmbpo_learns_what_a_step_costs_and_knows_where_it_ends(tmp_path):
    settings = tiny("cmbpo", tmp_path, env_id="HopperVelocity-v0", total_steps=steps(2))
    folder, policy = loop.run(settings)
    assert policy(jnp.zeros(11)).mean.shape == (3,)
    last = rows(folder)[-1]
    assert 0.0 <= float(last["Model/CostError"]) <= 1.0
    assert "Model/TerminationError" not in last
