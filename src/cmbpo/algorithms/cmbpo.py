"""CMBPO's policy update: a constrained trust-region step on real and imagined samples.

That the samples are mixed is the training loop's doing (section IV-B of the paper); the step is
CPO's as printed, the barrier step, which holds its limit better, or the steered one, which holds it
in the mean.
"""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from cmbpo.algorithms import cpo
from cmbpo.algorithms.update import (
    Algorithm,
    Constraint,
    PolicyStep,
    State,
    by_trust_region,
    region,
)
from cmbpo.networks import Policy
from cmbpo.policy.cost_control import no_cost_seen, steer
from cmbpo.policy.trust_region import barrier_step, steered_step
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Samples


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
    """CPO's step, the barrier step, whose state is which constraints are in recovery, or the
    steered one, whose state is its controller."""
    s = settings.trust_region
    if s.step == "cpo":
        policy, _, step = cpo.improve(
            policy, None, samples, constraint, settings=settings, horizon=horizon, key=key
        )
        return policy, state, step
    in_region = region(settings, horizon)
    if s.step == "steered":
        state, share = steer(
            state,
            measured=constraint.target + constraint.excess,
            spent=constraint.spent,
            episodes=constraint.episodes,
            aim=constraint.target,
        )
        # Above 0 the integral answers for costs that were paid, whatever J_c is just now.
        room = jnp.where(state.integral <= 0.0, -constraint.excess, 0.0)
        policy, share, report = steered_step(
            policy, samples, share, room, constraint.target, in_region
        )
        return policy, state, replace(by_trust_region(report), share=share)
    policy, state, report = barrier_step(
        policy,
        samples,
        constraint.excess,
        constraint.target,
        state,
        in_region,
        cost_gain=s.cost_gain,
        hysteresis=s.hysteresis,
    )
    return policy, state, by_trust_region(report)


def start(policy: Policy, n_cost: int, settings: TrainSettings) -> State:
    """No constraint is in recovery, and no cost was seen yet."""
    del policy
    steered = settings.trust_region.step == "steered"
    return no_cost_seen(n_cost) if steered else jnp.zeros(n_cost, bool)


ALGORITHM = Algorithm(start, improve)
