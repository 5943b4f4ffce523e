"""docs/paper_to_code.md names only what exists."""

import importlib
import re
from pathlib import Path

import pytest
import tyro

from cmbpo.settings.presets import preset
from cmbpo.settings.schema import TrainSettings

PAGE = (Path(__file__).parents[1] / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(cmbpo(?:\.\w+)+)`", PAGE)))
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


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_paper_map_exists(name):
    resolve(name)


@pytest.mark.parametrize("name", ["cmbpo.bounds.boundary", "cmbpo.bound.boundry"])
def test_a_misspelt_name_is_found_out(name):
    with pytest.raises(AttributeError):
        resolve(name)


def test_the_map_holds_names_and_ablations():
    assert len(NAMES) > 60
    assert len(ABLATIONS) == 3


@pytest.mark.parametrize("flags", ABLATIONS)
def test_every_ablation_of_the_map_can_be_asked_for(flags):
    whole = preset("cmbpo", "AntSafe", "paper")
    assert tyro.cli(TrainSettings, args=flags.split(), default=whole) != whole
