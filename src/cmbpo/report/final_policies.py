"""What the policies at the end of runs are worth, beside what others report of theirs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cmbpo import columns
from cmbpo.evaluation.evaluated import KINDS, Episodes
from cmbpo.report.arms import ArmRuns
from cmbpo.report.drawing.table import Table
from cmbpo.report.published import PUBLISHED, Published
from cmbpo.report.reading.read import Collection
from cmbpo.report.reading.recorded import Recorded
from cmbpo.report.statistics import whole
from cmbpo.report.tables import mean_interval
from cmbpo.runs.tail_cost import NAME, tail_mean

LAST = 100
"""Whole training episodes that stand for a policy that was not evaluated."""
OF_TRAINING = "†"
"""Marks numbers that are of them."""

HEAD = [
    "task",
    "method",
    "steps",
    "seeds",
    "return without noise",
    "its cost",
    f"its {NAME}",
    "return with noise",
    "its cost",
    f"its {NAME}",
]


class Worth(NamedTuple):
    """Return, cost and the cost of the costliest tenth of one policy's episodes."""

    mean_return: float
    cost: Float[np.ndarray, " cost"]
    tail: Float[np.ndarray, " cost"]


def final_policies(shown: Collection, tasks: Sequence[str]) -> Table:
    """A row for each arm on these tasks, then one for each published number.

    Costs are of an episode. Intervals are Student's over seeds.
    """
    table = Table(HEAD, words=2, parted=True)
    for task in tasks:
        for arm in [arm for arm in shown.arms if task in arm.runs]:
            table.rows.append([shown.title(task), *_row(arm, arm.runs[task])])
        for other in PUBLISHED.get(task, ()):
            table.rows.append([shown.title(task), *_published(other)])
    return table


def benchmark(shown: Collection) -> Table:
    """The same of all tasks that others have published numbers of."""
    return final_policies(shown, [task for task in shown.tasks if task in PUBLISHED])


def kept_limits(shown: Collection) -> Table:
    """Of how many final policies the mean cost is within the limit, arm by arm.

    Of those that were evaluated, without their noise and with it. Costs are per horizon.
    """
    sides = ("without noise", "with noise")
    head = [f"{x} {side}" for side in sides for x in ("within the limit", "cost", "return")]
    table = Table(["task", "arm", "policies", *head], words=2, parted=True)
    for task in shown.tasks:
        for arm in [arm for arm in shown.arms if task in arm.runs]:
            known = [run.evaluated for run in arm.runs[task] if run.evaluated]
            if not known:
                continue
            cells = []
            for kind in KINDS:
                episodes = [getattr(found, kind) for found in known]
                rates = [x.cost_rates(y.horizon) for x, y in zip(episodes, known, strict=True)]
                within = [
                    (np.array(rate) <= found.cost_limits).all()
                    for rate, found in zip(rates, known, strict=True)
                ]
                spent = [mean_interval(x, "{:.1f}".format, least=0.0) for x in np.array(rates).T]
                returns = [float(x.returns.mean()) for x in episodes]
                cells += [f"{sum(within)} of {len(within)}", " and ".join(spent)]
                cells.append(mean_interval(returns, "{:,.0f}".format))
            table.rows.append([shown.title(task), arm.label, str(len(known)), *cells])
    return table


def _row(arm: ArmRuns, runs: Sequence[Recorded]) -> list[str]:
    known = [run.evaluated for run in runs if run.evaluated]
    quiet = [_worth(found.deterministic) for found in known]
    noisy = [_worth(run.evaluated.stochastic) for run in runs if run.evaluated]
    mark = ""
    if not noisy:
        noisy = [worth for run in runs if (worth := _of_training(run))]
        mark = f" {OF_TRAINING}" if noisy else ""
    steps = sorted({float(run.steps[-1]) for run in runs})
    lengths = f"{steps[0]:,.0f}" + (f"–{steps[-1]:,.0f}" if len(steps) > 1 else "")
    seeds = str(len(runs))
    if 0 < len(known) < len(runs):
        seeds = f"{len(runs)}, of which {len(known)} evaluated"
    return [arm.label, lengths, seeds, *_cells(quiet), *(x + mark for x in _cells(noisy))]


def _published(other: Published) -> list[str]:
    numbers = [f"{other.mean_return:,.0f}", f"{other.cost:.1f}"]
    return [other.method, f"{other.steps:,}", "", *numbers, "", "", "", ""]


def _worth(episodes: Episodes) -> Worth:
    tails = np.array([episodes.tail_cost(i) for i in range(episodes.costs.shape[1])])
    return Worth(float(episodes.returns.mean()), episodes.costs.mean(axis=0), tails)


def _of_training(run: Recorded) -> Worth | None:
    """Of the last whole episodes of training, which have its noise; None where there are few."""
    episodes = run.episodes
    last = np.flatnonzero(whole(episodes, horizon=run.horizon))[-LAST:]
    if len(last) < LAST:
        return None
    costs = np.stack([episodes[name][last] for name in run.limits or [columns.EPISODE_COST]])
    tails = np.array([tail_mean(x) for x in costs])
    return Worth(float(episodes[columns.EPISODE_RETURN][last].mean()), costs.mean(axis=1), tails)


def _cells(seeds: Sequence[Worth]) -> list[str]:
    if not seeds:
        return ["–"] * 3
    costs, tails = np.stack([x.cost for x in seeds]), np.stack([x.tail for x in seeds])
    returns = mean_interval([x.mean_return for x in seeds], "{:,.0f}".format)
    return [
        returns,
        " and ".join(mean_interval(x, "{:.1f}".format, least=0.0) for x in costs.T),
        " and ".join(mean_interval(x, "{:.1f}".format, least=0.0) for x in tails.T),
    ]
