"""TRPO-L: a trust-region step on advantages that multipliers penalise."""

from dataclasses import replace

from jaxtyping import PRNGKeyArray

from cmbpo.algorithms.update import Algorithm, Constraint, PolicyStep, by_trust_region, region
from cmbpo.networks import Policy
from cmbpo.policy import lagrangian
from cmbpo.policy.trust_region import trust_region_step
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Samples


def start(policy: Policy, n_cost: int, settings: TrainSettings) -> lagrangian.Multiplier:
    """The multipliers before the first update."""
    del policy
    return lagrangian.start(settings.lagrangian.rule, n_cost)


def improve(
    policy: Policy,
    multiplier: lagrangian.Multiplier,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, lagrangian.Multiplier, PolicyStep]:
    """The multipliers first, then the step on what they make of the advantages."""
    del key
    gains = settings.lagrangian.gains
    multiplier = lagrangian.follow(multiplier, constraint.excess, constraint.target, gains=gains)
    penalised = lagrangian.penalise(samples, multiplier)
    policy, report = trust_region_step(policy, penalised, region(settings, horizon))
    return policy, multiplier, replace(by_trust_region(report), multiplier=multiplier.value)


ALGORITHM = Algorithm(start, improve)
