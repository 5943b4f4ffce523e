"""What an index would get: the metadata, a readme that stands alone, and versions that agree."""

import re
import tomllib
from pathlib import Path

import pytest
from hatch_build import standing_alone
from readme_renderer import markdown

import cmbpo

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    cited = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert [cmbpo.__version__] == cited == [PROJECT["project"]["version"]]


def test_the_readme_of_the_index_leads_to_no_file_of_the_repository():
    rendered = markdown.render(standing_alone(README, None, "1.0.0"))
    assert rendered is not None
    for place in re.findall(r'(?:href|src)="([^"]*)"', rendered):
        assert place.startswith(("https://", "#user-content-")), place
    assert "<table>" in rendered
    assert "python.md" in rendered, "the words of a link stay"


def test_with_a_repository_its_links_lead_there():
    text = "[a page](docs/a.md#b), ![curve](c.png) and [elsewhere](https://example.org/d)"
    assert standing_alone(text, "https://example.org/cmbpo", "1.2.3") == (
        "[a page](https://example.org/cmbpo/blob/v1.2.3/docs/a.md#b),"
        " ![curve](https://example.org/cmbpo/raw/v1.2.3/c.png)"
        " and [elsewhere](https://example.org/d)"
    )


def test_the_extra_of_the_documentation_is_the_group_that_tests_use():
    groups = PROJECT["dependency-groups"]
    assert PROJECT["project"]["optional-dependencies"]["docs"] == groups["docs"]
    assert {"include-group": "docs"} in groups["test"]


@pytest.mark.parametrize("extra", PROJECT["project"]["optional-dependencies"])
def test_every_extra_is_in_the_readme(extra):
    assert f'".[{extra}]"' in README
