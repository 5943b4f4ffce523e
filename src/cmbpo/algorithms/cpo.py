"""CPO: the constrained trust-region step on real samples of the newest policy."""

from jaxtyping import PRNGKeyArray

from cmbpo.algorithms.update import (
    Algorithm,
    Constraint,
    PolicyStep,
    by_trust_region,
    no_state,
    region,
)
from cmbpo.networks import Policy
from cmbpo.policy.trust_region import cpo_step
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Samples


def improve(
    policy: Policy,
    state: None,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, None, PolicyStep]:
    """Problem (9) of the paper, with CPO's dual and its recovery."""
    del key
    in_region = region(settings, horizon)
    policy, report = cpo_step(policy, samples, constraint.excess, in_region)
    return policy, state, by_trust_region(report)


ALGORITHM = Algorithm(no_state, improve)
