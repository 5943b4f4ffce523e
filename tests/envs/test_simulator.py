"""Many copies: the same to the bit as one, for any number of threads, and restorable."""

from itertools import pairwise

import gymnasium
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.envs.simulator import RealStep, Simulator

NAMES = cmbpo.tasks.names()


def actions(task, steps: int, n: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (steps, n, len(task.act_names)))


def assert_same(a: RealStep, b: RealStep) -> None:
    for name in a._fields:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_threads_gives_the_same_bits(name):
    task = cmbpo.tasks.get(name)
    simulators = [Simulator(task, 6, seed=3, threads=threads) for threads in (1, 2, 5)]
    for simulator in simulators:
        simulator._left[:] = np.arange(5, 11)
    for act in actions(task, 20, 6):
        one, two, five = [simulator.step(act) for simulator in simulators]
        assert_same(one, two)
        assert_same(one, five)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_does_what_the_single_environment_does(name):
    """Copy 0 from `reset(seed=s)`; each copy whatever the number of the others; episodes on end."""
    task = cmbpo.tasks.get(name)
    env = gymnasium.make(task.env_id, max_episode_steps=15)
    few, many = Simulator(task, 2, seed=7), Simulator(task, 5, seed=7)
    few._left[:], many._left[:] = 15, 15
    obs, _ = env.reset(seed=7)
    np.testing.assert_array_equal(obs, many.obs[0])
    for k, act in enumerate(actions(task, 25, 5)):
        a, b = few.step(act[:2]), many.step(act)
        obs, reward, terminated, truncated, info = env.step(act[0])
        np.testing.assert_array_equal(obs, b.next_obs[0])
        assert reward == b.reward[0]
        assert (terminated, truncated) == (b.terminated[0], b.truncated[0])
        assert truncated == (k == 14)
        assert info["cost"] == b.cost[0, 0]
        np.testing.assert_array_equal(a.obs, b.obs[:2])
        np.testing.assert_array_equal(a.reward, b.reward[:2])
        if terminated or truncated:
            obs, _ = env.reset()
            np.testing.assert_array_equal(obs, b.obs[0])
            assert not np.array_equal(b.next_obs[0], b.obs[0])


@pytest.mark.parametrize("name", NAMES)
def test_continues_to_the_bit_from_a_file(name, tmp_path):
    task = cmbpo.tasks.get(name)
    first = Simulator(task, 4, seed=0, stagger=True)
    first._left[:] = [9, 12, 13, 25]
    act = actions(task, 30, 4)
    for a in act[:11]:
        first.step(a)
    np.savez(tmp_path / "state.npz", **first.state())  # pyright: ignore[reportArgumentType]
    second = Simulator(task, 4, seed=99)
    with np.load(tmp_path / "state.npz", allow_pickle=False) as held:
        second.restore(dict(held))
    np.testing.assert_array_equal(first.obs, second.obs)
    for a in act[11:]:
        assert_same(first.step(a), second.step(a))


def test_a_held_state_does_not_change_with_the_simulator():
    task = cmbpo.tasks.get("PointCircle")
    simulator = Simulator(task, 3, seed=0)
    held = simulator.state()
    copies = {name: array.copy() for name, array in held.items()}
    for act in actions(task, 5, 3):
        simulator.step(act)
    for name, array in copies.items():
        np.testing.assert_array_equal(held[name], array)


def test_a_state_of_another_shape_is_refused():
    three = Simulator(cmbpo.tasks.get("PointCircle"), 3, seed=0)
    four = Simulator(cmbpo.tasks.get("PointCircle"), 4, seed=0)
    with pytest.raises(ValueError, match=r"'physics' is \(3, 5\); allowed: shape \(4, 5\)"):
        four.restore(three.state())
    with pytest.raises(ValueError, match="'physics' is missing"):
        four.restore({})


def test_staggered_first_episodes_end_one_after_the_other():
    task = cmbpo.tasks.get("PointCircle")
    simulator = Simulator(task, 8, seed=0, stagger=True)
    ends: list[list[int]] = [[] for _ in range(8)]
    for k in range(1500):
        step = simulator.step(np.zeros((8, 2)))
        for i in np.flatnonzero(step.truncated):
            ends[i].append(k + 1)
    assert [end[0] for end in ends] == [125, 250, 375, 500, 625, 750, 875, 1000]
    assert all(b - a == 1000 for end in ends for a, b in pairwise(end))


def test_without_stagger_all_episodes_last_the_horizon():
    task = cmbpo.tasks.get("PointCircle")
    simulator = Simulator(task, 2, seed=0)
    truncated = np.stack([simulator.step(np.zeros((2, 2))).truncated for _ in range(1000)])
    assert truncated[-1].all()
    assert not truncated[:-1].any()


def test_copies_start_differently_and_seeds_do():
    task = cmbpo.tasks.get("HalfCheetahSafe")
    obs = np.concatenate([Simulator(task, 4, seed=seed).obs for seed in range(5)])
    assert len(np.unique(obs[:, 0])) == 20


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9, 1e30])
def test_physics_that_blow_up_end_one_episode_only(name, value, capfd, tmp_path, monkeypatch):
    """Nor do they print, or leave MuJoCo's log behind."""
    monkeypatch.chdir(tmp_path)
    task = cmbpo.tasks.get(name)
    sick, well = Simulator(task, 4, seed=3, threads=2), Simulator(task, 4, seed=3, threads=2)
    others = [0, 2, 3]
    sick._state[1, 1 + task.model.nq] = value
    for k, act in enumerate(actions(task, 6, 4)):
        a, b = sick.step(act), well.step(act)
        for mine, theirs in zip(a, b, strict=True):
            np.testing.assert_array_equal(mine[others], theirs[others])
        assert np.isfinite(a.obs).all()
        assert np.isfinite(a.reward).all()
        assert np.isnan(a.next_obs[1]).all() == (k == 0)
        if k == 0:
            assert a.terminated[1]
            assert a.cost[1, 0] == 1.0
            assert a.reward[1] == 0.0
    assert (sick.mishaps.not_finite, well.mishaps.not_finite) == (1, 0)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_wrong_numbers_of_copies_threads_and_seeds_are_refused():
    task = cmbpo.tasks.get("PointCircle")
    with pytest.raises(ValueError, match="num_envs is 0; allowed: at least 1"):
        Simulator(task, 0, seed=0)
    with pytest.raises(ValueError, match="threads is 0; allowed: at least 1"):
        Simulator(task, 1, seed=0, threads=0)
    with pytest.raises(ValueError, match="seed is -1; allowed: 0 or more"):
        Simulator(task, 1, seed=-1)


def test_wrong_actions_are_refused():
    simulator = Simulator(cmbpo.tasks.get("PointCircle"), 2, seed=0)
    before = simulator.obs
    with pytest.raises(ValueError, match=r"shape \(2, 3\); allowed: \(2, 2\)"):
        simulator.step(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"allowed: finite numbers"):
        simulator.step(np.array([[0.0, np.nan], [0.0, 0.0]]))
    np.testing.assert_array_equal(simulator.obs, before)
