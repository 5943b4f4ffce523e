"""A task as a Gymnasium environment: its checker, its time, its terms, its translations."""

import copy
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from cmbpo.tasks.environment import FromSafetyGymnasium, TaskEnv, ToSafetyGymnasium
from tests.tasks.test_tasks import NAMES, SIZES


@pytest.mark.parametrize("name", NAMES)
def test_passes_gymnasiums_checker(name):
    env = gymnasium.make(f"cmbpo/{name}")
    with warnings.catch_warnings():
        # observations are unbounded, which the checker finds worth a warning
        warnings.filterwarnings("ignore", message=".*A Box observation space m.*infinity")
        check_env(env.unwrapped, skip_render_check=True)


def test_ends_after_1000_steps_and_says_so():
    env = gymnasium.make("cmbpo/PointCircle-v0")
    env.reset(seed=0)
    for _ in range(999):
        *_, terminated, truncated, _ = env.step(np.zeros(2))
        assert not terminated
        assert not truncated
    *_, terminated, truncated, _ = env.step(np.zeros(2))
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize("name", NAMES)
def test_the_terms_add_up(name):
    env = gymnasium.make(f"cmbpo/{name}")
    env.action_space.seed(0)
    env.reset(seed=1)
    for _ in range(10):
        _, reward, _, _, info = env.step(env.action_space.sample())
        terms = [value for term, value in info.items() if term.startswith("reward_")]
        assert reward == pytest.approx(sum(terms))
        costs = [value for term, value in info.items() if term.startswith("cost_")]
        assert costs
        assert info["cost"] == max(costs)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_reproduce_to_the_bit(name):
    env = gymnasium.make(f"cmbpo/{name}")
    runs = []
    for _ in range(2):
        obs = [env.reset(seed=5)[0]]
        obs += [env.step(np.full(SIZES[name][1], 0.5))[0] for _ in range(5)]
        obs += [env.reset()[0]]
        runs.append(np.stack(obs))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (env.reset(seed=6)[0] != runs[0][0]).any()


def test_wrong_actions_are_refused():
    env = TaskEnv("PointCircle")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(3,\); allowed: \(2,\)"):
        env.step(np.zeros(3))
    with pytest.raises(ValueError, match=r"the action is \[nan  0.\]; allowed: finite numbers"):
        env.step(np.array([np.nan, 0.0]))


def test_wrong_ways_to_render_are_refused():
    with pytest.raises(ValueError, match="render_mode is 'ascii'; allowed: 'human', 'rgb_array'"):
        TaskEnv("PointCircle", render_mode="ascii")
    with pytest.raises(ValueError, match="the picture is 0 × 480; allowed: at least 1 × 1"):
        TaskEnv("PointCircle", width=0)
    assert TaskEnv("PointCircle").render() is None


def test_six_tuples_and_back():
    plain = gymnasium.make("cmbpo/PointCircle-v0")
    six = ToSafetyGymnasium(gymnasium.make("cmbpo/PointCircle-v0"))
    back = FromSafetyGymnasium(ToSafetyGymnasium(gymnasium.make("cmbpo/PointCircle-v0")))
    for env in (plain, six, back):
        env.reset(seed=0)
    cost = 0.0
    for _ in range(40):
        act = np.array([1.0, 0.2])
        expected, returned, translated = plain.step(act), six.step(act), back.step(act)
        obs, reward, cost, terminated, truncated, info = returned
        np.testing.assert_array_equal(obs, expected[0])
        np.testing.assert_array_equal(translated[0], expected[0])
        assert (reward, terminated, truncated, info) == expected[1:]
        assert translated[1:] == expected[1:]
        assert cost == expected[4]["cost"]
    assert cost == 1.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_goes_on_to_the_bit_from_the_middle_of_an_episode(name, copied):
    env = gymnasium.make(f"cmbpo/{name}")
    act = np.full(SIZES[name][1], 0.5)
    env.reset(seed=3)
    env.step(act)
    twin = copied(env)
    for _ in range(3):
        for mine, theirs in zip(env.step(act)[:2], twin.step(act)[:2], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_single_precision_as_clients_expect(name):
    space = gymnasium.make(f"cmbpo/{name}").action_space
    assert space.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
def test_before_a_reset_there_is_nothing_to_step_or_to_draw(name):
    env = TaskEnv(name, render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"^step\(\) needs a reset\(\) before it"):
        env.step(np.zeros(SIZES[name][1]))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"^render\(\) needs"):
        env.render()
