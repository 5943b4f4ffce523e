"""How runs end: by hand, and what is said where training cut the episodes short."""

from pathlib import Path

import numpy as np
import pytest

from cmbpo import report
from cmbpo.report import tables
from cmbpo.report.reading.read import collect
from cmbpo.report.safety import safety
from cmbpo.runs.tables import CsvTable
from tests.report.test_report import ant, fake


def replayed(folder: Path, *, lengths: list[int], costs: list[float], fell: bool = False) -> Path:
    """The run of a folder with other episodes, one after the other."""
    (folder / "episodes.csv").unlink()
    ends = np.cumsum(lengths)
    played = [
        {"env_steps": n, "return": 1.0, "cost": c, "length": length, "terminated": int(fell)}
        for n, c, length in zip(ends, costs, lengths, strict=True)
    ]
    CsvTable(folder / "episodes.csv").append(played)
    return folder


def test_the_safety_of_a_run_by_hand(tmp_path):
    run = collect([fake(tmp_path / "run", ant(), episodes=200, good_after=40)]).runs[0]
    ended = safety(run)
    assert (ended.end_costs, ended.holds, ended.violating) == ({"cost": 4.0}, True, 40 / 200)
    assert (ended.excess.regret, ended.excess.share) == (40 * 30.0, 40 / 200)
    assert (ended.whole, ended.end_length) == (1.0, 1000.0)


def test_the_costliest_tenth_is_of_the_last_whole_episodes(tmp_path):
    """Of the last 100,000 steps: 10 of 100 episodes cost 60, 70, … 150 and the others nothing."""
    folder = fake(tmp_path / "run", ant(num_envs=1), episodes=200, good_after=0)
    costly = [60.0 + 10.0 * i for i in range(10)]
    replayed(folder, lengths=[1000] * 200, costs=[900.0] * 100 + [0.0] * 90 + costly)
    assert safety(collect([folder]).runs[0]).end_tails == {"cost": pytest.approx(105.0)}
    row = tables.training(collect([folder])).rows[0]
    assert row[5] == "105.0"


def test_of_episodes_of_another_length_the_costliest_tenth_is_in_the_units_of_the_limit(tmp_path):
    folder = fake(tmp_path / "run", ant(env_id="my:Robot-v0", cost_limit=(5.0,)), episodes=10)
    replayed(folder, lengths=[250] * 40, costs=[2.0] * 40)
    run = collect([folder]).runs[0]
    assert run.horizon == 250
    assert run.limits == {"cost": 20.0}
    assert safety(run).end_tails == {"cost": pytest.approx(8.0)}


def short(folder: Path, seed: int, *, cost: float = 0.0) -> Path:
    """A run of 10,000 steps in episodes of 110 of 1000 steps."""
    fake(folder, ant(seed=seed, num_envs=1), episodes=10, good_after=0 if cost == 0 else 10)
    return replayed(folder, lengths=[110] * 90, costs=[cost] * 90)


def test_a_limit_seen_to_hold_in_short_episodes_only_is_not_said_to_hold(tmp_path):
    short(tmp_path / "a", 0)
    shown = collect([tmp_path])
    ended = safety(shown.runs[0])
    assert ended.within_limits
    assert ended.holds is None
    assert (ended.whole, ended.end_length) == (0.0, 110.0)
    row = tables.training(shown).rows[0]
    assert row[5:8] == ["–", "0 %", "not known (cut short)"]
    page = report.made(shown).page
    assert "training cut most episodes of the last 100,000 steps short" in page
    assert "110 of 1,000 steps" in page
    assert "1 of 1" not in page


def test_beside_seeds_with_whole_episodes_the_others_are_counted_apart(tmp_path):
    short(tmp_path / "a", 0)
    for seed in (1, 2):
        fake(tmp_path / f"{seed}", ant(seed=seed, num_envs=1), episodes=200, good_after=40)
    held = tables.training(collect([tmp_path])).rows[0][7]
    assert held.startswith("2 of 2 [")
    assert held.endswith(" (1 not known: cut short)")


def test_a_limit_exceeded_even_in_short_episodes_does_not_hold(tmp_path):
    ended = safety(collect([short(tmp_path / "a", 0, cost=20.0)]).runs[0])
    assert ended.holds is False


def test_an_episode_that_ends_in_a_fall_is_whole(tmp_path):
    folder = fake(tmp_path / "run", ant(num_envs=1), episodes=10, good_after=0)
    replayed(folder, lengths=[110] * 90, costs=[0.0] * 90, fell=True)
    ended = safety(collect([folder]).runs[0])
    assert (ended.whole, ended.holds) == (1.0, True)
