"""How often a copy may go wrong before the run ends, and what is said of it."""

import numpy as np
import pytest

from cmbpo.envs.copies.supervision import AMONG, MOST_LOST, MOST_UNSOUND, Record, what_is_not_finite
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.tasks.task import Mishaps

ACT = np.zeros(1)


def episodes(record: Record, number: int) -> None:
    for seed in range(number):
        record.begin(seed)
        record.step()


def test_every_restart_is_counted_and_said():
    mishaps = Mishaps()
    record = Record(3, mishaps)
    episodes(record, 2)
    record.lose("was ended by SIGKILL.", ACT)
    assert mishaps.restarts == 1
    assert mishaps.take_sentences() == [
        "Copy 3 was ended by SIGKILL. It was step 1 of the episode that reset(seed=1) of copy 3"
        " began, with the action [0]. It was started anew, and its episode is lost."
    ]
    assert mishaps.take_sentences() == [], "they are taken once"


def test_a_copy_that_keeps_dying_ends_the_run():
    record = Record(0, Mishaps())
    for _ in range(MOST_LOST - 1):
        episodes(record, 2)
        record.lose("ended with status 3.", None)
    record.begin(9)
    with pytest.raises(EnvironmentFailure, match=f"It keeps doing so: {MOST_LOST} of its newest"):
        record.lose("ended with status 3.", None)


def test_one_that_dies_now_and_then_goes_on():
    mishaps = Mishaps()
    record = Record(0, mishaps)
    for _ in range(3 * MOST_LOST):
        episodes(record, AMONG // (MOST_LOST - 1) + 1)
        record.lose("ended with status 3.", ACT)
    assert mishaps.restarts == 3 * MOST_LOST


def test_what_keeps_not_being_finite_ends_the_run_and_is_told_since_when():
    mishaps = Mishaps()
    record = Record(0, mishaps)
    episodes(record, 50)
    for _ in range(MOST_UNSOUND - 1):
        record.not_finite("the reward is nan", ACT)
        episodes(record, 1)
    with pytest.raises(EnvironmentFailure, match=r"the reward is nan.* it began 19 steps"):
        record.not_finite("the reward is nan", ACT)
    assert mishaps.not_finite == MOST_UNSOUND - 1
    (said,) = mishaps.take_sentences()
    assert said.startswith("Not finite: the reward is nan. It was step 1 of the episode")


def test_one_episode_that_ends_well_begins_the_count_anew():
    mishaps = Mishaps()
    record = Record(0, mishaps)
    for _ in range(3):
        for _ in range(MOST_UNSOUND - 1):
            episodes(record, 1)
            record.not_finite("the reward is nan", ACT)
        episodes(record, 2)
    assert mishaps.not_finite == 3 * (MOST_UNSOUND - 1)


@pytest.mark.parametrize(
    ("obs", "reward", "cost", "named"),
    [
        ([0.0, np.nan, np.inf], np.nan, [0.0, 0.0], "observation[1] is nan"),
        ([0.0, 0.0], -np.inf, [np.nan, 0.0], "the reward is -inf"),
        ([0.0, 0.0], 0.0, [np.inf, np.nan], "info['a'] is inf, info['b'] is nan"),
    ],
)
def test_the_first_number_is_named(obs, reward, cost, named):
    assert what_is_not_finite(np.array(obs), reward, np.array(cost), ("a", "b")) == named
