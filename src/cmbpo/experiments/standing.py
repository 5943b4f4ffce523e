"""How the arms of an experiment stand: their return, and their cost over its limit, best first."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from cmbpo import columns
from cmbpo.experiments.live import short
from cmbpo.experiments.plan import Job
from cmbpo.runs.tables import read_table
from cmbpo.settings.registry import short_algorithm, short_name

LAST = 0.25
"""Share of a run, at its end, that it is judged by."""
UNBROKEN = 500
"""Columns of a table that is not printed on a terminal."""


class Standing(NamedTuple):
    """A run, by the last quarter of its steps."""

    steps: int
    ret: float
    """Mean of the return, not a number before the first episode ends."""
    cost: float
    """Mean cost over its limit, of the cost that is nearest to it or furthest beyond."""
    cut: int | None = None
    """Steps at which training still cuts episodes short, or None."""


def standing(folder: Path, until: int | None = None) -> Standing | None:
    """How a run stands, or stood after `until` steps; None where that cannot be read."""
    try:
        table = read_table(folder / "progress.csv")
        every = table[columns.ENV_STEPS]
        rows = slice(None if until is None else int(np.searchsorted(every, until)) + 1)
        steps = every[rows]
        taken = np.diff(steps, prepend=0.0)
        taken[steps <= (1.0 - LAST) * steps[-1]] = 0.0
        shares = [
            _over(_mean(real[rows], taken), float(table[_limit_of(name)][rows][-1]))
            for name, real in table.items()
            if name.split("/")[:2] == columns.REAL_COST.split("/")
        ]
        ret = _mean(table[columns.RETURN][rows], taken)
        now = int(table[columns.EPISODE_STEPS][rows][-1])
        return Standing(int(steps[-1]), ret, max(shares), now if now < _horizon(folder) else None)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def _limit_of(name: str) -> str:
    return str(columns.LIMIT) + name.removeprefix(columns.REAL_COST)


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    known = np.isfinite(values) & (weights > 0.0)
    return float(np.average(values[known], weights=weights[known])) if known.any() else math.nan


def _over(cost: float, limit: float) -> float:
    return cost / limit if limit else math.inf if cost else 0.0


def _horizon(folder: Path) -> float:
    return float(json.loads((folder / "config.json").read_text(encoding="utf-8"))["horizon"])


@dataclass(frozen=True)
class ArmStanding:
    """The seeds of an arm on a task."""

    family: str
    seeds: list[Standing]

    @property
    def ret(self) -> float:
        """Mean return of the seeds that have one."""
        known = [seed.ret for seed in self.seeds if math.isfinite(seed.ret)]
        return sum(known) / len(known) if known else math.nan

    @property
    def cost(self) -> float:
        """Mean cost of the seeds over its limit."""
        known = [seed.cost for seed in self.seeds if not math.isnan(seed.cost)]
        return sum(known) / len(known) if known else math.inf

    @property
    def within(self) -> bool:
        """Whether the mean cost of the seeds is within the limit."""
        return self.cost <= 1.0

    @property
    def steps(self) -> int:
        """Steps that its seeds have, all of them."""
        return min((seed.steps for seed in self.seeds), default=0)

    @property
    def rank(self) -> tuple[bool, float]:
        """Smaller is better: within the limit by return, before those beyond it by cost."""
        ret = self.ret if math.isfinite(self.ret) else -math.inf
        return (False, -ret) if self.within else (True, self.cost)


def arms(jobs: Sequence[Job], until: int | None = None) -> list[ArmStanding]:
    """How the arms stand, or stood when their runs had taken `until` steps, best first.

    A run that has not taken that many does not count; an arm without any comes last.
    """
    seeds: dict[str, list[Standing]] = {}
    for job in jobs:
        now = standing(job.folder, until)
        arm = seeds.setdefault(job.family, [])
        if now is not None and now.steps >= (until or 0):
            arm.append(now)
    return sorted((ArmStanding(*arm) for arm in seeds.items()), key=lambda arm: arm.rank)


def show(jobs: Sequence[Job], console: Console | None = None) -> None:
    """Print a table for each task: arms that went furthest first, best first among those."""
    if console is None:
        console = Console(highlight=False, width=None if Console().is_terminal else UNBROKEN)
    titles = labels(jobs)
    for task in dict.fromkeys(job.settings.env_id for job in jobs):
        here = [job for job in jobs if job.settings.env_id == task]
        asked = {job.family: job.settings.total_steps for job in here}
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("arm", overflow="fold")
        for name in ("seeds", "steps", "return", "cost ÷ limit"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("within limit", overflow="fold")
        for arm in sorted(arms(here), key=lambda arm: -min(arm.steps, asked[arm.family])):
            table.add_row(titles[arm.family], *_cells(arm, asked[arm.family]))
        console.print(f"\n{short_name(task)}, the last quarter of each run:", markup=False)
        console.print(table)


def _cells(arm: ArmStanding, asked: int) -> tuple[str, ...]:
    if not arm.seeds:
        return ("0", f"0 of {short(asked)}", "–", "–", "not known")
    part = "" if arm.steps >= asked else f" of {short(asked)}"
    ret = f"{arm.ret:,.0f}" if math.isfinite(arm.ret) else "–"
    steps = f"{short(arm.steps)}{part}"
    return (str(len(arm.seeds)), steps, ret, f"{arm.cost:.2f}", _verdict(arm))


def _verdict(arm: ArmStanding) -> str:
    """Whether the limit held, of how many seeds where they differ, and in what episodes."""
    if not math.isfinite(arm.ret):
        return "no episode has ended yet"
    held = sum(seed.cost <= 1.0 for seed in arm.seeds)
    words = ["yes" if arm.within else "no"]
    words += [f"{held} of {len(arm.seeds)} seeds"] if 0 < held < len(arm.seeds) else []
    cut = [seed.cut for seed in arm.seeds if seed.cut is not None]
    words += [f"episodes cut at {min(cut):,} steps"] if cut else []
    return ", ".join(words)


def labels(jobs: Sequence[Job]) -> dict[str, str]:
    """What each arm is called, by its family: what of it differs among these runs."""
    several: dict[str, set[str]] = {}
    for job in jobs:
        for name, value in job.values().items():
            several.setdefault(name, set()).add(value)
    algorithms = {short_algorithm(job.arm) for job in jobs}
    titles = {}
    for job in jobs:
        own = [f"{name} {x}" for name, x in job.values().items() if len(several[name]) > 1]
        named = [short_algorithm(job.arm)] if len(algorithms) > 1 or not own else []
        titles[job.family] = ", ".join([*named, *own])
    return titles
