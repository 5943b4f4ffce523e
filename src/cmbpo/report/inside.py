"""What goes on inside a run: the model, how far it is trusted, and what became of its promises."""

from collections.abc import Callable, Sequence

import numpy as np

from cmbpo import columns
from cmbpo.report.arms import ArmRuns
from cmbpo.report.drawing.axes import Kind, spanning
from cmbpo.report.drawing.panel import (
    Curve,
    Line,
    Mark,
    Panel,
    Rule,
    mean_of_seeds,
    steps_axis,
    stretches,
)
from cmbpo.report.reading.recorded import Recorded

MODEL: tuple[tuple[str, str, Kind], ...] = (
    (columns.ALPHA, "α, share of real samples", "linear"),
    (columns.ROLLOUT_LENGTH, "length of imagined trajectories", "linear"),
    (columns.HOLDOUT_ERROR, "model error on held-out steps", "log"),
    (columns.DISAGREEMENT, "disagreement of the ensemble", "log"),
)
EPSILONS = (
    (columns.EPSILON_POLICY, "ε_π, shift of the policy"),
    (columns.EPSILON_MODEL, "ε_m, error of the model"),
    (columns.EPSILON, "ε of Boundary 4.1"),
)


def model(arms: Sequence[ArmRuns], task: str, points: int) -> list[Panel]:
    """α, rollout length, model error and disagreement over time."""
    panels = [_column(arms, task, points, *entry) for entry in MODEL]
    return [panel for panel in panels if panel.lines]


def promises(arms: Sequence[ArmRuns], task: str, points: int) -> list[Panel]:
    """The practical form of Boundary 4.1: what each step promised, and what came of it."""
    panels = [
        _kept(arms, task),
        _paired(
            "all changes of J_c so far",
            arms,
            task,
            points,
            ("real", lambda r: _running_sum(r, columns.REAL_CHANGE)),
            ("promised", lambda r: _running_sum(r, columns.PROMISED_CHANGE)),
        ),
        _paired(
            "J_c",
            arms,
            task,
            points,
            ("real", lambda run: run.column(columns.REAL_COST)),
            ("imagined", lambda run: run.column(columns.IMAGINED_COST)),
            knee=20.0,
        ),
        *[_column(arms, task, points, name, title, "linear") for name, title in EPSILONS],
    ]
    return [panel for panel in panels if panel.lines or panel.marks]


def _column(
    arms: Sequence[ArmRuns], task: str, points: int, name: str, title: str, kind: Kind
) -> Panel:
    """A column of progress.csv: each seed thin, and the mean of all bold."""
    lines = []
    for arm in arms:
        curves = [run.column(name) for run in arm.runs.get(task, [])]
        for x, y in [c for c in curves if len(c[0])]:
            weight = "main" if len(curves) == 1 else "seed"
            lines.append(Line(arm, *stretches(x, y, points), weight, arm.label))
        if len(curves) > 1 and any(len(c[0]) for c in curves):
            lines.append(Line(arm, *mean_of_seeds(curves, points), "main", arm.label))
    lines.sort(key=lambda line: line.weight != "seed")
    heights = np.concatenate([line.y for line in lines]) if lines else np.zeros(0)
    return Panel(title, steps_axis(lines), spanning("", heights, kind=kind), lines)


def _paired(
    title: str,
    arms: Sequence[ArmRuns],
    task: str,
    points: int,
    solid: tuple[str, Callable[[Recorded], Curve]],
    dashed: tuple[str, Callable[[Recorded], Curve]],
    knee: float | None = None,
) -> Panel:
    """Two quantities of each arm, one solid and one dashed, each the mean over its seeds."""
    lines = []
    for arm in arms:
        for (word, curve), is_dashed in ((solid, False), (dashed, True)):
            curves = [curve(run) for run in arm.runs.get(task, [])]
            if any(len(x) for x, _ in curves):
                x, y = mean_of_seeds(curves, max(points // 3, 30))
                lines.append(Line(arm, x, y, "main", f"{arm.label}, {word}", is_dashed))
    heights = np.concatenate([line.y for line in lines]) if lines else np.zeros(0)
    y = spanning("", heights, kind="linear" if knee is None else "knee", knee=knee or 1.0)
    return Panel(f"{title}: {solid[0]} ―, {dashed[0]} ┄", steps_axis(lines), y, lines)


def _kept(arms: Sequence[ArmRuns], task: str, groups: int = 8) -> Panel:
    """Updates in groups of equal size by what they promised; the mean real change of each."""
    marks = []
    for arm in arms:
        runs = arm.runs.get(task, [])
        promised = np.concatenate([run.values(columns.PROMISED_CHANGE) for run in runs] or [[]])
        real = np.concatenate([run.values(columns.REAL_CHANGE) for run in runs] or [[]])
        known = np.isfinite(promised) & np.isfinite(real)
        order = np.argsort(promised[known], kind="stable")
        for group in np.array_split(order, groups):
            if len(group) < 5:
                continue
            x, y = promised[known][group], real[known][group]
            error = float(y.std(ddof=1) / np.sqrt(len(y)))
            note = f"{arm.label}, {len(group)} updates"
            marks.append(Mark(arm, float(x.mean()), float(y.mean()), error, note))
    xs = np.array([0.0] + [mark.x for mark in marks])
    ys = np.array([0.0] + [m.y + s * m.error for m in marks for s in (-1, 1)])
    # few promises are large: beyond twice the usual size the axes are logarithmic
    knee = 2.0 * float(np.median(np.abs(xs[1:]))) if marks else 1.0
    knee = knee or 1.0
    return Panel(
        "change of J_c in one update",
        spanning("promised", xs, kind="knee", knee=knee),
        spanning("real", np.concatenate([ys, xs]), kind="knee", knee=knee),
        marks=marks,
        rules=[Rule(None, "promise kept")],
    )


def _running_sum(run: Recorded, name: str) -> Curve:
    steps, values = run.column(name)
    return steps, np.cumsum(values)
