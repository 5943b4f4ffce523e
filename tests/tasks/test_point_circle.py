"""PointCircle: its physics solved by hand, its edge, and how much a safe policy can earn."""

import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.envs.simulator import Simulator

TASK = cmbpo.tasks.get("PointCircle")

# Fourier coefficients (odd harmonics) of the best orbit within |x| < 1.185, once around in 77 steps
HARMONICS = np.array([1, 3, 5, 7, 9])
COEFFICIENTS = np.array(
    [
        [1.353, -0.165, -0.020, 0.013, 0.001],
        [-0.075, 0.011, 0.025, -0.008, -0.006],
        [0.094, -0.054, 0.020, -0.005, 0.000],
        [2.114, -0.123, 0.012, 0.001, -0.001],
    ]
)
PERIOD = 7.7


def orbit(points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, velocity and action along the orbit."""
    angle = np.arange(points)[:, None] / points * 2.0 * np.pi * HARMONICS
    w = 2.0 * np.pi / PERIOD * HARMONICS
    even, odd = COEFFICIENTS[::2].T, COEFFICIENTS[1::2].T
    cos, sin = np.cos(angle), np.sin(angle)
    place = cos @ even + sin @ odd
    velocity = (cos * w) @ odd - (sin * w) @ even
    acceleration = -(cos * w**2) @ even - (sin * w**2) @ odd
    return place, velocity, (acceleration + 2.0 * velocity) / 3.0


def follow(obs: np.ndarray) -> np.ndarray:
    """The orbit's force at the nearest point of the orbit, corrected by position and velocity."""
    place, velocity, force = orbit(308)
    x, v = obs[:, None, :2], obs[:, None, 2:]
    far = ((x - place) ** 2).sum(-1) + 0.25 * ((v - velocity) ** 2).sum(-1)
    i = far.argmin(axis=1)
    ahead = (i + 2) % len(place)
    correction = 4.0 * (place[i] - obs[:, :2]) + 1.5 * (velocity[i] - obs[:, 2:])
    return np.clip(force[ahead] + correction, -1.0, 1.0)


def test_facts_of_the_model():
    assert (TASK.model.nq, TASK.model.nv, TASK.model.nu) == (2, 2, 2)
    assert TASK.model.body_mass.sum() == pytest.approx(1.0)
    assert TASK.dt == pytest.approx(0.1)
    assert TASK.model.opt.timestep == TASK.timestep


def test_the_point_moves_as_solved_by_hand():
    simulator = Simulator(TASK, 1, seed=0)
    x, v = simulator.obs[0, :2], simulator.obs[0, 2:]
    force = np.array([0.5, -1.0])
    for _ in range(20):
        simulator.step(force[None])
        for _ in range(10):
            # Euler, implicit in the damping
            v = v + 0.01 * (3.0 * force - 2.0 * v) / (1.0 + 0.01 * 2.0)
            x = x + 0.01 * v
    np.testing.assert_allclose(simulator.obs[0], [*x, *v], atol=1e-9)


def test_stops_hold_the_point_along_x_only():
    simulator = Simulator(TASK, 2, seed=0)
    for _ in range(60):
        simulator.step(np.array([[1.0, 1.0], [-1.0, -1.0]]))
    np.testing.assert_allclose(simulator.obs[:, 0], [2.5, -2.5], atol=0.02)
    assert (np.abs(simulator.obs[:, 1]) > 8.0).all()


def test_reward_is_the_formula():
    simulator = Simulator(TASK, 3, seed=1)
    for _ in range(5):
        simulator.step(np.full((3, 2), 0.7))
    step = simulator.step(np.full((3, 2), 0.7))
    x, y, vx, vy = step.next_obs.T
    expected = (x * vy - y * vx) / (1 + abs(np.sqrt(x**2 + y**2) - 2.0))
    np.testing.assert_allclose(step.reward, expected, rtol=1e-12)


@pytest.mark.parametrize(("x", "cost"), [(1.2, 0.0), (1.2001, 1.0), (-1.2, 0.0), (-1.2001, 1.0)])
def test_cost_begins_beyond_the_lines(x, cost):
    obs = np.array([x, 0.0, 0.0, 0.0])
    assert TASK.cost(obs, np.zeros(2), obs) == cost
    assert not TASK.terminated(obs, np.zeros(2), obs)


def test_a_safe_policy_earns_what_the_docstring_says():
    simulator = Simulator(TASK, 4, seed=0)
    total, cost = np.zeros(4), np.zeros(4)
    for _ in range(1000):
        step = simulator.step(follow(simulator.obs))
        total += step.reward
        cost += step.cost[:, 0]
    assert cost.max() == 0.0
    assert total.min() > 1860.0


def test_the_limit_binds():
    """A circle at the target radius earns more than any safe policy and costs far more than 10."""
    simulator = Simulator(TASK, 1, seed=0)
    total, cost = 0.0, 0.0
    for _ in range(1000):
        x, v = simulator.obs[:, :2], simulator.obs[:, 2:]
        outward = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 0.1)
        along = np.stack([-outward[:, 1], outward[:, 0]], axis=1)
        radius = np.linalg.norm(x, axis=1, keepdims=True)
        wanted = 1.5 * along + (1.5 * (2.0 - radius) - 0.35) * outward
        step = simulator.step(np.clip(2.0 * (wanted - v) + 2.0 / 3.0 * wanted, -1, 1))
        total += step.reward[0]
        cost += step.cost[0, 0]
    assert total > 2200.0
    assert cost > 400.0
