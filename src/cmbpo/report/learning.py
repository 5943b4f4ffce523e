"""Figures 2 and 3: return and cost over environment steps, and return against cost."""

from collections.abc import Callable, Sequence

import numpy as np

from cmbpo import columns
from cmbpo.report.arms import ArmRuns, label_of
from cmbpo.report.drawing.axes import Axis, spanning
from cmbpo.report.drawing.panel import (
    Band,
    Curve,
    Line,
    Panel,
    Quoted,
    Rule,
    common_grid,
    resample,
    steps_axis,
    thin_out,
)
from cmbpo.report.paper import TABLE_I
from cmbpo.report.reading.recorded import Recorded
from cmbpo.report.statistics import WINDOW, interquartile_mean, middle_interval
from cmbpo.runs.curves import running_mean


def episode_curve(run: Recorded, cost: str | None) -> Curve:
    """Running means over whole windows of episodes: of return, or of a cost per 1000 steps."""
    table = run.episodes
    if cost is None:
        mean = running_mean(
            table[columns.EPISODE_RETURN], np.ones_like(table[columns.EPISODE_RETURN]), WINDOW
        )
    else:
        mean = running_mean(1000.0 * table[cost], table[columns.EPISODE_LENGTH], WINDOW)
    whole = slice(min(WINDOW, len(mean)) - 1, None)
    return table[columns.EPISODE_ENV_STEPS][whole], mean[whole]


def learning(arms: Sequence[ArmRuns], task: str, points: int) -> list[Panel]:
    """Figure 2 of the paper for one task: the algorithms."""
    return _curves([arm for arm in arms if not arm.ablation], task, points)


def ablations(arms: Sequence[ArmRuns], task: str, points: int) -> list[Panel]:
    """Figure 3 of the paper for one task: CMBPO beside itself with a part taken away."""
    if not any(arm.ablation and arm.runs.get(task) for arm in arms):
        return []
    return _curves([arm for arm in arms if arm.algo == "cmbpo"], task, points)


def _curves(arms: Sequence[ArmRuns], task: str, points: int) -> list[Panel]:
    """Return, cost, and return against cumulative cost."""
    runs = [run for arm in arms for run in arm.runs.get(task, [])]
    if not runs:
        return []
    level = TABLE_I[task].level if task in TABLE_I else None
    rules = [] if level is None else [Rule(level, "level of the paper's Table I", dashed=False)]
    panels = [_over_steps("return", arms, task, points, lambda r: episode_curve(r, None), rules)]
    costs = list(dict.fromkeys(name for run in runs for name in run.limits))
    for name in costs or [columns.EPISODE_COST]:
        limits = sorted({run.limits[name] for run in runs if name in run.limits})
        limit = f", limit {' or '.join(f'{x:g}' for x in limits)}" if limits else ""
        panels.append(
            _over_steps(
                f"{_words(name)} per 1000 steps{limit}",
                [arm for arm in arms if any(name in r.episodes for r in arm.runs.get(task, []))],
                task,
                points,
                lambda run, name=name: episode_curve(run, name),
                [Rule(limit, "limit") for limit in limits],
                knee=2.0 * max(limits, default=5.0) or 1.0,
            )
        )
    panels.append(_against_cost(arms, task, points, rules))
    return panels


def _words(column: str) -> str:
    """The name of a cost, from that of its column."""
    return column.replace("_", " ").replace("cost cost", "cost", 1)


def _over_steps(
    title: str,
    arms: Sequence[ArmRuns],
    task: str,
    points: int,
    curve: Callable[[Recorded], Curve],
    rules: list[Rule],
    knee: float | None = None,
) -> Panel:
    """Every seed thin, their interquartile mean bold and its interval as a band."""
    lines: list[Line] = []
    bands: list[Band] = []
    for arm in arms:
        runs = arm.runs.get(task, [])
        curves = [curve(run) for run in runs]
        for run, (x, y) in zip(runs, curves, strict=True):
            lone = len(runs) == 1
            note = arm.label if lone else f"{arm.label}, seed {run.seed}"
            lines.append(Line(arm, *resample(x, y, points), "main" if lone else "seed", note))
        if len(runs) > 1 and (common := common_grid(curves, points)) is not None:
            rows = np.stack([np.interp(common, *c) for c in curves])
            bands.append(Band(arm, common, *middle_interval([rows], resamples=1000)))
            lines.append(Line(arm, common, interquartile_mean(rows), "main", arm.label))
    lines.sort(key=lambda line: line.weight != "seed")
    if knee is None:
        y = _return_axis(lines, rules)
    else:
        y = spanning("", np.append(_heights(lines, rules), 0.0), kind="knee", knee=knee)
    return Panel(title, steps_axis(lines), y, lines, bands, [], rules)


def _heights(lines: Sequence[Line], rules: Sequence[Rule]) -> np.ndarray:
    levels = np.array([rule.y for rule in rules], float)
    return np.concatenate([levels, *[line.y for line in lines]])


def _return_axis(lines: Sequence[Line], rules: Sequence[Rule]) -> Axis:
    """Logarithmic above twice the level: who heeds no limit may earn ten times as much."""
    heights = _heights(lines, rules)
    knee = 2.0 * max((rule.y or 0.0 for rule in rules), default=0.0)
    if knee > 0.0 and heights.max() > knee:
        return spanning("", heights, kind="knee", knee=knee)
    return spanning("", heights)


def _against_cost(
    arms: Sequence[ArmRuns], task: str, points: int, rules: list[Rule], least: float = 10.0
) -> Panel:
    lines, quoted = [], []
    for arm in arms:
        runs = arm.runs.get(task, [])
        for run in runs:
            steps, y = episode_curve(run, None)
            x = np.maximum(np.interp(steps, run.steps, run.cumulative_cost), least)
            note = arm.label if len(runs) == 1 else f"{arm.label}, seed {run.seed}"
            lines.append(Line(arm, *thin_out(x, y, points), "main", note))
    if task in TABLE_I:
        present = [arm for arm in arms if arm.runs.get(task)]
        for algo, thousands in sorted(TABLE_I[task].cost.items(), key=lambda item: item[1]):
            first = next((arm for arm in present if arm.algo == algo), None)
            if first or algo == "cmbpo":
                place = (1000.0 * thousands, TABLE_I[task].level)
                quoted.append(Quoted(first, *place, label_of(algo)))
    x = np.concatenate([line.x for line in lines] + [np.array([q.x]) for q in quoted])
    return Panel(
        "return against cumulative cost",
        spanning("cumulative cost", x, kind="log"),
        _return_axis(lines, rules),
        lines,
        rules=rules,
        quoted=quoted,
    )
