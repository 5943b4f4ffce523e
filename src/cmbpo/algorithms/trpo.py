"""TRPO: a trust-region step on the reward alone; what it costs is only noted."""

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
from cmbpo.policy.trust_region import trust_region_step
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
    """As much reward as the trust region holds."""
    del constraint, key
    policy, report = trust_region_step(policy, samples, region(settings, horizon))
    return policy, state, by_trust_region(report)


ALGORITHM = Algorithm(no_state, improve)
