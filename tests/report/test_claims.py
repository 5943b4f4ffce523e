"""What several seeds can bear: by hand, and in the document that quotes it."""

import re
from pathlib import Path

import pytest

from cmbpo.report.claims import claims
from cmbpo.report.reading.read import collect
from cmbpo.report.summary import markdown
from tests.report.test_report import ant, fake

ROOT = Path(__file__).resolve().parents[2]


def test_an_arm_is_judged_by_hand(tmp_path):
    """Episodes of 1000 steps cost 40, and from the 31st, 36th or 51st on 4; there are 90.

    Of 20 episodes three may cost 40, of 50 eight; no 100 are there. A seed is there when 17 good
    ones are: after 47, 52 and 67; or 42: after 72, 77, and not at all.
    """
    fake(tmp_path / "a", ant(seed=0), episodes=90)
    fake(tmp_path / "b", ant(seed=1), episodes=90, good_after=35)
    fake(tmp_path / "c", ant(seed=2), episodes=90, good_after=50)
    (row,) = claims(collect([tmp_path])).rows
    assert row[:3] == ["AntSafe, 2500", "CMBPO", "3 / 2 / 0 of 3"]
    assert row[3] == "21–94 %", "Wilson's interval of two in three"
    assert row[4] == "52,000 / 77,000 / > 90,000"
    assert row[5] == f"{35 * 40 + 42 * 4:,}"
    assert row[6] == "4.0 (4.0–4.0)"
    assert row[8].startswith(("4,9", "5,0"))


def test_two_seeds_are_no_claim(tmp_path):
    fake(tmp_path / "a", ant(seed=0))
    fake(tmp_path / "b", ant(seed=1))
    assert claims(collect([tmp_path])).rows == []


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="the runs are not part of the package")
def test_the_document_quotes_the_claims_of_all_reported_runs():
    table = markdown(claims(collect([ROOT / "results"])))
    assert (ROOT / "results" / "claims.md").read_text(encoding="utf-8") == table
    document = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    quoted = re.findall(r"<!-- claims -->\n+(.*?)\n*<!-- end of claims -->", document, re.DOTALL)
    assert quoted == [table.rstrip("\n")]
