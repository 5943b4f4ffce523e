"""What several seeds can bear: how surely they arrive, how early, and what it costs to the end."""

from collections.abc import Sequence

import numpy as np

from cmbpo import columns
from cmbpo.report import tables
from cmbpo.report.arms import ArmRuns
from cmbpo.report.drawing.table import Table
from cmbpo.report.paper import TABLE_I
from cmbpo.report.reading.read import Collection
from cmbpo.report.reading.recorded import Recorded
from cmbpo.report.safety import safety
from cmbpo.report.statistics import censored_median, share_interval, within
from cmbpo.report.summary import cost_to_the_end

FEWEST = 3
"""Seeds of an arm from which on an interval over seeds says anything."""
WINDOWS = (20, 50, 100)
"""Whole episodes in a row by which a seed arrives; the middle one decides."""
DECIDING = WINDOWS[1]

HEAD = [
    "task, return",
    "arm",
    f"seeds there, by {WINDOWS[0]}, {WINDOWS[1]} and {WINDOWS[2]} episodes",
    "a seed arrives, 95 %",
    "median steps until then, by each",
    "median cumulative cost until then",
    "cost per 1000 to the end, 95 %",
    "steps above the limit",
    "return, last quarter",
]


def claims(shown: Collection) -> Table:
    """One row for each arm with seeds enough on a task of Table I."""
    table = Table(HEAD, words=2)
    for task in [task for task in shown.tasks if task in TABLE_I]:
        for arm in [arm for arm in shown.arms if len(arm.runs.get(task, [])) >= FEWEST]:
            table.rows.append(_row(arm, task))
    return table


def _row(arm: ArmRuns, task: str) -> list[str]:
    runs = arm.runs[task]
    by = {window: tables.crossings(arm, task, window=window) for window in WINDOWS}
    deciding = by[DECIDING]
    reached = {window: [seed.reached for seed in by[window]] for window in WINDOWS}
    steps = {window: [seed.env_steps for seed in by[window]] for window in WINDOWS}
    low, high = share_interval(sum(reached[DECIDING]), len(runs))
    ends = [
        cost_to_the_end(run, seed) for run, seed in zip(runs, deciding, strict=True) if seed.reached
    ]
    above = np.mean([safety(run).excess.share for run in runs])
    return [
        f"{task}, {TABLE_I[task].level:.0f}",
        arm.label,
        f"{' / '.join(str(sum(reached[window])) for window in WINDOWS)} of {len(runs)}",
        f"{100 * low:.0f}–{100 * high:.0f} %",
        " / ".join(_median(steps[window], reached[window]) for window in WINDOWS),
        _median([seed.cumulative_cost for seed in deciding], reached[DECIDING]),
        tables.mean_interval(ends, "{:.1f}".format, least=0.0),
        f"{100 * above:.0f} %" if any(run.limits for run in runs) else "no limit",
        f"{np.mean([_last_quarter(run) for run in runs]):,.0f}",
    ]


def _median(values: Sequence[float], reached: Sequence[bool]) -> str:
    """The median over seeds; those that did not arrive count as later than all that did."""
    low, high = censored_median(np.array(values), np.array(reached))
    return f"{high:,.0f}" if np.isfinite(high) else f"> {low:,.0f}"


def _last_quarter(run: Recorded) -> float:
    end = float(run.steps[-1])
    last = within(run.episodes, 0.75 * end, end, num_envs=run.num_envs)
    return float(run.episodes[columns.EPISODE_RETURN][last].mean()) if last.any() else np.nan
