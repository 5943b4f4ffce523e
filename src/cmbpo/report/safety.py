"""How a run ended and what it spent on the way, and what short episodes do not tell of it."""

from dataclasses import dataclass

import numpy as np

from cmbpo import columns
from cmbpo.report.reading.recorded import Recorded
from cmbpo.report.statistics import AFTERWARDS, Excess, cost_rate, excess, whole, within
from cmbpo.runs.tail_cost import tail_mean

ENOUGH = 0.5
"""Share of the last steps in whole episodes from which on it is judged whether the limit holds."""


@dataclass(frozen=True)
class Safety:
    """How one run ended and what it spent on the way."""

    end_return: float
    end_costs: dict[str, float]
    """Of each cost, per 1000 steps; of their sum where there is no limit."""
    end_tails: dict[str, float]
    """Of the same, the mean of the costliest tenth of whole episodes; not a number without any."""
    end_length: float
    """Mean length of the last episodes."""
    whole: float
    """Share of their steps in whole episodes, not in such as training cut short."""
    within_limits: bool
    """Whether the last steps cost at most the limits, whatever episodes they are of."""
    env_steps: float
    cumulative_cost: float
    excess: Excess
    violating: float
    """Share of episodes that cost more than the limit."""

    @property
    def holds(self) -> bool | None:
        """Whether the limits hold; None where most of the episodes were cut short.

        A policy that would have cost later was then not seen to.
        """
        return self.within_limits if self.whole >= ENOUGH or not self.within_limits else None


def safety(run: Recorded) -> Safety:
    """Return and cost over the last steps, and the costs of the whole run."""
    episodes = run.episodes
    end = float(run.steps[-1])
    last = within(episodes, end - AFTERWARDS, end, num_envs=run.num_envs)
    uncut = whole(episodes, horizon=run.horizon)
    length = episodes[columns.EPISODE_LENGTH]
    rates = {name: cost_rate(episodes[name][last], length[last])[0] for name in run.limits}
    if list(run.limits) == [columns.EPISODE_COST]:
        spent = [excess(run.steps, run.cumulative_cost, limit=run.limits[columns.EPISODE_COST])]
        rates = {str(columns.EPISODE_COST): _end_rate(run)}
    else:
        ends = episodes[columns.EPISODE_ENV_STEPS]
        totals = {name: np.cumsum(episodes[name]) for name in run.limits}
        spent = [excess(ends, totals[name], limit=limit) for name, limit in run.limits.items()]
    per_episode = run.horizon / 1000.0
    violated = [episodes[name] > per_episode * limit for name, limit in run.limits.items()]
    end_costs = rates or {str(columns.EPISODE_COST): _end_rate(run)}
    return Safety(
        end_return=float(episodes[columns.EPISODE_RETURN][last].mean()) if last.any() else np.nan,
        end_costs=end_costs,
        end_tails={
            name: tail_mean(episodes[name][last & uncut]) / per_episode for name in end_costs
        },
        end_length=float(length[last].mean()) if last.any() else np.nan,
        whole=float(length[last & uncut].sum() / length[last].sum()) if last.any() else 0.0,
        within_limits=all(rates[name] <= limit for name, limit in run.limits.items()),
        env_steps=float(run.steps[-1]),
        cumulative_cost=float(run.cumulative_cost[-1]),
        excess=Excess(
            sum((x.regret for x in spent), 0.0), max([x.share for x in spent], default=0.0)
        ),
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
