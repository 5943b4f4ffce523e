"""`cmbpo report`: one page, and figures for a paper, from the folders of runs."""

from collections.abc import Sequence
from pathlib import Path

from cmbpo.report import inside, learning, page, summary
from cmbpo.report.drawing import figures
from cmbpo.report.drawing.panel import Panel
from cmbpo.report.read import Collection, collect

SECTIONS = {
    "learning": learning.learning,
    "ablations": learning.ablations,
    "model": inside.model,
    "promises": inside.promises,
}
BUDGET = 1_500_000
"""Letters that the points of all curves may take together."""


def write(places: Sequence[Path], out: Path) -> Path:
    """Write `report.html`, which needs no other file, `summary.md` and `figures/` into `out`.

    The figures are PNG and PDF; the summary is one table, of the tasks of Table I if there are any.
    """
    if not places:
        raise ValueError("name at least one run folder, or a folder that holds runs")
    shown = collect(places)
    panels = _panels(shown)
    try:
        out.mkdir(parents=True, exist_ok=True)
        path = out / "report.html"
        path.write_text(page.page(shown, panels), encoding="utf-8")
        short = summary.summary(shown)
        if short.rows:
            (out / "summary.md").write_text(summary.markdown(short), encoding="utf-8")
        drawn = {name: rows for name, rows in panels.items() if rows}
        if drawn:
            (out / "figures").mkdir(exist_ok=True)
        for name, rows in drawn.items():
            figures.write(out / "figures", name, rows, shown.arms)
    except OSError as error:
        raise ValueError(f"could not write {out}: {error.strerror or error}") from error
    return path


def main(places: Sequence[Path], out: Path) -> None:
    """Write the page and say where it is."""
    print(write(places, out))


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
