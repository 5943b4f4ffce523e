"""What final policies are worth: by hand, and in the document that quotes it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cmbpo.evaluation import evaluated
from cmbpo.evaluation.evaluated import FILE, Episodes, Evaluated
from cmbpo.report.final_policies import benchmark, kept_limits
from cmbpo.report.published import PUBLISHED
from cmbpo.report.reading.read import collect
from cmbpo.report.summary import markdown
from cmbpo.report.tables import mean_interval
from cmbpo.settings import presets
from tests.report.test_report import fake, words

ROOT = Path(__file__).resolve().parents[2]
TASK = "HopperVelocity"


def run_of(folder: Path, seed: int) -> Path:
    """120 episodes of 1000 steps; the last 100 earn 5000 at a cost of 4."""
    settings = replace(presets.preset("cmbpo", TASK), seed=seed, cost_limit=(25.0,))
    return fake(folder, settings, episodes=120, good_after=20)


def evaluate_to(folder: Path, mean_return: float, costs: list[float], **other: Any) -> None:
    """Ten episodes of each kind; those with noise earn half."""
    spent, n = np.array(costs)[:, None], len(costs)
    quiet = Episodes(np.full(n, mean_return), spent, np.full(n, 1000), np.zeros(n, bool))
    noisy = quiet._replace(returns=quiet.returns / 2)
    found = Evaluated("", 120_000, False, 7, 1000, ("speed",), (25.0,), quiet, noisy)
    evaluated.write(folder / FILE, found._replace(**other))


def test_policies_that_were_evaluated_stand_beside_what_is_published(tmp_path):
    """Tenths of ten episodes are one: the CVaR is the costliest."""
    evaluate_to(run_of(tmp_path / "a", seed=0), 1600.0, [10.0] * 9 + [30.0])
    evaluate_to(run_of(tmp_path / "b", seed=1), 1800.0, [0.0] * 9 + [20.0])
    ours, *theirs = benchmark(collect([tmp_path])).rows
    low, high = stats.t.interval(0.95, 1, 1700.0, stats.sem([1600.0, 1800.0]))
    assert ours[:5] == [TASK, "CMBPO", "120,000", "2", f"1,700 ({low:,.0f}–{high:,.0f})"]
    low, high = stats.t.interval(0.95, 1, 7.0, stats.sem([12.0, 2.0]))
    assert low < 0
    assert ours[5] == f"7.0 (0.0–{high:.1f})"
    assert ours[6].startswith("25.0 (")
    assert ours[7].startswith("850 (")
    assert [row[1] for row in theirs] == [other.method for other in PUBLISHED[TASK]]


def test_it_is_counted_how_many_policies_keep_their_limit(tmp_path):
    """The limit is 25: a mean of 12 keeps it, one of 31 does not; the third was not evaluated."""
    evaluate_to(run_of(tmp_path / "a", seed=0), 1600.0, [10.0] * 9 + [30.0])
    evaluate_to(run_of(tmp_path / "b", seed=1), 1800.0, [31.0] * 10)
    run_of(tmp_path / "c", seed=2)
    (row,) = kept_limits(collect([tmp_path])).rows
    assert row[:4] == [TASK, "CMBPO", "2", "1 of 2"]
    low, high = stats.t.interval(0.95, 1, 21.5, stats.sem([12.0, 31.0]))
    assert low < 0.0
    assert row[4] == f"21.5 (0.0–{high:.1f})"
    assert row[6] == "1 of 2"
    assert row[8].startswith("850 (")


def test_without_an_evaluation_the_last_episodes_of_training_stand_for_it_and_are_marked(tmp_path):
    run_of(tmp_path / "a", seed=0)
    ours = benchmark(collect([tmp_path])).rows[0]
    assert ours[4:7] == ["–", "–", "–"]
    assert re.fullmatch(r"(4,999|5,000|5,001) †", ours[7])
    assert ours[8:] == ["4.0 †", "4.0 †"]


def test_the_page_shows_them_and_says_what_cannot_be_read(tmp_path):
    evaluate_to(run_of(tmp_path / "a", seed=0), 1600.0, [10.0])
    assert "Final policies" in words([tmp_path])
    (tmp_path / "a" / FILE).write_text("[]")
    found = collect([tmp_path])
    assert len(found.runs) == 1
    assert found.left_out == [f"a: {FILE} is no evaluation: it does not say that it is one."]


def test_an_evaluation_of_another_run_is_not_taken_for_this_ones(tmp_path):
    folder = run_of(tmp_path / "a", seed=0)
    evaluate_to(folder, 1600.0, [10.0])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"id": "7a"}))
    found = collect([tmp_path])
    assert [run.evaluated for run in found.runs] == [None]
    assert found.left_out == [f"a: {FILE} is of another run."]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"best": True}, "of the best policy within the limit, not of the last"),
        ({"env_steps": 100_000}, "of the policy after 100,000 of 120,000 steps"),
    ],
)
def test_an_evaluation_of_another_policy_of_the_run_is_not_taken_for_the_last_ones(
    tmp_path, other, told
):
    """The best is chosen: it looks better than policies at the end of a run are."""
    evaluate_to(run_of(tmp_path / "a", seed=0), 1600.0, [10.0], **other)
    found = collect([tmp_path])
    assert [run.evaluated for run in found.runs] == [None]
    assert found.left_out == [f"a: {FILE} is {told}."]


def test_the_interval_of_a_mean_is_students():
    costs = [4.0, 7.5, 6.1, 9.9]
    low, high = stats.t.interval(0.95, 3, np.mean(costs), stats.sem(costs))
    assert mean_interval(costs, "{:.1f}".format) == f"{np.mean(costs):.1f} ({low:.1f}–{high:.1f})"
    assert mean_interval([3.0, np.nan], "{:.1f}".format) == "3.0"
    assert mean_interval([], "{:.1f}".format) == "–"


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="the runs are not part of the package")
@pytest.mark.parametrize(
    ("made", "name", "document", "mark"),
    [
        (benchmark, "benchmark", "benchmark", "table"),
        (kept_limits, "policies", "results", "policies"),
    ],
)
def test_documents_quote_the_tables_of_all_reported_runs(made, name, document, mark):
    table = markdown(made(collect([ROOT / "results"])))
    assert (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8") == table
    text = (ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8")
    assert re.findall(rf"<!-- {mark} -->\n(.*?)<!-- end of {mark} -->", text, re.DOTALL) == [table]
