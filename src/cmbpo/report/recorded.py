"""One run as its folder holds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cmbpo import presets


@dataclass(frozen=True, eq=False)
class Recorded:
    """One run as it was written down."""

    name: str
    config: dict[str, Any]
    episodes: dict[str, np.ndarray]
    progress: dict[str, np.ndarray]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings, nested ones as `rollout.cut`."""
        return flat(self.config["settings"])

    @property
    def algo(self) -> str:
        """The algorithm."""
        return str(self.settings.get("algo", "unknown"))

    @property
    def task(self) -> str:
        """The name of a task of this package, or the whole id of another environment."""
        env_id = str(self.settings.get("env_id", "unknown"))
        return presets.task_name(env_id) if presets.is_ours(env_id) else env_id

    @property
    def preset(self) -> str:
        """The preset that the settings started from."""
        return str(self.settings.get("preset", "unknown"))

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
        return np.append(0.0, self.progress["TotalEnvSteps"])

    @cached_property
    def cumulative_cost(self) -> np.ndarray:
        """Cost of all environment steps up to `steps`."""
        return np.append(0.0, self.progress["Cost/Cumulative"])

    @cached_property
    def horizon(self) -> float:
        """Steps of a whole episode; where the run did not note them, the longest seen."""
        if self.task in presets.TASKS:
            return 1000.0
        noted = self.config.get("horizon") or self.settings.get("env.horizon")
        return float(noted or self.episodes["length"].max())

    @property
    def num_envs(self) -> int:
        """Copies that were stepped together."""
        return int(self.settings.get("num_envs", 1))

    @cached_property
    def limits(self) -> dict[str, float]:
        """The limit of each limited cost per 1000 steps, by the cost's column in `episodes`."""
        names = [name for name in self.episodes if name.startswith("cost_")] or ["cost"]
        given = self.settings.get("cost_limit")
        noted = [x[-1] for n, x in self.progress.items() if n.startswith("Constraint/Limit")]
        values = noted if given is None else given
        scale = 1000.0 / self.horizon
        pairs = zip(names, values, strict=False)
        return {name: scale * float(value) for name, value in pairs if np.isfinite(value)}

    @property
    def limit_words(self) -> str:
        """The limits as `10`, or `10 and 50` where there are several costs; blank with none."""
        return " and ".join(f"{limit:g}" for limit in self.limits.values())

    def values(self, name: str) -> np.ndarray:
        """A column of progress.csv; with several costs, the sum of its columns; NaN where blank."""
        columns = [x for n, x in self.progress.items() if n == name or n.startswith(f"{name}/")]
        return np.sum(columns, axis=0) if columns else np.full(len(self.steps) - 1, np.nan)

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Environment steps and values of a column of progress.csv where it has any."""
        values = self.values(name)
        known = np.isfinite(values)
        return self.steps[1:][known], values[known]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = tuple(value) if isinstance(value, list) else value
    return found
