"""Successive halving: where the rungs are, and who stops at them."""

import math

import pytest

from cmbpo.experiments import drive, halving, live, plan
from tests.experiments.test_standing import KL, jobs, record


@pytest.mark.parametrize(
    ("values", "total_steps", "found"),
    [("1,2", 80, [1]), ("1,2,3", 80, [1]), ("1,2,3,4", 80, [2, 1]), ("1,2,3,4", 79, [1])],
)
def test_the_rungs_are_as_many_as_halve_the_arms_and_none_is_too_early(
    tmp_path, values, total_steps, found
):
    given = jobs(tmp_path, f"trust-region.max-kl={values}", total_steps=total_steps)
    assert halving.rungs(given) == found


def test_what_cannot_be_halved_is_refused(tmp_path):
    with pytest.raises(ValueError, match="one arm; allowed: two or more"):
        halving.rungs(jobs(tmp_path, seeds=3))
    with pytest.raises(ValueError, match=r"total_steps 39; allowed here: from 40, 4 times"):
        halving.rungs(jobs(tmp_path, KL, total_steps=39))
    with pytest.raises(ValueError, match=r"on AntSafe-v0 have 1,000,000 and 10,000,000; give"):
        halving.rungs(plan.jobs("table1", seeds=[0], envs=["AntSafe"]))


RETURNS = {"0.01": 10, "0.02": 40, "0.03": 30, "0.04": 50}
COSTS = {"0.01": 1, "0.02": 2, "0.03": 3, "0.04": 20}


def advance(asked: list[plan.Job]) -> None:
    """Take the steps of these runs, as if they learned nothing more."""
    for job in asked:
        value = job.values()["max-kl"]
        count = math.ceil(job.end / 100)
        record(job.folder, [RETURNS[value]] * count, [COSTS[value]] * count)


def raced(given: list[plan.Job], rungs: list[int]) -> tuple[dict[str, str], list[tuple[str, int]]]:
    """How each run ended, and which were run, up to which step."""
    lines = drive._lines(given)
    ran: list[tuple[str, int]] = []

    def run(todo) -> bool:
        advance(todo)
        for job in todo:
            ran.append((job.values()["max-kl"], job.end))
            lines[job.name].state = "waiting" if job.until else "finished"
        return False

    assert not drive.race(given, rungs, lines, run)
    names = {job.name: job.values()["max-kl"] for job in given}
    return {names[n]: line.reason or line.state for n, line in lines.items()}, ran


def test_at_each_rung_the_worse_half_stops_and_is_named_with_its_steps(tmp_path):
    given = jobs(tmp_path, KL)
    ends, ran = raced(given, halving.rungs(given))
    assert ends == {
        "0.01": "stopped at 200 of 800 steps, number 3 of 4 there",
        "0.02": "finished",
        "0.03": "stopped at 400 of 800 steps, number 2 of 2 there",
        "0.04": "stopped at 200 of 800 steps, number 4 of 4 there",
    }
    first = [(value, 200) for value in RETURNS]
    assert ran == [*first, ("0.02", 400), ("0.03", 400), ("0.02", 800)]


def test_the_same_command_again_runs_nothing_and_says_the_same(tmp_path):
    given = jobs(tmp_path, KL)
    first, _ = raced(given, halving.rungs(given))
    again, ran = raced(given, halving.rungs(given))
    assert again == first
    assert not ran


def test_without_rungs_what_was_stopped_goes_on(tmp_path):
    given = jobs(tmp_path, KL)
    raced(given, halving.rungs(given))
    ends, ran = raced(given, [])
    assert set(ends.values()) == {"finished"}
    assert ran == [("0.01", 800), ("0.03", 800), ("0.04", 800)]


def test_what_is_finished_is_not_said_to_have_lost(tmp_path):
    given = jobs(tmp_path, KL)
    advance(given)
    ends, ran = raced(given, halving.rungs(given))
    assert set(ends.values()) == {"finished"}
    assert not ran


def test_before_the_first_episode_ends_nobody_has_lost(tmp_path):
    given = jobs(tmp_path, KL)
    for job in given:
        record(job.folder, [math.nan, math.nan], [1.0, 2.0])
    assert halving.losers(given, 2) == {}


def test_seeds_stop_together_and_a_failed_one_does_not_count(tmp_path):
    given = jobs(tmp_path, "trust-region.max-kl=0.01,0.02", seeds=2)
    advance([job._replace(until=400) for job in given[:3]])
    assert list(halving.losers(given, 1)) == ["cpo-PointCircle/max-kl=0.01"]


def test_a_stop_by_the_user_ends_the_race(tmp_path):
    given = jobs(tmp_path, KL)
    lines = {job.name: live.Line(job.name, 800) for job in given}
    assert drive.race(given, [2, 1], lines, lambda todo: True)
    assert {line.state for line in lines.values()} == {"waiting"}
