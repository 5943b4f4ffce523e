"""CMBPO's policy update: a constrained trust-region step on real and imagined samples.

That the samples are mixed is the training loop's doing (section IV-B of the paper); the step is
CPO's as printed, or the barrier step, which holds its limit better.
"""

from jaxtyping import Array, PRNGKeyArray

from cmbpo.algorithms import cpo
from cmbpo.algorithms.update import (
    Algorithm,
    Constraint,
    PolicyStep,
    by_trust_region,
    nothing_recovers,
    region,
)
from cmbpo.networks import Policy
from cmbpo.policy.trust_region import barrier_step
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Samples


def improve(
    policy: Policy,
    recovering: Array,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, Array, PolicyStep]:
    """CPO's step, or the barrier step; the state is which constraints are in recovery."""
    s = settings.trust_region
    if s.step == "cpo":
        policy, _, step = cpo.improve(
            policy, None, samples, constraint, settings=settings, horizon=horizon, key=key
        )
        return policy, recovering, step
    policy, recovering, report = barrier_step(
        policy,
        samples,
        constraint.excess,
        constraint.target,
        recovering,
        region(settings, horizon),
        cost_gain=s.cost_gain,
        hysteresis=s.hysteresis,
    )
    return policy, recovering, by_trust_region(report)


ALGORITHM = Algorithm(nothing_recovers, improve)
