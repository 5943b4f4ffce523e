"""Parts of the site that are made from the source: settings, docstrings, results, the notebook."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from myst_parser.parsers.sphinx_ import MystParser

from cmbpo.settings import overrides
from cmbpo.settings.presets import preset
from cmbpo.settings.ranges import kinds
from cmbpo.settings.registry import ALGORITHMS, TUNED, preset_names, reads
from cmbpo.settings.schema import TrainSettings

OWN = "my_package:MyRobot-v0"
"""An environment that no preset knows."""
RECORDS = ("algo", "env_id", "preset")
"""What says which table of defaults is meant, and is in none."""


def settings_tables(algo: str) -> str:
    """The settings that an algorithm reads, a table for each group, as Markdown."""
    groups: dict[str, list[str]] = {}
    for name in overrides.names():
        if name not in RECORDS and reads(algo, name):
            group, _, _ = name.rpartition(".")
            groups.setdefault(group, []).append(_settings_row(algo, name))
    parts = []
    for group, rows in groups.items():
        kind = _group(group)
        title = f"**`--{_flag(group)}.…`** {kind.__doc__}" if group else "**Every run**"
        head = "| flag | default | elsewhere | |\n|---|---|---|---|"
        parts.append("\n".join([title, "", head, *rows]))
    return "\n\n".join(parts)


def _settings_row(algo: str, name: str) -> str:
    default = _value(preset(algo, OWN), name)
    others: dict[str, list[str]] = {}
    for task in TUNED:
        there = _value(preset(algo, task), name)
        if there != default:
            others.setdefault(there, []).append(task)
    if "paper" in preset_names(algo):
        printed = _value(preset(algo, OWN, "paper"), name)
        if printed != default:
            others.setdefault(printed, []).append("preset `paper`")
    if sorted(others.values()) == [sorted(TUNED)]:
        ((there, _),) = others.items()
        others = {there: ["the tasks of the paper, PointCircle"]}
    elsewhere = "; ".join(f"`{value}` {', '.join(where)}" for value, where in others.items())
    group, _, last = name.rpartition(".")
    told = overrides.help_texts(_group(group))[last].replace("|", "\\|")
    return f"| `--{_flag(name)}` | `{default}` | {elsewhere} | {told} |"


def _group(name: str) -> Any:
    return kinds(TrainSettings)[name] if name else TrainSettings


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _value(settings: Any, name: str) -> str:
    """A setting as it is typed."""
    for part in name.split("."):
        settings = getattr(settings, part)
    return " ".join(map(str, settings)) if isinstance(settings, tuple) else str(settings)


def results_table(label: str) -> str:
    """The rows of docs/results.md that are of this algorithm, as Markdown."""
    kept = ("task, return", "arm", "seeds there", "steps until then")
    kept += ("cumulative cost until then", "cost per 1000 to the end")
    rows = _quoted("results.md", "summary")
    return _own(rows, label, [rows[0].index(name) for name in kept])


def benchmark_table(label: str) -> str:
    """The rows of docs/benchmark.md that are of this algorithm, as Markdown."""
    rows = _quoted("benchmark.md", "table")
    for above, row in pairwise(rows):
        row[0] = row[0] or above[0]
    return _own(rows, label, list(range(len(rows[0]))))


def _quoted(document: str, name: str) -> list[list[str]]:
    """The cells of a table that a document quotes."""
    text = (Path(__file__).parent / document).read_text(encoding="utf-8")
    lines = text.split(f"<!-- {name} -->")[1].split(f"<!-- end of {name} -->")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.strip()]


def _own(rows: list[list[str]], label: str, columns: list[int]) -> str:
    own = [row for row in rows[2:] if row[1] == label or row[1].startswith(f"{label} ")]
    if not own:
        return "No run of it is reported."
    shown = [rows[0], rows[1], *own]
    return "\n".join("| " + " | ".join(row[i] for i in columns) + " |" for row in shown)


def said_by(path: str) -> str:
    """The docstring of a function, which is Markdown as it stands, with where it is."""
    module, _, name = path.rpartition(".")
    # Imported only here: a table of settings needs no JAX.
    found = getattr(__import__(module, fromlist=[name]), name)
    import inspect

    return f"`{path}`:\n\n{inspect.getdoc(found)}"


class _Made(Directive):
    """Markdown that a function makes of one word."""

    required_arguments = 1
    make = staticmethod(settings_tables)

    def run(self) -> list[nodes.Node]:
        """Parse what was made where the directive stands."""
        made = type(self).make(self.arguments[0])
        parent = nodes.container(classes=[type(self).__name__.lower()])
        self.state.nested_parse(StringList(made.splitlines(), source="made"), 0, parent)
        return [parent]


class Settings(_Made):
    """`{settings} cpo`: what an algorithm reads."""


class Reached(_Made):
    """`{reached} CPO`: what docs/results.md has of it."""

    make = staticmethod(results_table)


class OnVelocityTasks(_Made):
    """`{on-velocity-tasks} SAC-L`: what docs/benchmark.md has of it."""

    make = staticmethod(benchmark_table)


class SaidBy(_Made):
    """`{said-by} cmbpo.policy.advantage.gae`: a docstring, with its equations."""

    make = staticmethod(said_by)


def notebook_markdown(text: str) -> str:
    """A notebook as Markdown: words, code, and what the code printed and drew."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join(part for part in parts if part)


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        coded = "".join(data["image/png"]).replace("\n", "")
        return f"![What the cell above draws](data:image/png;base64,{coded})"
    said = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{said.rstrip()}\n```" if said.strip() else ""


class NotebookParser(MystParser):
    """Notebooks with the outputs that they hold; nothing is executed."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse the Markdown that the notebook amounts to."""
        super().parse(notebook_markdown(inputstring), document)


def setup(app: Any) -> dict[str, bool]:
    """What conf.py loads this module for."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.add_directive("settings", Settings)
    app.add_directive("reached", Reached)
    app.add_directive("on-velocity-tasks", OnVelocityTasks)
    app.add_directive("said-by", SaidBy)
    # Their pages are made from modules, which Sphinx does not watch.
    app.connect("env-get-outdated", lambda *_: {f"docs/algorithms/{name}" for name in ALGORITHMS})
    return {"parallel_read_safe": True}
