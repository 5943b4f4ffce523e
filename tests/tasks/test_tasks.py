"""What holds for every task: names, sizes, and the known functions of a transition."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.envs.simulator import Simulator

NAMES = cmbpo.tasks.names()
SIZES = {
    "AntSafe-v0": (29, 8),
    "HalfCheetahSafe-v0": (20, 6),
    "AntCircle-v0": (32, 8),
    "PointCircle-v0": (4, 2),
    "HalfCheetahVelocity-v0": (17, 6),
    "AntVelocity-v0": (27, 8),
    "HopperVelocity-v0": (11, 3),
    "Walker2dVelocity-v0": (17, 6),
    "SwimmerVelocity-v0": (8, 2),
    "HumanoidVelocity-v0": (376, 17),
}
KNOWN = tuple(name for name in NAMES if cmbpo.tasks.get(name).knows_cost)
"""Tasks whose cost is a function of observations; the velocity tasks have tests of their own."""


def test_the_tasks_of_the_paper_a_small_one_and_a_family():
    assert NAMES == tuple(SIZES)
    assert tuple(SIZES)[:4] == KNOWN


@pytest.mark.parametrize("name", NAMES)
def test_a_task_has_its_spaces_names_and_limits(name):
    task = cmbpo.tasks.get(name)
    n_obs, n_act = SIZES[name]
    assert (task.name, task.env_id) == (name, f"cmbpo/{name}")
    assert task.observation_space.shape == (n_obs,)
    assert task.action_space.shape == (n_act,)
    assert (task.action_space.low == -1.0).all()
    assert (task.action_space.high == 1.0).all()
    assert len(set(task.obs_names)) == n_obs
    assert len(set(task.act_names)) == n_act
    limit = 10.0 if name in KNOWN else 25.0
    assert (task.horizon, task.cost_limits) == (1000, (limit,))
    assert len(task.cost_names) == len(task.cost_limits)
    assert task.act_names == tuple(
        task.model.joint(joint).name.replace("x", "force_x").replace("y", "force_y")
        if name == "PointCircle-v0"
        else task.model.joint(joint).name
        for joint in task.model.actuator_trnid[:n_act, 0]
    )


@pytest.mark.parametrize("alias", ["AntSafe", "AntSafe-v0", "cmbpo/AntSafe-v0", "cmbpo/AntSafe"])
def test_a_task_is_found_under_its_names(alias):
    assert cmbpo.tasks.get(alias) == cmbpo.tasks.get("AntSafe")


def test_an_unknown_task_is_refused_with_the_names_of_all():
    with pytest.raises(ValueError, match="no task 'AntUnsafe'; allowed: AntSafe-v0, HalfCheetahSa"):
        cmbpo.tasks.get("AntUnsafe")


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="no option 'speed'; allowed: cost_band"):
        cmbpo.tasks.get("AntSafe", speed=3)
    with pytest.raises(ValueError, match="no option 'speed'; allowed: none"):
        cmbpo.tasks.get("AntCircle", speed=3)
    with pytest.raises(ValueError, match="control_cost is 'much'; allowed: a number"):
        cmbpo.tasks.get("HalfCheetahSafe", control_cost="much")
    with pytest.raises(
        ValueError, match=r"control_cost is -1\.0; allowed: a finite number, 0 or more"
    ):
        gymnasium.make("cmbpo/HalfCheetahSafe-v0", control_cost=-1.0)


def random_obs(name: str, n: int) -> np.ndarray:
    """Observations of which a good part is near some edge, and some are not finite."""
    random = np.random.default_rng(0)
    obs = random.normal(size=(n, SIZES[name][0]))
    edges = {
        "AntSafe-v0": {0: (0.0, 1.2), 2: (-1.0, 1.0), 3: (-1.0, 1.0), 28: (-8.0, 8.0)},
        "HalfCheetahSafe-v0": {19: (-0.5, 0.5)},
        "AntCircle-v0": {2: (0.0, 1.2), 29: (-5.0, 5.0)},
        "PointCircle-v0": {0: (-2.0, 2.0)},
    }
    for index, (low, high) in edges[name].items():
        obs[:, index] = random.uniform(low, high, n)
    rows = random.integers(0, n, n // 100)
    odd = random.choice([np.nan, np.inf, -np.inf], n // 100)
    obs[rows, random.integers(0, obs.shape[1], n // 100)] = odd
    return obs


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("name", KNOWN)
def test_numpy_and_jax_agree_on_cost_and_end(name, precision):
    task = cmbpo.tasks.get(name)
    next_obs = random_obs(name, 100_000).astype(precision)
    obs, act = next_obs[::-1].copy(), np.zeros((len(next_obs), SIZES[name][1]), precision)
    cost, ended = task.cost(obs, act, next_obs), task.terminated(obs, act, next_obs)
    with jax.enable_x64(precision == np.float64):
        args = [jnp.asarray(x) for x in (obs, act, next_obs)]
        np.testing.assert_array_equal(jax.jit(task.cost)(*args), cost)
        np.testing.assert_array_equal(jax.jit(jax.vmap(task.cost))(*args), cost)
        np.testing.assert_array_equal(jax.jit(task.costs)(*args), cost[:, None])
        np.testing.assert_array_equal(jax.jit(task.terminated)(*args), ended)
        np.testing.assert_array_equal(jax.jit(jax.vmap(task.terminated))(*args), ended)
    broken = ~np.isfinite(next_obs).all(axis=1)
    assert broken.any()
    assert cost[broken].all()
    assert ended[broken].all()
    assert 0.0 < cost[~broken].mean() < 1.0
    assert ended[~broken].any() == name.startswith("Ant")


@pytest.mark.parametrize("name", KNOWN)
def test_leading_axes_are_free(name):
    task = cmbpo.tasks.get(name)
    next_obs = random_obs(name, 60)
    act = np.zeros((60, SIZES[name][1]))
    cost, ended = task.cost(next_obs, act, next_obs), task.terminated(next_obs, act, next_obs)
    grid, grid_act = next_obs.reshape(3, 4, 5, -1), act.reshape(3, 4, 5, -1)
    np.testing.assert_array_equal(task.cost(grid, grid_act, grid).ravel(), cost)
    np.testing.assert_array_equal(task.terminated(grid, grid_act, grid).ravel(), ended)
    assert task.costs(grid, grid_act, grid).shape == (3, 4, 5, 1)
    for row, a, c, t in zip(next_obs, act, cost, ended, strict=True):
        assert task.cost(row, a, row) == c
        assert task.terminated(row, a, row) == t


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", KNOWN)
def test_a_state_that_is_not_finite_is_terminal_and_costs_one(name, value):
    task = cmbpo.tasks.get(name)
    obs, act = Simulator(task, 1, seed=0).obs[0], np.zeros(SIZES[name][1])
    assert task.cost(obs, act, obs) == 0.0
    assert not task.terminated(obs, act, obs)
    for index in range(len(obs)):
        broken = obs.copy()
        broken[index] = value
        assert task.cost(obs, act, broken) == 1.0
        assert task.terminated(obs, act, broken)


def agree_on_transitions(name: str, copies: int, steps: int, *, far: float) -> None:
    """The simulator's cost and end against the task's functions, some starts thrown far away."""
    task = cmbpo.tasks.get(name)
    simulator = Simulator(task, copies, seed=0, stagger=True)
    random = np.random.default_rng(0)
    cost_of, end_of = jax.jit(task.cost), jax.jit(task.terminated)
    costs = 0
    for k in range(steps):
        if k % 20 == 0:
            simulator._state[:, 1:3] += far * random.uniform(-1, 1, (copies, 2))
        obs, act = simulator.obs, random.uniform(-1.5, 1.5, (copies, len(task.act_names)))
        step = simulator.step(act)
        transition = (obs, act, step.next_obs)
        np.testing.assert_array_equal(step.cost[:, 0], task.cost(*transition))
        np.testing.assert_array_equal(step.terminated, task.terminated(*transition))
        np.testing.assert_array_equal(step.cost[:, 0], cost_of(*transition))
        np.testing.assert_array_equal(step.terminated, end_of(*transition))
        costs += step.cost.sum()
    assert costs > 0


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", KNOWN)
def test_the_simulator_uses_the_functions_of_the_task(name):
    agree_on_transitions(name, 20, 60, far=3.0)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", KNOWN)
def test_the_simulator_uses_them_on_100_000_transitions(name):
    agree_on_transitions(name, 100, 1000, far=3.0)
