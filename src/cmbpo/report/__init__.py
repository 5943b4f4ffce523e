"""`cmbpo report`: one page, and figures for a paper, from the folders of runs."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cmbpo import streams
from cmbpo.report import claims, final_policies, inside, learning, page, summary
from cmbpo.report.arms import arms
from cmbpo.report.drawing import figures
from cmbpo.report.drawing.panel import Panel
from cmbpo.report.drawing.table import Table
from cmbpo.report.paper import TABLE_I
from cmbpo.report.reading.read import Collection, collect, not_shown
from cmbpo.runs.files import whole_file

SECTIONS = {
    "learning": learning.learning,
    "ablations": learning.ablations,
    "model": inside.model,
    "promises": inside.promises,
}
BUDGET = 1_500_000
"""Letters that the points of all curves may take together."""


READING, DRAWING = "reading runs", "drawing"
"""What a report takes its time for."""


def write(
    places: Sequence[Path],
    out: Path,
    watch: Callable[[str, float], None] = lambda what, share: None,
) -> Path:
    """Write `report.html`, which needs no other file, tables and `figures/` into `out`.

    The figures are PNG and PDF, with tasks that are not in Table I in pictures of their own. The
    tables `summary.md` and `claims.md` are of the tasks of Table I, if there are any;
    `benchmark.md` is of those that others have published numbers of, `policies.md` of final
    policies that were evaluated.
    `watch` is told how much of it is read, and then drawn. Where there is nothing to show, nothing
    is written.
    """
    if not places:
        raise ValueError("name at least one run folder, or a folder that holds runs")
    shown = collect(places, partial(watch, READING))
    new = made(shown)
    for sentence in shown.left_out:
        print(f"cmbpo report: {_in_one_line(sentence)}", file=sys.stderr)
    if not shown.runs:
        why = ["no run with a finished episode was found.", *shown.notices]
        raise ValueError(f"there is nothing to show: {_in_one_line(' '.join(why))}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        path = out / "report.html"
        _write(path, new.page)
        for name, table in new.tables.items():
            if table.rows:
                _write(out / f"{name}.md", summary.markdown(table))
        drawn = pictures(shown, new.panels)
        if (out / "figures").is_symlink():
            raise ValueError(f"{out / 'figures'} is a symbolic link; allowed: a folder, or nothing")
        if drawn:
            (out / "figures").mkdir(exist_ok=True)
        for number, (name, rows) in enumerate(drawn.items(), start=1):
            watch(DRAWING, number / (1 + len(drawn)))
            figures.write(out / "figures", name, rows, shown.arms)
    except OSError as error:
        raise ValueError(f"could not write {out}: {error.strerror or error}") from error
    return path


def main(places: Sequence[Path], out: Path) -> None:
    """Write the page and say where it is."""
    with streams.bars(READING, DRAWING) as watch:
        path = write(places, out, watch)
    print(path)


def pictures(
    shown: Collection, panels: Mapping[str, Mapping[str, list[Panel]]]
) -> dict[str, dict[str, list[Panel]]]:
    """Rows of each picture: beside tasks of Table I, which a reader looks for, others are apart."""
    known = {shown.title(task) for task in shown.tasks if task in TABLE_I}
    drawn: dict[str, dict[str, list[Panel]]] = {}
    for name, rows in panels.items():
        for task, row in rows.items():
            apart = known and task not in known
            drawn.setdefault(f"{name}-others" if apart else name, {})[task] = row
    return drawn


class Made(NamedTuple):
    """What is to be written."""

    page: str
    tables: dict[str, Table]
    panels: dict[str, dict[str, list[Panel]]]


def made(shown: Collection) -> Made:
    """The report of these runs, without those that cannot be drawn."""
    try:
        return _attempt(shown)
    except Exception:
        _leave_out_what_fails(shown)
        return _attempt(shown)


def _attempt(shown: Collection) -> Made:
    panels = _panels(shown)
    tables = {
        "summary": summary.summary(shown),
        "claims": claims.claims(shown),
        "benchmark": final_policies.benchmark(shown),
        "policies": final_policies.kept_limits(shown),
    }
    return Made(page.page(shown, panels), tables, panels)


def _leave_out_what_fails(shown: Collection) -> None:
    """Try each run alone: numbers that nobody foresaw end its part of the report, not the whole."""
    sound = []
    for run in shown.runs:
        try:
            _attempt(Collection(arms([run]), [run]))
            sound.append(run)
        except Exception as error:
            reason = f"drawing it ends in {type(error).__name__} ({error})"
            shown.left_out.append(not_shown(run.name, reason))
    shown.runs, shown.arms = sound, arms(sound)


def _in_one_line(sentence: str) -> str:
    """Names of folders may hold anything, also what steers a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in sentence)


def _write(path: Path, text: str) -> None:
    """Write a file of ours; a link in its place is replaced, not followed."""
    with whole_file(path) as file:
        file.write(text.encode(errors="replace"))


def _panels(shown: Collection) -> dict[str, dict[str, list[Panel]]]:
    """The panels of each section by the task's title; tasks without any are left out."""
    # about twelve letters a point, and a dozen curves of each run over all panels
    points = BUDGET // (12 * 12 * max(len(shown.runs), 1))
    points = min(max(points, 30), 160)
    panels = {
        name: {shown.title(task): section(shown.arms, task, points) for task in shown.tasks}
        for name, section in SECTIONS.items()
    }
    return {
        name: {task: drawn for task, drawn in rows.items() if drawn}
        for name, rows in panels.items()
    }
