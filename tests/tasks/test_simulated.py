"""Simulated tasks: scenes that are built in silence, and physics that may blow up."""

import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.tasks.simulated import BLOWN_UP, ThreadedCopies, robot, unsaid
from tests.tasks.test_tasks import NAMES


def test_building_a_scene_prints_and_warns_nothing(tmp_path):
    code = "import cmbpo.tasks as t\nfor n in t.names(): t.get(n).model, t.get(n).drawing"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], check=True, capture_output=True, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_that_blows_up_is_terminal_costs_and_earns_nothing_and_the_others_go_on(name):
    task = cmbpo.tasks.get(name)
    copies = ThreadedCopies(task, threads=1)
    random = [np.random.default_rng(i) for i in range(3)]
    state, obs = copies.begin(np.arange(3), random)
    state[1, 1 : 1 + task.model.nq] = 10.0 * BLOWN_UP
    act = np.zeros((3, len(task.act_names)))
    out = copies.step(state, obs, act)
    assert out.blown_up.tolist() == [False, True, False]
    assert np.isnan(out.obs[1]).all()
    assert np.isfinite(out.obs[[0, 2]]).all()
    assert (out.reward[1], out.cost[1, 0], bool(out.terminated[1])) == (0.0, 1.0, True)
    assert np.isfinite(out.state).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_no_bit(name):
    task = cmbpo.tasks.get(name)
    act = np.random.default_rng(0).uniform(-1, 1, (5, 6, len(task.act_names)))
    ends = []
    for threads in (1, 3):
        copies = ThreadedCopies(task, threads)
        state, obs = copies.begin(np.arange(6), [np.random.default_rng(i) for i in range(6)])
        for a in act:
            out = copies.step(state, obs, a)
            state, obs = out.state, out.obs
        ends.append(state)
    np.testing.assert_array_equal(*ends)


def test_a_robot_is_the_one_that_gymnasium_ships():
    ant = gymnasium.make("Ant-v5").unwrapped.model  # pyright: ignore[reportAttributeAccessIssue]
    ours = robot("ant.xml").compile()
    np.testing.assert_array_equal(ours.body_mass, ant.body_mass)
    np.testing.assert_array_equal(ours.actuator_gear, ant.actuator_gear)


def test_warnings_of_mujoco_are_unsaid_inside_only():
    before = mujoco.get_mju_user_warning()
    with unsaid():
        assert mujoco.get_mju_user_warning() is not before
    assert mujoco.get_mju_user_warning() is before
    with pytest.raises(RuntimeError, match="trouble"), unsaid():
        raise RuntimeError("trouble")
    assert mujoco.get_mju_user_warning() is before
