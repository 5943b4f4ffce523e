"""The modules stand in the order of the data: each imports only what stands above it."""

import ast
from pathlib import Path

import pytest

import cmbpo

PACKAGE = Path(cmbpo.__file__).parent
ORDER = [
    "registration",
    "interruption",
    "settings",
    "presets",
    "tasks",
    "adapted",
    "own",
    "vector",
    "simulator",
    "networks",
    "predictable",
    "check",
    "collect",
    "archive",
    "holdout",
    "early_stopping",
    "units",
    "dynamics",
    "uncertainty",
    "cost_model",
    "head_quality",
    "learned_world",
    "starts",
    "rollout",
    "mixing",
    "constraint",
    "leash",
    "advantage",
    "critic",
    "elimination",
    "surrogate",
    "trust_region",
    "clipped",
    "lagrangian",
    "bound",
    "tightness",
    "algorithms",
    "model",
    "learner",
    "device",
    "checkpoint",
    "records",
    "config",
    "run",
    "console",
    "plot",
    "promise",
    "train",
    "film",
    "evaluate",
    "deployed",
    "export",
    "agent",
    "statistics",
    "bench",
    "experiments",
    "report",
    "cli",
]


def top_level_imports(path: Path) -> set[str]:
    """The modules of this package that are imported when `path` is, not later inside a function."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cmbpo"):
            parts = node.module.split(".")
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            found.update(names)
        elif isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("cmbpo."))
    return found & set(ORDER)


def modules() -> dict[str, list[Path]]:
    """The files of each module or subpackage."""
    files = {p.stem: [p] for p in PACKAGE.glob("*.py") if p.stem != "__init__"}
    return files | {
        p.name: list(p.glob("*.py"))
        for p in PACKAGE.iterdir()
        if p.is_dir() and list(p.glob("*.py"))
    }


def test_every_module_has_its_place():
    assert set(modules()) == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_go_upwards_only(name: str):
    above = set(ORDER[: ORDER.index(name) + 1])
    for path in modules()[name]:
        below = top_level_imports(path) - above
        assert not below, f"{path.name} imports {below}"
