"""Evaluations while training goes on, as a callback of `Agent.learn`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cmbpo import columns
from cmbpo.evaluation.evaluate import Evaluation
from cmbpo.evaluation.evaluated import cost_label


class Judged(NamedTuple):
    """What the policy of a training run was worth after so many of its real steps."""

    env_steps: int
    evaluation: Evaluation


class EvalCallback:
    """Evaluates every so many real steps, in copies of its own: training goes on as without it.

    `results` holds what was found. Training ends where `until`, given an evaluation, says True.
    """

    def __init__(
        self,
        every: int = 10_000,
        episodes: int = 5,
        *,
        until: Callable[[Evaluation], bool] | None = None,
        seed: int = 1_000_000,
    ):
        """Nothing is evaluated before the first `every` steps."""
        if type(every) is not int or every < 1:
            raise ValueError(f"every is {every!r}; allowed: a whole number of steps, 1 or more")
        self.every, self.episodes, self.until, self.seed = every, episodes, until, seed
        self.results: list[Judged] = []
        self._next = every

    def __call__(self, agent: Any, row: Mapping[str, Any]) -> bool:
        """After an update: evaluate if it is time; False to end training."""
        steps = int(row[columns.ENV_STEPS])
        if steps < self._next:
            return True
        self._next = (steps // self.every + 1) * self.every
        found = agent.evaluate(episodes=self.episodes, seed=self.seed)
        self.results.append(Judged(steps, found))
        print(f"evaluated after {steps:,} steps: {_words(found)}", flush=True)
        return self.until is None or not self.until(found)


def _words(found: Evaluation) -> str:
    """Return and costs with the mean action, in a line."""
    side = found.deterministic
    parts = [f"return {side.mean_return()}"]
    for i, (name, limit) in enumerate(zip(found.cost_names, found.cost_limits, strict=True)):
        label = cost_label(name, found.cost_names)
        rate = side.cost_rate(i, found.horizon)
        parts.append(f"{label} per {found.horizon} steps {rate} (limit {limit:g})")
    return ", ".join(parts)
