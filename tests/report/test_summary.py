"""The short table: by hand, as a file, and in the document that quotes it."""

import re
from pathlib import Path

import pytest

from cmbpo import report
from cmbpo.report.drawing.table import Table
from cmbpo.report.reading.read import collect
from cmbpo.report.summary import markdown, summary
from cmbpo.settings.presets import preset
from tests.report.test_report import ant, fake, moved

ROOT = Path(__file__).resolve().parents[2]


def test_an_arm_is_summed_up_by_hand(tmp_path):
    """30 episodes at a cost of 40, then 4: the window of 20 is full at 50, when 1,280 are spent."""
    fake(tmp_path / "a", ant(seed=0))
    fake(tmp_path / "b", ant(seed=1), good_after=35)
    fake(tmp_path / "c", ant(seed=2), good_after=50)
    (row,) = summary(collect([tmp_path])).rows
    assert row[:3] == ["AntSafe, 2500", "CMBPO", "2 of 3"]
    # 10 of the window's 20 episodes suffice for the return, but then they cost 22 on average
    steps, cost = row[3].split("; "), row[4].split("; ")
    assert steps[1] == "not in 60,000"
    assert cost[1] == "> 2,040"
    first, last = (int(x.replace(",", "")) for x in steps[0].split("–"))
    assert last - first == 5_000
    assert first == 47_000, "3 episodes of 40 and 17 of 4 cost 9.4 on average"
    assert cost[0] == "1,268–1,468"
    assert row[5] == "18,000"
    assert row[6].startswith(("4,99", "5,00"))
    assert row[7:9] == ["4.0", "4.0"]
    assert row[9] == "78 %", "the mean of 2/3, 2/3 and 1, in windows of 20,000 steps"
    assert row[10] == "40.0", "of 60 episodes, six of those that cost 40"


def test_what_no_seed_reached_is_left_open_and_other_tasks_are_left_out(tmp_path):
    fake(tmp_path / "a", ant("cpo"), episodes=10)
    fake(tmp_path / "b", preset("cpo", "PointCircle"), episodes=10)
    (row,) = summary(collect([tmp_path])).rows
    assert row[2:6] == ["0 of 1", "not in 10,000", "> 400", "527,000"]
    assert row[6:9] == ["–", "–", "–"]


@pytest.mark.slow
def test_the_summary_is_written_beside_the_page_where_it_has_rows(tmp_path):
    fake(tmp_path / "runs" / "a", ant(), episodes=30)
    report.write([tmp_path / "runs"], tmp_path / "out")
    text = (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert text == markdown(summary(collect([tmp_path / "runs"])))
    assert len({line.count(" | ") for line in text.splitlines()}) == 1
    moved(tmp_path / "runs" / "a", "examples.velocity:Robot-v0")
    report.write([tmp_path / "runs"], tmp_path / "other")
    assert not (tmp_path / "other" / "summary.md").exists()


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="the runs are not part of the package")
def test_the_document_quotes_the_table_of_all_reported_runs():
    table = markdown(summary(collect([ROOT / "results"])))
    assert (ROOT / "results" / "summary.md").read_text(encoding="utf-8") == table
    document = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    quoted = re.findall(r"<!-- summary -->\n+(.*?)\n*<!-- end of summary -->", document, re.DOTALL)
    assert quoted == [table.rstrip("\n")]


def test_the_document_of_results_is_short():
    document = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    written = [line for line in document.splitlines() if not line.startswith("| ")]
    assert len(written) <= 95, "without the rows of its tables"


def test_a_part_of_a_table_is_named_once():
    table = Table(["task", "arm"], [["A", "x"], ["A", "y"], ["B", "z"]], words=2, parted=True)
    assert markdown(table).splitlines()[2:] == ["| A | x |", "|  | y |", "| B | z |"]
