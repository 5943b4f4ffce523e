"""What README and documents point to is there: links, files, commands and their flags."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest

from cmbpo import cli
from cmbpo.settings import flags
from cmbpo.settings.overrides import parsed, require_known
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
OTHERS = {
    "evaluate": cli.EvaluateCommand,
    "watch": cli.WatchCommand,
    "export": cli.ExportCommand,
    "verify": cli.VerifyCommand,
    "check": cli.CheckCommand,
    "tasks": cli.TasksCommand,
    "experiment": cli.ExperimentCommand,
    "bound": cli.BoundCommand,
    "report": cli.ReportCommand,
    "completion": cli.CompletionCommand,
    "bench simulator": cli.BenchSimulator,
    "bench algorithms": cli.BenchAlgorithms,
    "bench update": cli.BenchUpdate,
}
"""The commands whose flags are always the same."""
EXAMPLES = ("runs/", "robot/", "report/", "my_", "src/cmbpo/algorithms/focops.py")
EXAMPLES += ("src/cmbpo/tasks/swimmer_safe.py",)
"""How names begin of what users, or readers of docs/extending.md, make themselves."""
OURS = r"`((?:src|tests|docs|results|examples|benchmarks)/[\w./-]*[\w/])`"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as its links name them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(place), f"{target}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_file_that_is_named_exists(page):
    for name in re.findall(OURS, prose(page)):
        if not name.startswith(EXAMPLES):
            assert (ROOT / name).exists(), f"{name} is not there"


def commands(page: Path) -> list[list[str]]:
    """The words of each `cmbpo …` that a page shows, in blocks and in its text."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    spans = (re.sub(r"\s+", " ", span) for span in re.findall(r"`(cmbpo [^`]+)`", prose(page)))
    shown = [*lines, *spans]
    return [shlex.split(line, comments=True)[1:] for line in shown if line.startswith("cmbpo ")]


def offered(kind: type, prefix: str = "") -> set[str]:
    """The flags that a record of settings becomes on the command line."""
    found = {"--help"}
    for field in dataclasses.fields(kind):
        name = prefix + field.name.replace("_", "-")
        inner = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            found |= offered(inner, f"{name}.")
        else:
            group, dot, last = name.rpartition(".")
            found |= {f"--{name}", f"--{group}{dot}no-{last}"}
    return found


def of_train(words: list[str]) -> set[str]:
    """The flags of `cmbpo train` for the algorithm and the task that it is given."""

    def value(flag: str, default: str) -> str:
        return words[words.index(flag) + 1] if flag in words else default

    algo = value("--algo", "cmbpo")
    taught = algo.endswith("focops")  # by the page on extending it
    start = preset("cpo" if taught else algo, value("--env-id", "PointCircle-v0"))
    return offered(flags.command(start)) | ({"--trust-region.max-kl"} if taught else set())


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_that_is_shown_can_be_given(page):
    for words in commands(page):
        name, *rest = words
        if name in ("COMMAND", "--help") or name.endswith("…"):
            continue
        assert name in cli.COMMANDS, words
        full = " ".join(words[:2]) if name == "bench" else name
        known = of_train(rest) if name == "train" else offered(OTHERS[full])
        for word in rest:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"{word} of cmbpo {' '.join(words)}"
        for flag in {"--set", "--grid"} & set(rest):
            given = rest[rest.index(flag) + 1 :]
            for key in parsed([word for word in given if "=" in word]):
                require_known(key)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"])
def test_every_flag_that_is_named_exists(page):
    """But for the changelog, which says what flags were called before."""
    known = {flag for kind in OTHERS.values() for flag in offered(kind)}
    known |= {flag for algo in ALGORITHMS for flag in of_train(["--algo", algo])}
    for flag in re.findall(r"`(--[\w.-]+)", prose(page)):
        assert flag in known or flag.startswith("--xla_"), flag


def test_a_flag_that_is_gone_is_found_out():
    words = shlex.split("--algo cpo --mixing.rule constant --ensemble.members 3")
    assert "--mixing.rule" not in of_train(words)
    assert "--ensemble.members" not in of_train(words)
    assert "--trust-region.max-kl" in of_train(words)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_page_breaks_its_code(page):
    """Every block that is opened is closed."""
    assert page.read_text(encoding="utf-8").count("```") % 2 == 0


def test_the_page_of_columns_is_the_one_that_the_source_makes():
    from cmbpo import columns

    made = "\n".join(columns.document()) + "\n"
    assert (ROOT / "docs" / "columns.md").read_text(encoding="utf-8") == made
