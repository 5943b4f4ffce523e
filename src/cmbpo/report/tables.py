"""The tables of the page, as text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cmbpo.report.arms import ALGORITHMS, INCIDENTAL, Arm, text
from cmbpo.report.paper import LIMIT, TABLE_I
from cmbpo.report.read import Collection
from cmbpo.report.recorded import Recorded
from cmbpo.statistics import (
    AFTERWARDS,
    Crossing,
    Excess,
    Interval,
    bootstrap_interval,
    censored_median,
    cost_rate,
    crossing,
    excess,
    interquartile_mean,
    share_interval,
    speed_up,
    within,
)


@dataclass(frozen=True)
class Table:
    """A table: the first `words` columns hold words, the others numbers."""

    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    words: int = 1
    groups: list[tuple[str, int]] = field(default_factory=list)
    """Headings above the head, each with the columns it spans."""


def crossings(arm: Arm, task: str) -> list[Crossing]:
    """Table I's measure for every seed of an arm."""
    return [
        crossing(
            run.episodes,
            run.steps,
            run.cumulative_cost,
            level=TABLE_I[task].level,
            limit=LIMIT,
            num_envs=run.num_envs,
        )
        for run in arm.runs.get(task, [])
    ]


def table_one(found: Collection) -> Table:
    """Cumulative cost until the level within the limit: the paper's numbers, and ours."""
    algorithms = ["cmbpo", "cpo", "ppo-lag", "trpo-lag"]
    table = Table(
        ["task", "return", *[ALGORITHMS[a] for a in algorithms], *[a.label for a in found.arms]],
        groups=[("", 2), ("paper", 4), ("here, median", len(found.arms))],
    )
    for task in [t for t in found.tasks if t in TABLE_I]:
        row = [task, f"{TABLE_I[task].level:.0f}"]
        row += [str(TABLE_I[task].cost[algo]) for algo in algorithms]
        for arm in found.arms:
            seeds = crossings(arm, task)
            if not seeds:
                row.append("")
                continue
            bounds = _median(seeds, "cumulative_cost")
            count = sum(seed.reached for seed in seeds)
            shown = between(bounds, lambda x: f"{x / 1000:.1f}")
            row.append(f"{shown} ({count} of {len(seeds)})")
        table.rows.append(row)
    return table


def every_seed(found: Collection) -> Table:
    """Table I's measure for each run, and what followed."""
    table = Table(
        ["task", "arm", "seed", "steps", "cumulative cost", "return", "cost", "holds 10"],
        words=2,
        groups=[("", 5), (f"next {AFTERWARDS:,} steps", 3)],
    )
    for task in [t for t in found.tasks if t in TABLE_I]:
        for arm in found.arms:
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
    verdict = "yes" if seed.holds(LIMIT) else "no"
    return [*cells, f"{seed.next_return:.0f}", f"{seed.next_cost:.1f}{error}{short}", verdict]


def speed_ups(found: Collection) -> Table | None:
    """How many times fewer environment steps CMBPO takes to the level than each baseline."""
    ours = [arm for arm in found.arms if arm.algo == "cmbpo"]
    baselines = [arm for arm in found.arms if arm.algo != "cmbpo"]
    if not ours or not baselines:
        return None
    table = Table(["task", "arm", *[arm.label for arm in baselines]], words=2)
    for task in [t for t in found.tasks if t in TABLE_I]:
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


@dataclass(frozen=True)
class Safety:
    """How one run ended and what it spent on the way."""

    end_return: float
    end_cost: float
    holds: bool
    env_steps: float
    cumulative_cost: float
    excess: Excess
    violating: float
    """Share of episodes that cost more than the limit."""


def safety(run: Recorded) -> Safety:
    """Return and cost over the last steps, and the costs of the whole run."""
    episodes = run.episodes
    end = float(run.steps[-1])
    last = within(episodes, end - AFTERWARDS, end, num_envs=run.num_envs)
    length = episodes["length"]
    rates = {name: cost_rate(episodes[name][last], length[last])[0] for name in run.limits}
    if list(run.limits) == ["cost"]:
        spent = [excess(run.steps, run.cumulative_cost, limit=run.limits["cost"])]
        rates = {"cost": _end_rate(run)}
    else:
        ends = episodes["env_steps"]
        totals = {name: np.cumsum(episodes[name]) for name in run.limits}
        spent = [excess(ends, totals[name], limit=limit) for name, limit in run.limits.items()]
    whole = run.horizon / 1000.0
    violated = [episodes[name] > whole * limit for name, limit in run.limits.items()]
    return Safety(
        end_return=float(episodes["return"][last].mean()) if last.any() else np.nan,
        end_cost=_end_rate(run),
        holds=all(rates[name] <= limit for name, limit in run.limits.items()),
        env_steps=float(run.steps[-1]),
        cumulative_cost=float(run.cumulative_cost[-1]),
        excess=Excess(sum(x.regret for x in spent), max([x.share for x in spent], default=0.0)),
        violating=float(np.any(violated, axis=0).mean()) if violated else 0.0,
    )


def _end_rate(run: Recorded) -> float:
    """Cost per 1000 of a run's last steps, of unfinished episodes too."""
    end = float(run.steps[-1])
    start = max(end - AFTERWARDS, 0.0)
    return (
        1000.0
        * float(np.ptp(np.interp([start, end], run.steps, run.cumulative_cost)))
        / (end - start)
    )


def training(found: Collection) -> Table:
    """The end of training and the safety of all of it, for each arm on each task."""
    table = Table(
        [
            "task",
            "arm",
            "seeds",
            "return",
            "cost",
            "limit holds",
            "steps",
            "cumulative cost",
            "cost regret",
            "regret per 1000 steps",
            "steps above limit",
            "episodes above limit",
        ],
        words=2,
        groups=[("", 3), (f"last {AFTERWARDS:,} steps", 3), ("whole training", 6)],
    )
    for task in found.tasks:
        for arm in [arm for arm in found.arms if task in arm.runs]:
            seeds = [safety(run) for run in arm.runs[task]]
            held = sum(seed.holds for seed in seeds)
            table.rows.append(
                [
                    task,
                    arm.label,
                    str(len(seeds)),
                    _middle([[seed.end_return for seed in seeds]], "{:.0f}"),
                    _middle([[seed.end_cost for seed in seeds]], "{:.1f}"),
                    _share(held, len(seeds)),
                    _range([seed.env_steps for seed in seeds]),
                    f"{_iqm([seed.cumulative_cost for seed in seeds]):,.0f}",
                    f"{_iqm([seed.excess.regret for seed in seeds]):,.0f}",
                    f"{_iqm([1000 * s.excess.regret / s.env_steps for s in seeds]):.1f}",
                    f"{100 * _iqm([seed.excess.share for seed in seeds]):.0f} %",
                    f"{100 * _iqm([seed.violating for seed in seeds]):.0f} %",
                ]
            )
    return table


def all_tasks(found: Collection) -> Table | None:
    """Return over level and cost over limit, of all tasks of the paper that an arm ran on."""
    table = Table(["arm", "tasks", "runs", "return ÷ level", "cost ÷ limit", "limit holds"])
    for arm in found.arms:
        tasks = [task for task in found.tasks if task in arm.runs and task in TABLE_I]
        if len(tasks) < 2:
            continue
        ends = {task: [safety(run) for run in arm.runs[task]] for task in tasks}
        held = [seed.holds for seeds in ends.values() for seed in seeds]
        returns = [[s.end_return / TABLE_I[t].level for s in ends[t]] for t in tasks]
        costs = [[s.end_cost / LIMIT for s in ends[t]] for t in tasks]
        table.rows.append(
            [
                arm.label,
                str(len(tasks)),
                str(len(held)),
                _middle(returns, "{:.2f}"),
                _middle(costs, "{:.2f}"),
                _share(sum(held), len(held)),
            ]
        )
    return table if table.rows else None


def settings(found: Collection) -> Table | None:
    """The settings that are not the same everywhere."""
    columns = [(arm, task) for task in found.tasks for arm in found.arms if task in arm.runs]
    table = Table(["setting", *[f"{task} {arm.label}" for arm, task in columns]])
    names = dict.fromkeys(name for run in found.runs for name in run.settings)
    hidden = {*INCIDENTAL, "algo", "env_id", "preset"} - {"total_steps"}
    for name in [n for n in names if n not in hidden]:
        cells = []
        for arm, task in columns:
            values = {text(run.settings.get(name, "unknown")) for run in arm.runs[task]}
            cells.append(", ".join(sorted(values)))
        if len(set(cells)) > 1:
            table.rows.append([name, *cells])
    return table if table.rows else None


def versions(found: Collection) -> Table:
    """What the runs ran on; a column for each different set of versions."""
    sets: dict[tuple[tuple[str, str], ...], int] = {}
    for run in found.runs:
        noted = dict(run.config.get("versions", {}))
        for name in ("device", "commit"):
            noted[name] = run.config.get(name) or "unknown"
        key = tuple((name, str(value)) for name, value in noted.items())
        sets[key] = sets.get(key, 0) + 1
    head = [f"{count} run{'s' if count > 1 else ''}" for count in sets.values()]
    names = dict.fromkeys(name for key in sets for name, _ in key)
    rows = [[name, *[dict(key).get(name, "–") for key in sets]] for name in names]
    return Table(["", *head], rows, words=1 + len(sets))


def runs(found: Collection) -> Table:
    """Every run that is shown."""
    table = Table(["run", "arm", "task", "command", "seed", "steps", "episodes"], words=4)
    for arm in found.arms:
        for task, members in arm.runs.items():
            for run in members:
                end, asked = run.steps[-1], run.total_steps
                steps = f"{end:,.0f}" if end >= asked else f"{end:,.0f} of {asked:,.0f}"
                command = " ".join(str(word) for word in run.config.get("command", []))
                count = f"{len(run.episodes['env_steps']):,}"
                table.rows.append([run.name, arm.label, task, command, str(run.seed), steps, count])
    return table


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


def _middle(strata: Sequence[Sequence[float]], form: str) -> str:
    """The interquartile mean, with its interval where every task has several seeds."""
    rows = [np.array(scores, float) for scores in strata]
    middle = form.format(float(interquartile_mean(np.concatenate(rows))))
    if min(len(scores) for scores in rows) < 2:
        return middle
    low, high = (form.format(float(x)) for x in bootstrap_interval(rows))
    return f"{middle} [{low}, {high}]"


def _share(successes: int, trials: int) -> str:
    low, high = share_interval(successes, trials)
    return f"{successes} of {trials} [{low:.2f}, {high:.2f}]"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
