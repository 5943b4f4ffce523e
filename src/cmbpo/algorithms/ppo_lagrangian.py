"""PPO-L: PPO's clipped objective on advantages that multipliers penalise."""

from typing import Any

from jaxtyping import PRNGKeyArray

from cmbpo.algorithms.update import Algorithm, Constraint, PolicyStep
from cmbpo.networks import Policy
from cmbpo.policy import clipped, lagrangian
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Samples

State = tuple[lagrangian.Multiplier, Any]
"""The multipliers, and Adam's state for the policy."""


def start(policy: Policy, n_cost: int, settings: TrainSettings) -> State:
    """Both before the first update."""
    return lagrangian.start(settings.lagrangian.rule, n_cost), clipped.start_optimiser(policy)


def improve(
    policy: Policy,
    state: State,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, State, PolicyStep]:
    """The multipliers first, then passes of Adam on what they make of the advantages."""
    multiplier, opt_state = state
    gains, s = settings.lagrangian.gains, settings.clipped
    multiplier = lagrangian.follow(multiplier, constraint.excess, constraint.target, gains=gains)
    policy, opt_state, report = clipped.clipped_step(
        policy,
        opt_state,
        lagrangian.penalise(samples, multiplier),
        horizon=float(horizon),
        learning_rate=s.learning_rate,
        iterations=s.iterations,
        minibatches=s.minibatches,
        stop_kl=s.stop_kl,
        key=key,
    )
    step = PolicyStep(
        kl=report.kl,
        reward_change=report.reward_change,
        cost_change=report.cost_change,
        passes=report.passes,
        loss=report.loss,
        multiplier=multiplier.value,
    )
    return policy, (multiplier, opt_state), step


ALGORITHM = Algorithm(start, improve)
