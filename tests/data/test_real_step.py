"""What a real step says of its copies, held against the simulator of a task of this package."""

import numpy as np
import pytest

from cmbpo import tasks
from cmbpo.data.real_step import RealStep, Steppable
from cmbpo.envs.simulator import Simulator

N, EPISODE = 4, 8


@pytest.fixture(scope="module")
def steps() -> list[RealStep]:
    """Staggered copies, that end after 2, 4, 6 and 8 steps at first and then after 8."""
    task = tasks.get("PointCircle")
    simulator = Simulator(task, N, seed=0, episode_steps=EPISODE, stagger=True)
    assert isinstance(simulator, Steppable)
    act = np.random.default_rng(0).uniform(-1.0, 1.0, (20, N, len(task.act_names)))
    return [simulator.step(a) for a in act]


def test_a_copy_is_where_its_step_led_unless_its_episode_ended(steps):
    ended = np.stack([s.terminated | s.truncated for s in steps])
    stayed = np.stack([(s.obs == s.next_obs).all(axis=1) for s in steps])
    assert ended.any()
    np.testing.assert_array_equal(stayed, ~ended)


def test_time_that_is_up_cuts_an_episode_which_the_task_itself_would_go_on_with(steps):
    for s in steps:
        assert not s.terminated.any()
        np.testing.assert_array_equal(s.cut, s.truncated)
        np.testing.assert_array_equal(s.allotted, EPISODE)
    cuts = [np.flatnonzero([s.cut[i] for s in steps]).tolist() for i in range(N)]
    assert cuts == [[1, 9, 17], [3, 11, 19], [5, 13], [7, 15]]
