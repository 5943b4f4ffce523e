"""What every algorithm is to the training loop: a state to start with, and an update of the policy.

What an update did is a record with names and units; the log is written from it, and nothing is read
back from the log.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from cmbpo.networks import Policy
from cmbpo.policy.trust_region import Region, TrustRegionReport
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings

State = Any


class Constraint(eqx.Module):
    """J_c − d and d, for each cost and per horizon; d is what the step aims at.

    Then what this update's real steps alone cost, and how many episodes they are worth.
    """

    excess: Float[Array, " cost"]
    target: Float[Array, " cost"]
    spent: Float[Array, " cost"]
    episodes: Float[Array, ""]


class PolicyStep(eqx.Module):
    """What an update did to the policy, as far as every algorithm can say it.

    `kl` is the mean KL(π_new ‖ π_old); `reward_change` (per step, in standard units) and
    `cost_change` (per horizon) are what the surrogate predicts. Then what only some can say: how a
    trust-region step was found, the passes and the loss of a clipped one, the multipliers, the
    shares of the step that lower each cost.
    """

    kl: Float[Array, ""]
    reward_change: Float[Array, ""]
    cost_change: Float[Array, " cost"]
    trust_region: TrustRegionReport | None = None
    passes: Int[Array, ""] | None = None
    loss: Float[Array, ""] | None = None
    multiplier: Float[Array, " cost"] | None = None
    share: Float[Array, " cost"] | None = None


@dataclass(frozen=True)
class Algorithm:
    """One algorithm: `start` makes the state that `improve` keeps between updates.

    `start(policy, n_cost, settings)` and
    `improve(policy, state, samples, constraint, settings=, horizon=, key=)`, which returns the new
    policy, the new state and a `PolicyStep`.
    """

    start: Callable[[Policy, int, TrainSettings], State]
    improve: Callable[..., tuple[Policy, State, PolicyStep]]


def algorithm(name: str) -> Algorithm:
    """The algorithm of this name, from the module that its row says."""
    module = ALGORITHMS[name].module
    found = getattr(importlib.import_module(module), "ALGORITHM", None)
    if not isinstance(found, Algorithm):
        raise ValueError(
            f"the module {module!r} of the algorithm {name} has {found!r:.80} as ALGORITHM;"
            " allowed: cmbpo.algorithms.update.Algorithm(start, improve)"
        )
    return found


def region(settings: TrainSettings, horizon: int) -> Region:
    """The trust region that the settings ask for, with costs counted over `horizon` steps."""
    s = settings.trust_region
    return Region(horizon=float(horizon), max_kl=s.max_kl, fisher_share=s.fisher_share)


def no_state(policy: Policy, n_cost: int, settings: TrainSettings) -> None:
    """The start of an algorithm that keeps nothing between updates."""
    del policy, n_cost, settings


def by_trust_region(report: TrustRegionReport) -> PolicyStep:
    """The record of a trust-region step."""
    return PolicyStep(
        kl=report.kl,
        reward_change=report.reward_change,
        cost_change=report.cost_change,
        trust_region=report,
    )
