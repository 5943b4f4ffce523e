"""The phases of an update that learns from a replay buffer, as compiled programs."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cmbpo.algorithms import sac_lagrangian
from cmbpo.algorithms.sac_lagrangian import Batch, Pressure, SoftLearner, SoftStep
from cmbpo.data import replay as replays
from cmbpo.data import ring
from cmbpo.data.replay import Replay, Transitions, Units
from cmbpo.policy.lagrangian import PidMultiplier
from cmbpo.settings.schema import TrainSettings
from cmbpo.training.learner import CostMeasure
from cmbpo.trajectory import Steps


class ReplayUpdate(eqx.Module):
    """What an update did: its gradient steps, λ in reward per cost, α, and the policy's deviation.

    α and the targets in `step` are in the units of the critics.
    """

    step: SoftStep
    multiplier: Float[Array, " cost"]
    temperature: Float[Array, ""]
    policy_std: Float[Array, ""]
    units: Units


# The buffer is the largest thing in memory: it is donated, so that rows are written in place.
@partial(jax.jit, donate_argnames="replay")
def remember(replay: Replay, real: Steps) -> Replay:
    """The buffer with these real steps."""
    return replays.add(replay, real)


next_to_go = jax.jit(ring.next_to_go, static_argnames="rows")
put_back = jax.jit(ring.put_back)


@partial(jax.jit, static_argnames=("settings", "horizon", "real_steps"))
def learn(
    learner: SoftLearner,
    multiplier: PidMultiplier,
    replay: Replay,
    cost: CostMeasure,
    target: Float[Array, " cost"],
    key: PRNGKeyArray,
    *,
    settings: TrainSettings,
    horizon: int,
    real_steps: int,
) -> tuple[SoftLearner, PidMultiplier, ReplayUpdate]:
    """The multipliers first, then the gradient steps for so many real steps, all in one program."""
    multiplier = sac_lagrangian.follow(
        multiplier, cost.used, target, horizon=horizon, gains=settings.lagrangian.gains
    )
    units = replays.units(replay)
    pressure = Pressure(multiplier.value, cost.used / horizon / units.cost)

    def draw(key: PRNGKeyArray) -> Batch:
        return _in_units(replay.sample(settings.replay.batch_size, key=key), units)

    learner, step = sac_lagrangian.improve(
        learner, draw, pressure, settings=settings, real_steps=real_steps, key=key
    )
    states = replay.sample(settings.replay.batch_size, key=key).obs
    update = ReplayUpdate(
        step=step,
        multiplier=multiplier.value * units.reward / units.cost,
        temperature=jnp.exp(learner.log_temperature),
        policy_std=jnp.exp(jax.vmap(learner.policy)(states).log_std).mean(),
        units=units,
    )
    return learner, multiplier, update


def _in_units(rows: Transitions, units: Units) -> Batch:
    signal = jnp.concatenate(
        [rows.reward[:, None] / units.reward, -rows.cost / units.cost[None, :]], axis=1
    )
    return Batch(rows.obs, rows.act, rows.next_obs, signal, terminated=rows.terminated)


def made(learner: SoftLearner, real: Steps) -> dict[str, PyTree]:
    """What an update makes, in the order it is made."""
    return {
        "the real steps": (real.obs, real.act),
        "the critics": learner.critics,
        "the policy": learner.policy,
    }
