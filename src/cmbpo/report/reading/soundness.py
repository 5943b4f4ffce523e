"""Whether a run's files can be what a run writes: others may hold anything.

What is wrong is said in one sentence, with the value and what is allowed, and the run is left out;
single rows that hold no number where one belongs are left out of their table.
"""

from typing import Any

import numpy as np

from cmbpo import columns
from cmbpo.report.arms import text
from cmbpo.report.reading.recorded import Recorded

MOST_STEPS = 1e11
"""Environment steps of a run."""
MOST_COSTS = 16
"""Costs that a run may be limited in."""
LARGEST = 1e100
"""Numbers beyond are as good as infinite, and what is smaller than its inverse as good as 0."""
LONGEST = 500
"""Letters of a setting."""

Table = dict[str, np.ndarray]


def require(run: Recorded) -> None:
    """Refuse a run whose settings or steps cannot be."""
    _require_settings(run)
    for name, kind in (("versions", dict), ("command", list)):
        if not isinstance(value := run.config.get(name, kind()), kind):
            wanted = "a list" if kind is list else "names with values"
            raise ValueError(f"its {name} is {_short(value)}; allowed: {wanted}")
    _require_ascending(run.progress[columns.ENV_STEPS], "updates")
    _require_ascending(run.episodes[columns.EPISODE_ENV_STEPS], "episodes")
    shortest = run.episodes[columns.EPISODE_LENGTH].min()
    if not shortest >= 1:
        raise ValueError(f"an episode of it has {shortest:g} steps; allowed: at least 1")


def known_rows(table: Table, names: list[str]) -> tuple[Table, int]:
    """The rows that hold a number in each of these columns, and how many do not.

    What lies beyond `LARGEST` anywhere is not a number from now on.
    """
    bounded = {n: _bounded(x) for n, x in table.items()}
    known = np.all([np.isfinite(bounded[name]) for name in names], axis=0)
    return {n: x[known] for n, x in bounded.items()}, int((~known).sum())


def _bounded(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 1 / LARGEST, 0.0, np.where(np.abs(x) < LARGEST, x, np.nan))


def _require_settings(run: Recorded) -> None:
    limits = run.settings["cost_limit"]
    if not isinstance(limits, tuple | list | None) or len(limits or ()) > MOST_COSTS:
        raise ValueError(
            f"its cost_limit is {_short(limits)}; allowed: a list of at most {MOST_COSTS} numbers"
        )
    for name, value in run.settings.items():
        shown = text(value)
        if len(name) + len(shown) > LONGEST or not (name + shown).isprintable():
            raise ValueError(
                f"its setting {_short(name)} is {_short(value)}; allowed: at most {LONGEST}"
                " letters, all of which can be printed"
            )
    for name in ("algo", "env_id", "preset"):
        if not isinstance(value := run.settings.get(name, ""), str):
            raise ValueError(f"its {name} is {_short(value)}; allowed: a name")
    _require_number("seed", run.settings.get("seed", 0), 0.0, 2.0**64)
    _require_number("total_steps", run.settings.get("total_steps", 0), 0.0, MOST_STEPS)
    _require_number("num_envs", run.settings.get("num_envs", 1), 1.0, 1e6)
    for horizon in (run.settings.get("env.horizon"), run.config.get("horizon")):
        if horizon is not None:
            _require_number("horizon", horizon, 1.0, 1e9)
    for limit in limits or ():
        if limit == limit:  # a progress.csv may have noted none, which is read as NaN
            _require_number("cost_limit", limit, 0.0, np.inf)


def _require_number(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ValueError(f"its {name} is {_short(value)}; allowed: a number, {low:g} to {high:g}")


def _require_ascending(steps: np.ndarray, of: str) -> None:
    if steps[0] < 0 or not 0 < steps[-1] <= MOST_STEPS or (np.diff(steps) < 0).any():
        raise ValueError(
            f"the environment steps of its {of} go from {steps[0]:g} to {steps[-1]:g}; allowed:"
            f" 0 to {MOST_STEPS:g}, none less than the one before it"
        )


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:39]}…"
