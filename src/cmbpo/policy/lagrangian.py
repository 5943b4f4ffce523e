"""The multipliers of TRPO-L, PPO-L and SAC-L, one a constraint, and the penalised advantages."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from cmbpo.trajectory import Samples

FIRST = 1.0
"""Multipliers before the first update."""
LEARNING_RATE = 0.05
"""Adam's step size for ξ."""
SMOOTHING = 0.8
"""Share of Δ̄ that stays in one update."""
MOST_EXCESS = 2.0
"""Largest (J_c − d)/d that a multiplier is told: at first every step may cost."""


class AdamMultiplier(eqx.Module):
    """λ = softplus(ξ), with Adam's state for ξ; it weighs costs in their own units."""

    xi: Float[Array, " cost"]
    opt_state: optax.OptState

    @property
    def value(self) -> Float[Array, " cost"]:
        """λ ≥ 0, one for each constraint."""
        return jax.nn.softplus(self.xi)


class PidMultiplier(eqx.Module):
    """λ from a PID controller on the excess (Stooke et al. 2020); it weighs costs in their σ."""

    value: Float[Array, " cost"]
    integral: Float[Array, " cost"]
    smooth: Float[Array, " cost"]
    past: Float[Array, "delay cost"]


Multiplier = AdamMultiplier | PidMultiplier


def start(rule: Literal["adam", "pid"], n_cost: int) -> Multiplier:
    """The multipliers of a rule before the first update."""
    return {"adam": adam_multiplier, "pid": pid_multiplier}[rule](n_cost)


def follow(
    multiplier: Multiplier,
    cost_excess: Float[Array, " cost"],
    target: Float[Array, " cost"],
    *,
    gains: tuple[float, float, float],
) -> Multiplier:
    """The multipliers after an update with J_c − d and d, by the rule they were started with."""
    if isinstance(multiplier, AdamMultiplier):
        return ascend(multiplier, cost_excess)
    return control(multiplier, relative(cost_excess, target), gains=gains)


def relative(
    cost_excess: Float[Array, " cost"], target: Float[Array, " cost"], *, least: float = 1e-6
) -> Float[Array, " cost"]:
    """(J_c − d)/d, at most `MOST_EXCESS`: the same in any unit of cost.

    A limit below `least` counts as that, because it is divided by. With a limit of 0, any cost is
    the most there is to say.
    """
    return jnp.minimum(cost_excess / jnp.maximum(target, least), MOST_EXCESS)


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
    smoothing: float = SMOOTHING,
) -> PidMultiplier:
    """One step of the controller, Δ = (J_c − d)/d, Δ̄ its exponential average.

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


def penalise(samples: Samples, multiplier: Multiplier) -> Samples:
    """Samples with the advantage (A − Σᵢ λᵢ A_c,ᵢ / uᵢ) / (1 + Σᵢ λᵢ), A in units of its σ.

    Advantages shrink while a policy grows surer, those of reward and cost alike, but μ of J − μ·J_c
    does not: with u = 1, Adam's, λ is μ/σ and has to grow without end. With u = σ_c, the PID's, it
    is μ·σ_c/σ, of the order of 1 in any units of reward and cost (Stooke et al. 2020 compare
    gradients instead). Steps are then as long on either side of the limit; a multiplier that only
    integrates would swing. The divisor keeps the size of the objective, and of a first-order step,
    whatever λ is.
    """
    cost, value = samples.cost_advantage, multiplier.value
    if isinstance(multiplier, PidMultiplier):
        cost = cost / jnp.maximum(_deviation(cost, samples.valid), 1e-8)
    penalised = (samples.advantage - cost @ value) / (1.0 + value.sum())
    return eqx.tree_at(lambda s: s.advantage, samples, penalised)


def _deviation(
    x: Float[Array, "*batch cost"], valid: Bool[Array, "*batch"]
) -> Float[Array, "*one cost"]:
    weight = (valid / jnp.maximum(valid.sum(), 1))[..., None]
    axes = tuple(range(valid.ndim))
    centred = x - jnp.sum(weight * x, axis=axes, keepdims=True)
    return jnp.sqrt(jnp.sum(weight * centred**2, axis=axes, keepdims=True))
