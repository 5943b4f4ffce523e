"""CMBPO's default for one's own robot, its cost learned, on two problems whose best is computed.

The best return that a mean cost of c allows is the least, over prices λ ≥ 0 of cost, of the best
return less λ times what is spent beyond c: the dual of the linear programme over the grid's
occupancies, each price solved backwards in time.
"""

from functools import cache

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from cmbpo.agent import Agent

HORIZON = 100
GRID = np.linspace(0.0, 1.0, 201)
PUSHES = np.linspace(-1.0, 1.0, 41)


class Line(gymnasium.Env):
    """A number within [0, 1] that is pushed, with noise; it begins at 0 and is the reward."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    push: float
    noise: float
    limit: float

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        moved = self.x + self.push * float(np.clip(action[0], -1.0, 1.0))
        self.x = float(np.clip(moved + self.noise * self.np_random.normal(), 0.0, 1.0))
        cost = float(self.cost_of(np.array(self.x)))
        return np.array([self.x], np.float32), self.x, False, False, {"cost": cost}

    @staticmethod
    def cost_of(x: np.ndarray) -> np.ndarray:
        """Cost of arriving at x."""
        raise NotImplementedError


class Heater(Line):
    """Warmth is the reward, its square what it takes: the best is one temperature throughout."""

    push, noise, limit = 0.2, 0.0, 25.0

    @staticmethod
    def cost_of(x):
        return x**2


class Cliff(Line):
    """The rewarding end costs: how near to go depends on the noise and on what may be spent."""

    push, noise, limit = 0.1, 0.05, 10.0

    @staticmethod
    def cost_of(x):
        return np.where(x > 0.75, 1.0, 0.0)


@cache
def moves(problem: type[Line]) -> np.ndarray:
    """P(x' | x, a) on the grid; without noise x' is shared by its two neighbours."""
    aim = np.clip(GRID[:, None] + problem.push * PUSHES[None], 0.0, 1.0)[..., None]
    step = GRID[1] - GRID[0]
    if problem.noise == 0.0:
        return np.maximum(1.0 - np.abs(GRID - aim) / step, 0.0)
    aim = GRID[:, None, None] + problem.push * PUSHES[None, :, None]
    edges = np.concatenate([[-np.inf], (GRID[1:] + GRID[:-1]) / 2, [np.inf]])
    return np.diff(norm.cdf((edges - aim) / problem.noise), axis=-1)


def best_return(problem: type[Line], budget: float) -> float:
    """The most that can be earned in an episode at a mean cost of `budget`."""

    def dual(price: float) -> float:
        gain = GRID - price * problem.cost_of(GRID)
        value = np.zeros_like(GRID)
        for _ in range(HORIZON):
            value = (moves(problem) @ (gain + value)).max(axis=1)
        return value[0] + price * budget

    return minimize_scalar(dual, bounds=(0.0, 10.0), method="bounded", options={"xatol": 1e-3}).fun


@pytest.mark.parametrize("budget", [25.0, 9.0])
def test_the_best_of_the_heater_is_one_temperature(budget):
    """Nearly: 0.2 a step take it to √(c/100) in at most three, which the rest makes up for."""
    even = HORIZON * np.sqrt(budget / HORIZON)
    assert 0.98 * even < best_return(Heater, budget) < 1.002 * even


def test_without_a_limit_the_best_of_the_cliff_is_its_end():
    assert best_return(Cliff, HORIZON) > 0.9 * HORIZON


@pytest.mark.slow
@pytest.mark.parametrize("problem", [Heater, Cliff])
def test_the_default_finds_the_best_that_its_margin_allows(problem, tmp_path):
    def make():
        return gymnasium.wrappers.TimeLimit(problem(), HORIZON)

    shares = []
    for seed in range(2):
        agent = Agent("cmbpo", make, cost_limit=problem.limit, seed=seed, log_dir=str(tmp_path))
        assert agent.settings.policy.adapt_units, "as any own environment"
        agent.learn(60_000)
        found = agent.evaluate(episodes=50).deterministic
        assert found.mean_cost().mean <= problem.limit
        margin = agent.settings.cost_estimate.target * problem.limit
        shares.append(found.mean_return().mean / best_return(problem, margin))
    assert np.mean(shares) >= 0.97
