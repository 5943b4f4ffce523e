"""The packages stand in a declared graph, and imports follow it, lazy ones included."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import cmbpo

SOURCE = Path(cmbpo.__file__).parent
TESTS = Path(__file__).parent

PACKAGES: dict[str, set[str]] = {
    "settings": set(),
    "columns": set(),
    "streams": set(),
    "interruption": {"streams"},
    "networks": set(),
    "trajectory": set(),
    "normalisation": {"networks"},
    # the mathematics: no simulator, no renderer, no files
    "data": {"networks", "trajectory"},
    "policy": {"networks", "normalisation", "trajectory"},
    "model": {"settings", "networks", "normalisation", "trajectory", "data"},
    "algorithms": {"settings", "networks", "trajectory", "policy"},
    "theory": {"policy"},
    # the world
    "tasks": {"settings"},
    "envs": {"settings", "interruption", "networks", "data", "tasks"},
    # a run
    "runs": {"settings", "columns"},
    "training": {
        *("settings", "columns", "streams", "interruption", "networks", "trajectory"),
        "normalisation",
        *("data", "policy", "model", "algorithms", "theory", "tasks", "envs", "runs"),
    },
    "evaluation": {
        *("settings", "columns", "streams", "networks", "normalisation", "tasks", "envs", "runs"),
    },
    "report": {"settings", "columns", "streams", "runs", "evaluation"},
    "experiments": {"settings", "columns", "interruption", "envs", "runs", "training"},
    "bench": {"settings", "columns", "data", "algorithms", "tasks", "envs", "runs", "training"},
    # what users touch
    "agent": {"settings", "networks", "envs", "runs", "training", "evaluation"},
    "__init__": {"settings", "tasks", "evaluation", "agent"},
    "cli": {
        *("__init__", "settings", "streams", "interruption", "theory", "tasks", "envs", "runs"),
        *("training", "evaluation", "report", "experiments", "bench"),
    },
}
"""Each package, or module of the root, and those that it may import."""

COVERING: dict[str, tuple[str, ...]] = {
    "algorithms/test_update.py": (
        "algorithms/cmbpo.py",
        "algorithms/cpo.py",
        "algorithms/ppo_lagrangian.py",
        "algorithms/trpo.py",
        "algorithms/trpo_lagrangian.py",
    ),
    "envs/copies/test_vector.py": ("envs/copies/inline.py",),
    "envs/test_check.py": ("envs/random_steps.py",),
    "envs/test_custom_task.py": ("envs/making.py", "envs/spaces.py"),
    "experiments/test_drive.py": ("experiments/local.py",),
    "test_cli.py": ("__main__.py", "bench/commands.py"),
    "report/test_final_policies.py": ("report/published.py",),
    "report/test_report.py": (
        "report/appendix.py",
        "report/arms.py",
        "report/inside.py",
        "report/learning.py",
        "report/page.py",
        "report/paper.py",
        "report/reading/read.py",
        "report/reading/recorded.py",
        "report/drawing/table.py",
        "report/tables.py",
        "report/drawing/axes.py",
        "report/drawing/colours.py",
        "report/drawing/figures.py",
        "report/drawing/panel.py",
        "report/drawing/svg.py",
    ),
    "runs/test_checkpoint.py": ("runs/errors.py",),
    "settings/test_presets.py": (
        "settings/baseline_presets.py",
        "settings/cmbpo_presets.py",
        "settings/replay_presets.py",
    ),
    "settings/test_ranges.py": ("settings/schema.py",),
    "tasks/test_ant_circle.py": ("tasks/ant.py",),
    "tasks/test_listing.py": ("tasks/drawing/scenery.py",),
    "tasks/test_simulated.py": ("tasks/physics/threads.py",),
    "tasks/test_ant_safe.py": ("tasks/physics/walls.py",),
    "tasks/test_tasks.py": ("tasks/task.py",),
    "tasks/velocity/test_task.py": (
        "tasks/physics/stepped.py",
        "tasks/velocity/planar.py",
        "tasks/velocity/spatial.py",
    ),
    "training/test_loop.py": ("training/protocol.py",),
}
"""Test files, and the modules without one of their own name that they test."""
COVERED_ELSEWHERE = {module: test for test, modules in COVERING.items() for module in modules}


def files(package: str) -> list[Path]:
    """The modules of a package, or the module itself."""
    folder = SOURCE / package
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{package}.py"]


def imported(path: Path) -> Iterator[str]:
    """What a module imports of this project, anywhere in it: the first part of each name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "cmbpo":
            yield from (
                a.name if (SOURCE / a.name).exists() or files(a.name)[0].exists() else "__init__"
                for a in node.names
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cmbpo."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("cmbpo."))


def test_every_package_has_its_place_in_the_graph():
    there = {p.stem if p.is_file() else p.name for p in SOURCE.iterdir() if p.name[0] != "_"}
    assert there - {"py"} | {"__init__"} == set(PACKAGES)


def test_the_graph_has_no_circle():
    list(TopologicalSorter(PACKAGES).static_order())


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_follow_the_graph(package):
    for path in files(package):
        beyond = set(imported(path)) - PACKAGES[package] - {package}
        assert not beyond, f"{path.relative_to(SOURCE)} imports {beyond}"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_graph_allows_no_more_than_is_used(package):
    used = {name for path in files(package) for name in imported(path)} - {package}
    assert used == PACKAGES[package]


def test_the_root_holds_few_files_and_no_package_many():
    assert len(list(SOURCE.glob("*.py"))) <= 10
    for folder in [p for p in SOURCE.rglob("*") if p.is_dir() and p.name != "__pycache__"]:
        assert len([p for p in folder.glob("*.py") if p.stem != "__init__"]) <= 14, folder


def test_a_module_at_the_root_serves_several_packages():
    for path in SOURCE.glob("*.py"):
        if path.stem not in ("__init__", "__main__", "cli", "agent"):
            importers = [name for name, allowed in PACKAGES.items() if path.stem in allowed]
            assert len(importers) > 1, path.name


def test_the_mathematics_needs_no_simulator():
    modules = [
        ".".join(("cmbpo", *path.relative_to(SOURCE).with_suffix("").parts))
        for package in ("data", "policy", "model", "algorithms", "theory")
        for path in files(package)
        if path.stem != "__init__"
    ]
    code = (
        f"import sys, {', '.join(modules)}\n"
        "print({'mujoco', 'gymnasium', 'cmbpo.runs', 'cmbpo.envs'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_what_is_public_is_listed_and_there():
    assert sorted(cmbpo.__all__) == [
        *("Agent", "EvalCallback", "TrainSettings", "__version__", "load", "preset"),
        *("register_algorithm", "tasks"),
    ]
    for name in cmbpo.__all__:
        assert getattr(cmbpo, name) is not None


def test_help_needs_neither_jax_nor_gymnasium():
    code = (
        "import sys; sys.argv = ['cmbpo', 'train', '--algo', 'cpo', '--help']\n"
        "from cmbpo.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'jax', 'gymnasium', 'mujoco', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


def test_every_module_is_covered_by_its_namesake_or_a_stated_other():
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if path.stem == "__init__":
            continue
        other = COVERED_ELSEWHERE.get(place.as_posix())
        test = TESTS / (other or place.with_name(f"test_{place.name}"))
        assert test.exists(), f"{place} has no {test.relative_to(TESTS)}"
        if other is not None:
            assert not (TESTS / place.with_name(f"test_{place.name}")).exists(), place
