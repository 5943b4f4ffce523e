"""Copies of an own environment behave as the simulator's do, in line and in processes alike."""

from typing import Literal

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.envs.simulator import Simulator
from cmbpo.settings.schema import EnvSettings

N = 3
HORIZON = 12


class Walk(gymnasium.Env):
    """A random walk that ends beyond 3, has a cost above 1, and is not a number beyond 90."""

    def __init__(self):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-2.0, 2.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = self.np_random.normal(), 0
        return np.array([self.at, 0.0]), {}

    def step(self, action):
        self.time += 1
        self.at += float(action[0]) + 0.1 * self.np_random.normal()
        shown = np.nan if self.at > 90.0 else self.at
        info = {"cost": float(self.at > 1.0)}
        return np.array([shown, self.time]), -shown, abs(self.at) > 3.0, False, info


def make():
    return gymnasium.wrappers.TimeLimit(Walk(), HORIZON)


def task(copies: Literal["inline", "processes"] = "inline"):
    settings = EnvSettings(copies=copies)
    return CustomTask(make, name="Walk", cost_limits=(5.0,), settings=settings)


def test_copies_that_are_one_environment_are_refused():
    one = make()
    shared = CustomTask(lambda: one, name="Walk", cost_limits=(5.0,), settings=EnvSettings())
    with pytest.raises(EnvironmentFailure, match="the same one more than once; allowed: a new one"):
        Simulator(shared, N, seed=0)
    alone = Simulator(shared, 1, seed=0)
    assert alone.step(np.zeros((1, 1))).reward.shape == (1,)


def actions(steps, seed=0, scale=1.0):
    return np.random.default_rng(seed).uniform(-scale, scale, (steps, N, 1))


def same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def by_hand(seed, acts):
    """Copy 0, stepped one by one: its seeds come from the generator of (seed, 0)."""
    seeds = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0])))
    env = make()
    obs, _ = env.reset(seed=int(seeds.integers(2**31)))
    for act in acts:
        next_obs, reward, terminated, truncated, info = env.step(2.0 * act)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset(seed=int(seeds.integers(2**31)))
        yield next_obs, reward, info["cost"], terminated, truncated, obs


def test_a_copy_does_what_the_environment_does_with_the_same_seeds():
    simulator = Simulator(task(), N, seed=5)
    acts = actions(60)
    for act, (next_obs, reward, cost, terminated, truncated, obs) in zip(
        acts, by_hand(5, acts[:, 0]), strict=True
    ):
        step = simulator.step(act)
        np.testing.assert_array_equal(step.next_obs[0], next_obs)
        np.testing.assert_array_equal(step.obs[0], obs)
        assert step.reward[0] == reward
        assert step.cost[0].tolist() == [cost]
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)


def test_processes_and_line_give_the_same_bits():
    line, processes = Simulator(task(), N, seed=1), Simulator(task("processes"), N, seed=1)
    np.testing.assert_array_equal(line.obs, processes.obs)
    for act in actions(30):
        same(line.step(act), processes.step(act))
    processes.close()


def test_other_copies_change_nothing():
    few, many = Simulator(task(), N, seed=2), Simulator(task(), N + 2, seed=2)
    for act in actions(30):
        a, b = few.step(act), many.step(np.concatenate([act, act[:2]]))
        np.testing.assert_array_equal(a.next_obs, b.next_obs[:N])
        np.testing.assert_array_equal(a.obs, b.obs[:N])


def test_first_episodes_are_staggered_and_time_is_truncation():
    simulator = Simulator(task(), N, seed=0, stagger=True)
    ends = [simulator.step(np.zeros((N, 1))).truncated for _ in range(HORIZON)]
    assert np.argmax(ends, axis=0).tolist() == [3, 7, 11]


def test_after_a_restore_every_copy_begins_anew_the_same_each_time():
    simulator = Simulator(task(), N, seed=0, stagger=True)
    for act in actions(7, scale=0.2):
        simulator.step(act)
    state = simulator.state()
    again = [Simulator(task(), N, seed=99) for _ in range(2)]
    for other in again:
        assert not other.restorable
        other.restore(state)
        assert other.obs[:, 1].tolist() == [0.0] * N, "no step has been taken"
    np.testing.assert_array_equal(again[0].obs, again[1].obs)
    assert not np.array_equal(again[0].obs, simulator.obs)
    for act in actions(30, seed=1):
        same(again[0].step(act), again[1].step(act))
    np.testing.assert_array_equal(again[0].state()["steps_left"], again[1].state()["steps_left"])


def test_what_is_not_a_number_ends_the_episode_and_costs():
    simulator = Simulator(task(), N, seed=0)
    simulator._copies._copies[1]._env.unwrapped.at = 95.0  # pyright: ignore
    step = simulator.step(np.zeros((N, 1)))
    assert np.isnan(step.next_obs).all(axis=1).tolist() == [False, True, False]
    assert step.terminated[1]
    assert (step.reward[1], step.cost[1, 0]) == (0.0, 1.0)
    assert np.isfinite(step.obs).all()
    assert simulator.mishaps.not_finite == 1


def test_a_cost_that_is_missing_later_is_said():
    class Forgetful(Walk):
        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            return obs, reward, terminated, truncated, info if self.time < 5 else {}

    forgetful = CustomTask(
        lambda: gymnasium.wrappers.TimeLimit(Forgetful(), HORIZON),
        name="Forgetful",
        cost_limits=(5.0,),
        settings=EnvSettings(),
    )
    simulator = Simulator(forgetful, N, seed=0)
    for _ in range(4):
        simulator.step(np.zeros((N, 1)))
    with pytest.raises(
        ValueError, match="a step reports no cost: its info is empty; allowed: info with 'cost'"
    ):
        simulator.step(np.zeros((N, 1)))
