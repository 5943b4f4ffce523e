"""The multipliers of TRPO-L and PPO-L, one for each constraint, and the penalised advantages."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from cmbpo.trajectory import Samples

FIRST = 1.0
"""Multipliers before the first update."""
LEARNING_RATE = 0.05
"""Adam's step size for ξ."""


class AdamMultiplier(eqx.Module):
    """λ = softplus(ξ), with Adam's state for ξ."""

    xi: Float[Array, " cost"]
    opt_state: optax.OptState

    @property
    def value(self) -> Float[Array, " cost"]:
        """λ ≥ 0, one for each constraint."""
        return jax.nn.softplus(self.xi)


class PidMultiplier(eqx.Module):
    """λ from a PID controller on the cost excess (Stooke et al. 2020)."""

    value: Float[Array, " cost"]
    integral: Float[Array, " cost"]
    smooth: Float[Array, " cost"]
    past: Float[Array, "delay cost"]


Multiplier = AdamMultiplier | PidMultiplier


def start(rule: Literal["adam", "pid"], n_cost: int) -> Multiplier:
    """The multipliers of a rule before the first update."""
    return {"adam": adam_multiplier, "pid": pid_multiplier}[rule](n_cost)


def follow(
    multiplier: Multiplier, cost_excess: Float[Array, " cost"], *, gains: tuple[float, float, float]
) -> Multiplier:
    """The multipliers after an update with this excess, by the rule they were started with."""
    if isinstance(multiplier, AdamMultiplier):
        return ascend(multiplier, cost_excess)
    return control(multiplier, cost_excess, gains=gains)


def adam_multiplier(n_cost: int, *, first: float = FIRST) -> AdamMultiplier:
    """Multipliers that all start at `first` and follow `ascend`."""
    xi = jnp.full(n_cost, math.log(math.expm1(first)), dtype=float)
    return AdamMultiplier(xi, optax.scale_by_adam().init(xi))


def ascend(
    multiplier: AdamMultiplier,
    cost_excess: Float[Array, " cost"],
    *,
    learning_rate: float = LEARNING_RATE,
) -> AdamMultiplier:
    """One step of Adam on ξ·(J_c − d), upwards; `cost_excess` is J_c − d, per horizon.

    ξ's own gradient, not λ's, which vanishes where λ is near zero.
    """
    direction, opt_state = optax.scale_by_adam().update(cost_excess, multiplier.opt_state)
    xi = jax.tree.map(lambda x, d: x + learning_rate * d, multiplier.xi, direction)
    return AdamMultiplier(xi, opt_state)


def pid_multiplier(n_cost: int, *, first: float = FIRST, delay: int = 10) -> PidMultiplier:
    """Multipliers that all start at `first` and follow `control`."""
    start, zero = jnp.full(n_cost, first, dtype=float), jnp.zeros(n_cost)
    return PidMultiplier(start, start, zero, jnp.zeros((delay, n_cost)))


def control(
    multiplier: PidMultiplier,
    cost_excess: Float[Array, " cost"],
    *,
    gains: tuple[float, float, float],
    smoothing: float = 0.95,
) -> PidMultiplier:
    """One step of the controller, Δ = J_c − d per horizon, Δ̄ its exponential average.

    I ← (I + K_I Δ)₊,   λ = (K_P Δ̄ + I + K_D (Δ̄ − Δ̄ of `delay` updates ago)₊)₊
    """
    proportional, integral, derivative = gains
    # Clipped at zero while nothing costs: an integral that ran far below would be blind for long.
    total = jax.nn.relu(multiplier.integral + integral * cost_excess)
    smooth = smoothing * multiplier.smooth + (1.0 - smoothing) * cost_excess
    # Rising costs are answered early; falling ones must not loosen the hold.
    rise = jax.nn.relu(smooth - multiplier.past[0])
    return PidMultiplier(
        value=jax.nn.relu(proportional * smooth + total + derivative * rise),
        integral=total,
        smooth=smooth,
        past=jnp.concatenate([multiplier.past[1:], smooth[None, :]]),
    )


def penalise(samples: Samples, value: Float[Array, " cost"]) -> Samples:
    """Samples with the advantage (A − Σᵢ λᵢ A_c,ᵢ) / (1 + Σᵢ λᵢ).

    A and A_c are both per step. The divisor keeps the size of the objective, and of a first-order
    step, whatever λ is.
    """
    penalised = (samples.advantage - samples.cost_advantage @ value) / (1.0 + value.sum())
    return eqx.tree_at(lambda s: s.advantage, samples, penalised)
