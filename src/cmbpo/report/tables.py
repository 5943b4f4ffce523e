"""The tables of results: Table I, the speed-up, and the safety of training."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from cmbpo import columns
from cmbpo.report.arms import ArmRuns, label_of
from cmbpo.report.drawing.table import Table
from cmbpo.report.paper import LIMIT, TABLE_I
from cmbpo.report.reading.read import Collection
from cmbpo.report.safety import Safety, safety
from cmbpo.report.statistics import (
    AFTERWARDS,
    WINDOW,
    Crossing,
    Interval,
    censored_median,
    crossing,
    interquartile_mean,
    middle_interval,
    share_interval,
    speed_up,
)
from cmbpo.runs.tail_cost import NAME
from cmbpo.settings.registry import ALGORITHMS


def crossings(arm: ArmRuns, task: str, *, window: int = WINDOW) -> list[Crossing]:
    """Table I's measure for every seed of an arm."""
    return [
        crossing(
            run.episodes,
            run.steps,
            run.cumulative_cost,
            level=TABLE_I[task].level,
            limit=LIMIT,
            num_envs=run.num_envs,
            horizon=run.horizon,
            window=window,
        )
        for run in arm.runs.get(task, [])
    ]


def table_one(shown: Collection) -> Table:
    """Cumulative cost until the level within the limit: the paper's number beside ours."""
    table = Table(
        ["task", "", "paper", "here, median", "seeds that got there"], words=2, parted=True
    )
    for task in [t for t in shown.tasks if t in TABLE_I]:
        part = f"{task}, return {TABLE_I[task].level:.0f}"
        for algo in dict.fromkeys([*ALGORITHMS, *[arm.algo for arm in shown.arms]]):
            arms = [arm for arm in shown.arms if arm.algo == algo and task in arm.runs]
            paper = str(TABLE_I[task].cost.get(algo, "–"))
            for arm in arms:
                seeds = crossings(arm, task)
                median = between(_median(seeds, "cumulative_cost"), lambda x: f"{x / 1000:.1f}")
                count = f"{sum(seed.reached for seed in seeds)} of {len(seeds)}"
                printed = "–" if arm.ablation else paper
                table.rows.append([part, arm.label, printed, median, count])
            if not arms and algo in TABLE_I[task].cost:
                table.rows.append([part, label_of(algo), paper, "no run", ""])
    return table


def every_seed(shown: Collection) -> Table:
    """Table I's measure for each run, and what followed."""
    table = Table(
        ["task", "arm", "seed", "steps", "cumulative cost", "return", "cost", "holds 10"],
        words=2,
        groups=[("", 5), (f"next {AFTERWARDS:,} steps", 3)],
        parted=True,
    )
    for task in [t for t in shown.tasks if t in TABLE_I]:
        for arm in shown.arms:
            for run, seed in zip(arm.runs.get(task, []), crossings(arm, task), strict=True):
                table.rows.append([task, arm.label, str(run.seed), *_crossing_cells(seed)])
    return table


def _crossing_cells(seed: Crossing) -> list[str]:
    if not seed.reached:
        return [f"not in {seed.env_steps:,.0f}", f"> {seed.cumulative_cost:,.0f}", "", "", ""]
    cells = [f"{seed.env_steps:,.0f}", f"{seed.cumulative_cost:,.0f}"]
    if np.isnan(seed.next_cost):
        return [*cells, "", "nothing followed", ""]
    short = "" if seed.next_steps >= AFTERWARDS else f" (only {seed.next_steps:,.0f} steps)"
    error = "" if np.isnan(seed.next_error) else f" ± {seed.next_error:.1f}"
    verdict = {True: "yes", False: "no", None: "open"}[seed.holds(LIMIT)]
    return [*cells, f"{seed.next_return:.0f}", f"{seed.next_cost:.1f}{error}{short}", verdict]


def speed_ups(shown: Collection) -> Table | None:
    """How many times fewer environment steps CMBPO takes to the level than each baseline."""
    ours = [arm for arm in shown.arms if arm.algo == "cmbpo" and not arm.ablation]
    baselines = [arm for arm in shown.arms if arm.algo != "cmbpo" and arm.runs.keys() & TABLE_I]
    if not ours or not baselines:
        return None
    table = Table(["task", "arm", *[arm.label for arm in baselines]], words=2, parted=True)
    for task in [t for t in shown.tasks if t in TABLE_I]:
        for arm in [arm for arm in ours if task in arm.runs]:
            mine = _median(crossings(arm, task), "env_steps")
            row = [task, arm.label]
            for other in baselines:
                theirs = _median(crossings(other, task), "env_steps")
                bounds = speed_up(mine, theirs)
                known = task in other.runs and bounds[0] > 0
                row.append(between(bounds, lambda x: f"{x:.1f}×") if known else "not known")
            table.rows.append(row)
    return table


def training(shown: Collection) -> Table:
    """The end of training and the safety of all of it, for each arm on each task."""
    table = Table(
        [
            "task",
            "arm",
            "seeds",
            "return",
            "cost",
            f"costliest tenth ({NAME})",
            "in whole episodes",
            "limit holds",
            "steps",
            "cumulative cost",
            "cost regret",
            "regret per 1000 steps",
            "steps above limit",
            "episodes above limit",
        ],
        words=2,
        groups=[("", 3), (f"last {AFTERWARDS:,} steps", 5), ("whole training", 6)],
        parted=True,
    )
    for task in shown.tasks:
        for arm in [arm for arm in shown.arms if task in arm.runs]:
            seeds = [safety(run) for run in arm.runs[task]]
            row = [
                _with_limit(shown, task),
                arm.label,
                str(len(seeds)),
                _middle([[seed.end_return for seed in seeds]], "{:.0f}"),
                _costs([seed.end_costs for seed in seeds]),
                _costs([seed.end_tails for seed in seeds]),
                f"{100 * _iqm([seed.whole for seed in seeds]):.0f} %",
                held(seeds),
                _range([seed.env_steps for seed in seeds]),
                f"{_iqm([seed.cumulative_cost for seed in seeds]):,.0f}",
                f"{_iqm([seed.excess.regret for seed in seeds]):,.0f}",
                f"{_iqm([1000 * s.excess.regret / s.env_steps for s in seeds]):.1f}",
                f"{100 * _iqm([seed.excess.share for seed in seeds]):.0f} %",
                f"{100 * _iqm([seed.violating for seed in seeds]):.0f} %",
            ]
            if not any(run.limits for run in arm.runs[task]):
                row[7], row[10:] = "no limit", ["–"] * 4
            table.rows.append(row)
    return table


def all_tasks(shown: Collection) -> Table | None:
    """Return over level and cost over limit, of all tasks of the paper that an arm ran on."""
    tail = f"{NAME} ÷ limit"
    table = Table(["arm", "tasks", "runs", "return ÷ level", "cost ÷ limit", tail, "limit holds"])
    for arm in shown.arms:
        tasks = [task for task in shown.tasks if task in arm.runs and task in TABLE_I]
        if len(tasks) < 2:
            continue
        ends = {task: [safety(run) for run in arm.runs[task]] for task in tasks}
        every = [seed for seeds in ends.values() for seed in seeds]
        returns = [[s.end_return / TABLE_I[t].level for s in ends[t]] for t in tasks]
        costs = [[s.end_costs[columns.EPISODE_COST] / LIMIT for s in ends[t]] for t in tasks]
        tails = [[s.end_tails[columns.EPISODE_COST] / LIMIT for s in ends[t]] for t in tasks]
        table.rows.append(
            [
                arm.label,
                str(len(tasks)),
                str(len(every)),
                _middle(returns, "{:.2f}"),
                _middle(costs, "{:.2f}", least=0.0),
                _middle(tails, "{:.2f}", least=0.0),
                held(every),
            ]
        )
    return table if table.rows else None


def held(seeds: Sequence[Safety]) -> str:
    """How many seeds keep their limits, of those whose episodes tell; and how many do not tell."""
    known = [seed.holds for seed in seeds if seed.holds is not None]
    silent = len(seeds) - len(known)
    if not known:
        return "not known (cut short)"
    return _share(sum(known), len(known)) + (f" ({silent} not known: cut short)" if silent else "")


def _costs(seeds: Sequence[Mapping[str, float]]) -> str:
    """The middle of each cost over the seeds."""
    return " and ".join(
        _middle([[seed[name] for seed in seeds]], "{:.1f}", least=0.0) for name in seeds[0]
    )


def _with_limit(shown: Collection, task: str) -> str:
    """The task and its limit, or the limits that its runs had."""
    runs = [run for run in shown.runs if run.task == task]
    limits = " or ".join(dict.fromkeys(run.limit_words for run in runs if run.limits))
    return shown.title(task) + (f", limit {limits} per 1000 steps" if limits else "")


def between(bounds: Interval, form: Callable[[float], str]) -> str:
    """A number where both bounds agree, else what is known of it."""
    low, high = (form(x) if np.isfinite(x) else "" for x in bounds)
    if not high:
        return f"≥ {low}"
    return low if low == high else f"{low}–{high}"


def _median(seeds: Sequence[Crossing], name: str) -> Interval:
    values = np.array([getattr(seed, name) for seed in seeds], float)
    return censored_median(values, np.array([seed.reached for seed in seeds], bool))


def _iqm(values: Sequence[float]) -> float:
    return float(interquartile_mean(np.array(values, float)))


def _middle(strata: Sequence[Sequence[float]], form: str, least: float = -np.inf) -> str:
    """The interquartile mean of what is known, with its interval where every task has several.

    The interval begins at `least`, the smallest that there can be, unless a seed is below.
    """
    rows = [known for scores in strata if len(known := _finite(scores))]
    if not rows:
        return "–"
    middle = form.format(float(interquartile_mean(np.concatenate(rows))))
    if min(len(scores) for scores in rows) < 2:
        return middle
    low, high = (float(x) for x in middle_interval(rows))
    low = max(low, min(least, *(scores.min() for scores in rows)))
    return f"{middle} [{form.format(low)}, {form.format(high)}]"


def mean_interval(
    values: Sequence[float] | Float[np.ndarray, " n"],
    form: Callable[[float], str],
    *,
    least: float = -np.inf,
) -> str:
    """The mean over seeds with Student's 95 % interval, which needs two; it begins at `least`."""
    known = _finite(values)
    if len(known) < 2:
        return "–" if len(known) == 0 else form(float(known[0]))
    half = stdtrit(len(known) - 1, 0.975) * known.std(ddof=1) / np.sqrt(len(known))
    low, high = max(known.mean() - half, least), known.mean() + half
    return f"{form(float(known.mean()))} ({form(float(low))}–{form(float(high))})"


def _finite(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.array(scores, float)
    return values[np.isfinite(values)]


def _share(successes: int, trials: int) -> str:
    low, high = share_interval(successes, trials)
    return f"{successes} of {trials} [{low:.2f}, {high:.2f}]"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
