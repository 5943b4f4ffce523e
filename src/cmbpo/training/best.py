"""The best policy so far: of those that kept every limit, the one with the highest return."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cmbpo import columns
from cmbpo.networks import Actor
from cmbpo.training.rows import Row


@dataclass(frozen=True)
class Best:
    """A policy, and what is known of it: nothing while no policy has kept the limits."""

    policy: Actor
    facts: Mapping[str, Any]

    @classmethod
    def none(cls, policy: Actor) -> "Best":
        """No policy yet; this one stands in for the shapes."""
        return cls(policy, {})

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Best":
        """What `state` returned."""
        return cls(state["policy"], json.loads(state["facts"]))

    def state(self) -> dict[str, Any]:
        """Policy and facts, as a checkpoint takes them."""
        return {"policy": self.policy, "facts": json.dumps(self.facts)}

    def or_of(self, row: Row, policy: Actor, *, horizon: int | float | None) -> "Best":
        """This one, or the policy that acted in the update with this row, where it was better.

        Its return and costs are the means over the newest whole episodes. A cost counts per
        `horizon` steps, as the limits do: an episode that ended early is not cheap for being short.
        """
        length = float(row[columns.LENGTH])
        share = horizon / length if horizon and length else 1.0
        costs = [share * float(cost) for cost in columns.each(row, columns.COST).values()]
        limits = map(float, columns.each(row, columns.LIMIT).values())
        within = all(c <= d for c, d in zip(costs, limits, strict=True))
        value = float(row[columns.RETURN])
        # not a number before the first whole episode, and then not more than anything
        if not within or not value > self.facts.get("return", float("-inf")):
            return self
        update, steps = int(row[columns.UPDATE]), int(row[columns.ENV_STEPS])
        return Best(policy, {"update": update, "env_steps": steps, "return": value, "cost": costs})
