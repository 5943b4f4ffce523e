"""docs/paper_to_code.md, and the other documents, name only what exists in the code."""

import importlib
import re
from pathlib import Path

import pytest
import tyro

from cmbpo.settings import flags
from cmbpo.settings.presets import preset

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
OTHERS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
NOT_YET = ("cmbpo.algorithms.focops", "cmbpo.tasks.swimmer_safe")
"""What docs/extending.md has its readers write."""


def named(text: str) -> set[str]:
    """The Python paths in a text."""
    return set(re.findall(r"`(cmbpo(?:\.\w+)+)`", text))


NAMES = sorted(named(PAGE))
ELSEWHERE = sorted(
    {name for page in OTHERS for name in named(page.read_text(encoding="utf-8"))}
    - {*NAMES, *NOT_YET}
)
ABLATIONS = sorted(set(re.findall(r"`(--preset paper [^`]+)`", PAGE)))


def resolve(name: str) -> object:
    """The module of that name, or what it holds; fields of records count by their annotation."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        module = ".".join(parts[:depth])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            fields = getattr(found, "__annotations__", {})
            found = fields[part] if part in fields else getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES + ELSEWHERE)
def test_every_name_of_the_documents_exists(name):
    resolve(name)


@pytest.mark.parametrize("name", ["cmbpo.theory.bounds.boundary", "cmbpo.theory.bound.boundry"])
def test_a_misspelt_name_is_found_out(name):
    with pytest.raises(AttributeError):
        resolve(name)


def test_the_map_holds_names_and_ablations():
    assert len(NAMES) > 60
    assert len(ABLATIONS) == 3


@pytest.mark.parametrize("words", ABLATIONS)
def test_every_ablation_of_the_map_can_be_asked_for(words):
    kind = flags.command(preset("cmbpo", "AntSafe", "paper"))
    assert tyro.cli(kind, args=words.split(), default=kind()) != kind()
