"""The algorithms as rows of a table: where the data come from × how the policy is updated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cmbpo import clipped, lagrangian
from cmbpo.advantage import Samples
from cmbpo.networks import Policy
from cmbpo.settings import LagrangianSettings, TrainSettings
from cmbpo.trust_region import Region, Report, barrier_step, cpo_step, trust_region_step

Metrics = dict[str, Array]
State = Any


@dataclass(frozen=True)
class Constraint:
    """J_c − d and d, for each cost and per horizon; d is what the step aims at."""

    excess: Float[Array, " cost"]
    target: Float[Array, " cost"]


@dataclass(frozen=True)
class Algorithm:
    """One row: `improve` is the update, `start` makes the state that it keeps between calls."""

    data: Literal["real", "real and imagined"]
    start: Callable[[Policy, int, TrainSettings], State]
    improve: Callable[..., tuple[Policy, State, Metrics]]


def _region(settings: TrainSettings, horizon: int) -> Region:
    s = settings.trust_region
    return Region(
        horizon=float(horizon),
        max_kl=s.max_kl,
        cg_iterations=s.cg_iterations,
        cg_damping=s.cg_damping,
        fisher_share=s.fisher_share,
        backtrack=s.backtrack,
        backtracks=s.backtracks,
    )


def _step_metrics(report: Report) -> Metrics:
    return {
        "Misc/OptimCase": report.case,
        "Misc/AcceptanceStep": jnp.where(report.accepted, report.backtracks + 1, 0),
        "Misc/FinalStepNorm": report.step_norm,
        "Misc/gradient_norm": report.gradient_norm,
        "Misc/cost_gradient_norm": report.cost_gradient_norm,
        "Misc/q": report.q,
        "Misc/r": report.r,
        "Misc/s": report.s,
        "Misc/Lambda_star": report.lam,
        "Misc/Nu_star": report.nu,
        "Misc/CgResidual": report.cg_residual,
        "Train/KL": report.kl,
        "Train/RewardChange": report.reward_change,
        "Constraint/PredictedChange": report.cost_change,
    }


def _no_state(policy: Policy, n_cost: int, settings: TrainSettings) -> None:
    del policy, n_cost, settings


def _nothing_recovers(policy: Policy, n_cost: int, settings: TrainSettings) -> Array:
    del policy, settings
    return jnp.zeros(n_cost, bool)


def unconstrained(
    policy: Policy,
    state: None,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, None, Metrics]:
    """TRPO: the reward alone."""
    del constraint, key
    policy, report = trust_region_step(policy, samples, _region(settings, horizon))
    return policy, state, _step_metrics(report)


def constrained(
    policy: Policy,
    state: Array,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, Array, Metrics]:
    """CPO's step, or the barrier step; the state is which constraints are in recovery."""
    del key
    region, s = _region(settings, horizon), settings.trust_region
    if s.step == "cpo":
        policy, report = cpo_step(policy, samples, constraint.excess, region)
    else:
        policy, state, report = barrier_step(
            policy,
            samples,
            constraint.excess,
            constraint.target,
            state,
            region,
            barrier_weight=s.barrier_weight,
            cost_gain=s.cost_gain,
            hysteresis=s.hysteresis,
        )
    return policy, state, _step_metrics(report)


def _first_multiplier(n_cost: int, s: LagrangianSettings) -> lagrangian.Multiplier:
    make = {"adam": lagrangian.adam_multiplier, "pid": lagrangian.pid_multiplier}[s.rule]
    return make(s.first, n_cost)


def _multiplier(
    multiplier: lagrangian.Multiplier, excess: Float[Array, " cost"], s: LagrangianSettings
) -> lagrangian.Multiplier:
    if isinstance(multiplier, lagrangian.AdamMultiplier):
        return lagrangian.ascend(multiplier, excess, learning_rate=s.learning_rate)
    return lagrangian.control(multiplier, excess, gains=s.gains)


def _start_trpo_lagrangian(
    policy: Policy, n_cost: int, settings: TrainSettings
) -> lagrangian.Multiplier:
    del policy
    return _first_multiplier(n_cost, settings.lagrangian)


def trpo_lagrangian(
    policy: Policy,
    state: lagrangian.Multiplier,
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, lagrangian.Multiplier, Metrics]:
    """A trust-region step on advantages that the multipliers penalise."""
    del key
    state = _multiplier(state, constraint.excess, settings.lagrangian)
    penalised = lagrangian.penalise(samples, state.value)
    policy, report = trust_region_step(policy, penalised, _region(settings, horizon))
    return policy, state, _step_metrics(report) | {"Metrics/LagrangeMultiplier": state.value}


def _start_ppo_lagrangian(
    policy: Policy, n_cost: int, settings: TrainSettings
) -> tuple[lagrangian.Multiplier, Any]:
    return _first_multiplier(n_cost, settings.lagrangian), clipped.init(policy)


def ppo_lagrangian(
    policy: Policy,
    state: tuple[lagrangian.Multiplier, Any],
    samples: Samples,
    constraint: Constraint,
    *,
    settings: TrainSettings,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Policy, tuple[lagrangian.Multiplier, Any], Metrics]:
    """PPO's clipped objective on advantages that the multipliers penalise."""
    multiplier, opt_state = state
    multiplier = _multiplier(multiplier, constraint.excess, settings.lagrangian)
    s = settings.clipped
    policy, opt_state, report = clipped.clipped_step(
        policy,
        opt_state,
        lagrangian.penalise(samples, multiplier.value),
        horizon=float(horizon),
        clip=s.clip,
        learning_rate=s.learning_rate,
        iterations=s.iterations,
        minibatches=s.minibatches,
        stop_kl=s.stop_kl,
        key=key,
    )
    metrics = {
        "Train/StopIter": report.passes,
        "Loss/Loss_pi": report.loss,
        "Train/KL": report.kl,
        "Train/RewardChange": report.reward_change,
        "Constraint/PredictedChange": report.cost_change,
        "Metrics/LagrangeMultiplier": multiplier.value,
    }
    return policy, (multiplier, opt_state), metrics


ALGORITHMS = {
    "trpo": Algorithm("real", _no_state, unconstrained),
    "trpo-lag": Algorithm("real", _start_trpo_lagrangian, trpo_lagrangian),
    "ppo-lag": Algorithm("real", _start_ppo_lagrangian, ppo_lagrangian),
    "cpo": Algorithm("real", _nothing_recovers, constrained),
    "cmbpo": Algorithm("real and imagined", _nothing_recovers, constrained),
}
