"""One run as its folder holds it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cmbpo import columns
from cmbpo.evaluation.evaluated import Evaluated
from cmbpo.settings import aliases
from cmbpo.settings.overrides import flat
from cmbpo.settings.registry import TASKS, is_built_in, task_name


@dataclass(frozen=True, eq=False)
class Recorded:
    """One run as it was written down."""

    name: str
    config: dict[str, Any]
    episodes: dict[str, np.ndarray]
    progress: dict[str, np.ndarray]
    evaluated: Evaluated | None = None
    """Episodes without learning that were kept beside it (`cmbpo evaluate --out`)."""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings by today's names, nested ones as `rollout.cut`, with the limits it had."""
        values = aliases.by_todays_names(flat(self.config["settings"]))
        if values.get("cost_limit") is None:  # older versions did not write the task's own
            noted = [x[-1] for x in columns.each(self.progress, columns.LIMIT).values()]
            values["cost_limit"] = noted or None
        return {n: tuple(x) if isinstance(x, list) else x for n, x in values.items()}

    @property
    def algo(self) -> str:
        """The algorithm."""
        return str(self.settings.get("algo", "unknown"))

    @property
    def task(self) -> str:
        """The name of a task of this package, or the whole id of another environment."""
        env_id = str(self.settings.get("env_id", "unknown"))
        return task_name(env_id) if is_built_in(env_id) else env_id

    @property
    def preset(self) -> str:
        """The preset that the settings started from."""
        return str(self.settings.get("preset", "unknown"))

    @property
    def grid(self) -> tuple[str, ...]:
        """The settings that a grid gave values to, where the run is one of a grid."""
        noted = self.config.get("grid")
        names = noted if isinstance(noted, list) else []
        return tuple(n for n in names if isinstance(n, str) and n in self.settings)

    @property
    def seed(self) -> Any:
        """The seed."""
        return self.settings.get("seed")

    @property
    def total_steps(self) -> float:
        """Environment steps that were asked for."""
        return float(self.settings.get("total_steps", 0))

    @cached_property
    def steps(self) -> np.ndarray:
        """Environment steps at the end of each update, from 0."""
        return np.append(0.0, self.progress[columns.ENV_STEPS])

    @cached_property
    def cumulative_cost(self) -> np.ndarray:
        """Cost of all environment steps up to `steps`."""
        return np.append(0.0, self.progress[columns.CUMULATIVE_COST])

    @cached_property
    def horizon(self) -> float:
        """Steps of a whole episode; where the run did not note them, the longest seen."""
        if self.task in TASKS:
            return 1000.0
        noted = self.config.get("horizon") or self.settings.get("env.horizon")
        return float(noted or self.episodes[columns.EPISODE_LENGTH].max())

    @property
    def num_envs(self) -> int:
        """Copies that were stepped together."""
        return int(self.settings.get("num_envs", 1))

    @cached_property
    def limits(self) -> dict[str, float]:
        """The limit of each limited cost per 1000 steps, by the cost's column in `episodes`."""
        several = columns.episode_cost("")
        names = [n for n in self.episodes if n.startswith(several)] or [str(columns.EPISODE_COST)]
        values = self.settings["cost_limit"] or ()
        scale = 1000.0 / self.horizon
        pairs = zip(names, values, strict=False)
        return {name: scale * float(value) for name, value in pairs if np.isfinite(value)}

    @property
    def limit_words(self) -> str:
        """The limits as `10`, or `10 and 50` where there are several costs; blank with none."""
        return " and ".join(f"{limit:g}" for limit in self.limits.values())

    def values(self, name: str) -> np.ndarray:
        """A column of progress.csv; with several costs, the sum of its columns; NaN where blank."""
        parts = list(columns.each(self.progress, name).values())
        return np.sum(parts, axis=0) if parts else np.full(len(self.steps) - 1, np.nan)

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Environment steps and values of a column of progress.csv where it has any."""
        values = self.values(name)
        known = np.isfinite(values)
        return self.steps[1:][known], values[known]
