import csv

import numpy as np
import pytest

from cmbpo import tasks
from cmbpo.data.episode_curriculum import next_length
from cmbpo.data.ledger import Ledger
from cmbpo.envs.simulator import Simulator
from cmbpo.settings.schema import TrainSettings
from cmbpo.training import loop
from tests.tiny import rows, steps, tiny

LIMIT, TARGET = np.array([10.0, 20.0]), np.array([5.0, 10.0])


@pytest.mark.parametrize(
    ("length", "cost", "steps", "expected"),
    [
        (200.0, (5.0, 10.0), 1000.0, 204.0),
        (200.0, (5.0, 10.0), 20_000.0, 204.0),
        (200.0, (5.0, 10.0), 500.0, 200.0 * 1.02**0.5),
        (200.0, (5.1, 0.0), 1000.0, 200.0),
        (200.0, (50.0, 0.0), 1000.0, 200.0),
        (200.0, (0.0, 101.0), 1000.0, 180.0),
        (200.0, (0.0, 101.0), 250.0, 200.0 * 0.9**0.25),
        (105.0, (51.0, 0.0), 1000.0, 100.0),
        (995.0, (0.0, 0.0), 1000.0, 1000.0),
        (1000.0, (900.0, 900.0), 1000.0, 1000.0),
    ],
)
def test_episodes_lengthen_within_the_target_and_shorten_far_beyond_the_limit(
    length, cost, steps, expected
):
    found = next_length(
        length,
        first=100,
        horizon=1000,
        cost=np.array(cost),
        target=TARGET,
        limit=LIMIT,
        growth=1.02,
        steps=steps,
    )
    assert found == pytest.approx(expected)


def lengths(simulator: Simulator, count: int) -> list[int]:
    """Of the episodes reported in the next `count` steps."""
    ledger, act = Ledger(simulator.num_envs, 1), np.zeros((simulator.num_envs, 2))
    ended = []
    for _ in range(count):
        s = simulator.step(act)
        ended += ledger.note(
            s.reward, s.cost, s.terminated, s.truncated, cut=s.cut, allotted=s.allotted
        )
    return [e.length for e in ended]


def test_a_new_length_is_that_of_the_episodes_that_begin_then():
    simulator = Simulator(tasks.get("PointCircle"), 2, seed=0, episode_steps=10)
    assert lengths(simulator, 10) == [10, 10]
    simulator.episode_steps = 25
    assert lengths(simulator, 10) == [10, 10]
    assert lengths(simulator, 25) == [25, 25]


def test_staggered_first_episodes_are_shorter_and_not_reported():
    simulator = Simulator(tasks.get("PointCircle"), 4, seed=0, episode_steps=8, stagger=True)
    ends = np.stack([simulator.step(np.zeros((4, 2))).truncated for _ in range(8)])
    np.testing.assert_array_equal(ends.argmax(axis=0), [1, 3, 5, 7])
    simulator = Simulator(tasks.get("PointCircle"), 4, seed=0, episode_steps=8, stagger=True)
    assert lengths(simulator, 8) == [8]


@pytest.mark.slow
def test_the_episodes_of_a_run_grow_and_a_resumed_run_goes_on_with_their_length(tmp_path):
    """33 steps, 2 % more each time: 33.66, 34.33, 35.02, 35.72; from a rounded 34, 34.68."""
    # Updates of so few steps count as that part of one.
    fresh = tiny("cmbpo", tmp_path).real_share.min_real
    growth = 1.02 ** (1000.0 / fresh)
    changes = {"first_episode": 33, "episode_growth": growth, "cost_limit": (1000.0,)}
    whole, _ = loop.run(tiny("cmbpo", tmp_path / "a", total_steps=steps(4), **changes))
    folder, _ = loop.run(tiny("cmbpo", tmp_path / "b", total_steps=steps(2), **changes))
    loop.resume(folder, total_steps=steps(4))
    assert rows(folder) == rows(whole)
    assert [int(row["Train/EpisodeSteps"]) for row in rows(whole)] == [33, 34, 35, 35]
    with (whole / "episodes.csv").open() as file:
        found = {int(row["length"]) for row in csv.DictReader(file)}
    assert found == {33, 34}


def test_an_episode_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="first_episode is 0; allowed: a whole number, 1 to"):
        TrainSettings(first_episode=0)
