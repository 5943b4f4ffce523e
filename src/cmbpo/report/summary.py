"""The short table: for each task and arm, who reached Table I's level, at what cost, and then."""

from collections.abc import Sequence

import numpy as np

from cmbpo.report import tables
from cmbpo.report.arms import ArmRuns
from cmbpo.report.drawing.table import Table
from cmbpo.report.paper import TABLE_I
from cmbpo.report.reading.read import Collection
from cmbpo.report.reading.recorded import Recorded
from cmbpo.report.safety import safety
from cmbpo.report.statistics import AFTERWARDS, Crossing, interquartile_mean
from cmbpo.runs.tail_cost import NAME

HEAD = [
    "task, return",
    "arm",
    "seeds there",
    "steps until then",
    "cumulative cost until then",
    "paper",
    f"return, next {AFTERWARDS:,} steps",
    "cost per 1000 of these",
    "cost per 1000 to the end",
    "steps above the limit",
    f"{NAME}, last {AFTERWARDS:,} steps",
]


def summary(shown: Collection) -> Table:
    """Ranges over the seeds of each arm on the tasks of Table I."""
    table = Table(HEAD, words=2)
    for task in [task for task in shown.tasks if task in TABLE_I]:
        for arm in [arm for arm in shown.arms if task in arm.runs]:
            table.rows.append(_row(arm, task))
    return table


def markdown(table: Table) -> str:
    """The table as Markdown; a part is named in its first row."""
    rule = ["---" if i < table.words else "---:" for i in range(len(table.head))]
    rows, part = [], None
    for row in table.rows:
        rows.append(["", *row[1:]] if table.parted and row[0] == part else row)
        part = row[0]
    lines = ["| " + " | ".join(row) + " |" for row in [table.head, rule, *rows]]
    return "\n".join(lines) + "\n"


def _row(arm: ArmRuns, task: str) -> list[str]:
    runs, seeds = arm.runs[task], tables.crossings(arm, task)
    there = [seed for seed in seeds if seed.reached]
    missing = [seed for seed in seeds if not seed.reached]
    printed = TABLE_I[task].cost.get(arm.algo)
    afterwards = [(seed.next_return, seed.next_cost) for seed in there if seed.next_steps > 0]
    ends = [
        cost_to_the_end(run, seed) for run, seed in zip(runs, seeds, strict=True) if seed.reached
    ]
    return [
        f"{task}, {TABLE_I[task].level:.0f}",
        arm.label,
        f"{len(there)} of {len(seeds)}",
        _known([s.env_steps for s in there], "not in", [s.env_steps for s in missing]),
        _known([s.cumulative_cost for s in there], ">", [s.cumulative_cost for s in missing]),
        "–" if arm.ablation or printed is None else f"{1000 * printed:,}",
        _range([gain for gain, _ in afterwards]),
        _range([cost for _, cost in afterwards], "{:.1f}"),
        _range(ends, "{:.1f}"),
        _share_above(runs),
        _range([max(safety(run).end_tails.values()) for run in runs], "{:.1f}"),
    ]


def cost_to_the_end(run: Recorded, seed: Crossing) -> float:
    """Cost per 1000 of all steps after the crossing; not a number where none followed."""
    end = float(run.steps[-1])
    spent = float(run.cumulative_cost[-1]) - seed.cumulative_cost
    return 1000.0 * spent / (end - seed.env_steps) if end > seed.env_steps else np.nan


def _share_above(runs: Sequence[Recorded]) -> str:
    if not any(run.limits for run in runs):
        return "no limit"
    shares = np.array([safety(run).excess.share for run in runs])
    return f"{100 * float(interquartile_mean(shares)):.0f} %"


def _known(reached: Sequence[float], word: str, censored: Sequence[float]) -> str:
    """The range over the seeds that got there; and of the others, where they ended."""
    parts = [_range(reached)] if reached else []
    return "; ".join([*parts, f"{word} {_range(censored)}"] if censored else parts)


def _range(values: Sequence[float], form: str = "{:,.0f}") -> str:
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return "–"
    low, high = form.format(min(known)), form.format(max(known))
    return low if low == high else f"{low}–{high}"
