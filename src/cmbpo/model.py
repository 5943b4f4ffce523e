"""The learned side of CMBPO: its data, its ensemble, its limits, and what an update imagines."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cmbpo import archive as archives
from cmbpo import dynamics, mixing, rollout, uncertainty
from cmbpo.archive import Archive
from cmbpo.collect import Steps
from cmbpo.dynamics import Ensemble
from cmbpo.networks import Policy
from cmbpo.settings import TrainSettings
from cmbpo.uncertainty import Limits

QUALITY = ("Model/HoldoutMSE", "Model/TrainLoss", "Model/Epochs", "Model/RankCorrelation")
ROOM = 1.3
"""Imagined rows that there is room for, per row wanted: a step that is cut off leaves none."""


class Model(eqx.Module):
    """What is learned of the world.

    `disagreement` is D̄ of the newest policy, `fresh` counts the real steps since the last fit, and
    `quality` says how that fit went.
    """

    ensemble: Ensemble
    opt_state: PyTree
    archive: Archive
    limits: Limits
    disagreement: Float[Array, ""]
    fresh: Int[Array, ""]
    quality: dict[str, Array]


def start(
    n_obs: int, n_act: int, n_cost: int, settings: TrainSettings, *, key: PRNGKeyArray
) -> Model:
    """An untrained ensemble and an empty archive; limits that allow nothing."""
    s = settings.dynamics
    ensemble = Ensemble(
        n_obs,
        n_act,
        hidden=s.hidden,
        members=s.members,
        elites=s.elites,
        variance_loss=s.variance_loss,
        layer_norm=s.layer_norm,
        key=key,
    )
    zero = jnp.zeros(())
    return Model(
        ensemble=ensemble,
        opt_state=dynamics.start_optimiser(ensemble),
        archive=archives.empty(settings.archive_size, n_obs, n_act, n_cost),
        limits=Limits(zero, zero, zero),
        disagreement=zero,
        fresh=jnp.zeros((), jnp.int32),
        quality=dict.fromkeys(QUALITY, zero),
    )


@partial(jax.jit, donate_argnames="archive")
def _add(archive: Archive, real: Steps, policy: Policy, epoch: Int[Array, ""]) -> Archive:
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), real)
    behaviour = jax.vmap(policy)(rows.obs)
    return archives.add(archive, rows, behaviour, epoch)


def remember(model: Model, real: Steps, policy: Policy, epoch: int) -> Model:
    """Put real steps of the policy number `epoch` into the archive."""
    archive = _add(model.archive, real, policy, jnp.array(epoch))
    fresh = model.fresh + jnp.sum(real.valid)
    return replace(model, archive=archive, fresh=fresh)


@partial(jax.jit, static_argnames="settings", donate_argnames=("ensemble", "opt_state"))
def _fit(
    ensemble: Ensemble,
    opt_state: PyTree,
    archive: Archive,
    max_epochs: Int[Array, ""],
    settings: TrainSettings,
    key: PRNGKeyArray,
) -> tuple[Ensemble, PyTree, dict[str, Array]]:
    s = settings.dynamics
    ensemble, opt_state, report = dynamics.fit(
        ensemble,
        opt_state,
        archive,
        max_epochs=max_epochs,
        learning_rate=s.learning_rate,
        batch_size=s.batch_size,
        weight_decay=s.weight_decay,
        holdout=s.holdout,
        max_holdout=s.max_holdout,
        subsample=s.subsample,
        patience=s.patience,
        key=key,
    )
    trust = uncertainty.reliability(ensemble, archive, holdout=s.holdout, max_holdout=s.max_holdout)
    found = (
        report.holdout_error[ensemble.elites].mean(),
        report.train_loss.mean(),
        report.epochs.max().astype(jnp.float32),
        trust.rank_correlation,
    )
    return ensemble, opt_state, dict(zip(QUALITY, found, strict=True))


def fit(model: Model, settings: TrainSettings, *, epochs: int, key: PRNGKeyArray) -> Model:
    """Train the ensemble on the archive for at most `epochs` passes."""
    ensemble, opt_state, quality = _fit(
        model.ensemble, model.opt_state, model.archive, jnp.array(epochs), settings, key
    )
    fresh = jnp.zeros_like(model.fresh)
    return replace(model, ensemble=ensemble, opt_state=opt_state, fresh=fresh, quality=quality)


@partial(jax.jit, static_argnames=("settings", "task"))
def calibrate(
    model: Model,
    policy: Policy,
    settings: TrainSettings,
    task: rollout.KnownTask,
    key: PRNGKeyArray,
) -> Model:
    """D̄₀ along imagined trajectories of h₀ steps, and the limits that follow from it."""
    s = settings.rollout
    key_starts, key_draw, key_probe = jax.random.split(key, 3)
    starts = rollout.past_policies(model.archive, policy, temperature=s.temperature, key=key_starts)
    obs = model.archive.obs[starts.draw(model.archive, (s.probe,), key=key_draw)]
    everything = jnp.array(jnp.inf)
    found = rollout.probe(
        rollout.World(model.ensemble, task, s.cost_over_members),
        policy,
        obs,
        rollout.Cut(jnp.array(s.first_horizon), everything, everything),
        quantile=s.quantile,
        max_horizon=s.first_horizon,
        key=key_probe,
    )
    limits = uncertainty.calibrate(
        found.disagreement,
        first_alpha=settings.mixing.first_alpha,
        first_horizon=s.first_horizon,
    )
    first = model.limits.reference == 0.0
    kept = Limits(
        jnp.where(first, limits.reference, model.limits.reference),
        jnp.where(first, limits.mean, model.limits.mean),
        limits.accumulated,
    )
    disagreement = jnp.where(first, limits.reference, model.disagreement)
    return replace(model, limits=kept, disagreement=disagreement)


@partial(jax.jit, static_argnames=("settings", "task", "horizon"))
def imagine(
    model: Model,
    policy: Policy,
    rows: Int[Array, ""],
    update: Int[Array, ""],
    settings: TrainSettings,
    task: rollout.KnownTask,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Steps, Float[Array, ""], Float[Array, " cost"], dict[str, Array]]:
    """`rows` imagined steps of the policy, D̄, the imagined cost per step, and what to log."""
    s = settings.rollout
    key_starts, key_draw, key_probe, key_steps = jax.random.split(key, 4)
    world = rollout.World(model.ensemble, task, s.cost_over_members)
    starts = rollout.past_policies(model.archive, policy, temperature=s.temperature, key=key_starts)
    cut = rollout.cut_rule(
        s.cut,
        limit=model.limits.accumulated,
        max_horizon=s.max_horizon,
        schedule=s.schedule,
        update=update,
    )
    obs = model.archive.obs[starts.draw(model.archive, (s.probe,), key=key_draw)]
    found = rollout.probe(
        world, policy, obs, cut, quantile=s.quantile, max_horizon=s.max_horizon, key=key_probe
    )
    least = s.min_horizon if s.cut == "batch" else 1
    common = jnp.maximum(found.horizon, least)
    steps, seen = rollout.imagine(
        world,
        policy,
        model.archive,
        starts,
        replace(cut, horizon=common),
        rows=rows,
        steps=-int(-ROOM * settings.batch_size // s.lanes),
        lanes=s.lanes,
        key=key_steps,
    )
    metrics = {
        "Model/KL": found.disagreement,
        "Model/KLShare": found.disagreement / model.limits.reference,
        "Rollout/Length": seen.length,
        "Rollout/Horizon": common,
        "Rollout/Rows": seen.rows,
        "Rollout/RewardRate": seen.reward_rate,
        "Rollout/Terminated": seen.terminated,
        "Rollout/EffectivePolicies": starts.effective(),
        "Constraint/Model": horizon * seen.cost_rate,
    }
    return steps, found.disagreement, seen.cost_rate, metrics


def real_samples(model: Model, settings: TrainSettings, *, first: bool) -> tuple[float, int]:
    """α(π) and the real samples of the next update, in whole rounds of all copies."""
    s = settings.mixing
    alpha = s.first_alpha
    if not first:
        alpha = mixing.real_share(
            float(model.disagreement),
            float(model.limits.reference),
            rule=s.rule,
            first_alpha=s.first_alpha,
        )
    samples = mixing.real_samples(
        alpha,
        batch_size=settings.batch_size,
        min_real=s.min_real,
        max_real=s.max_real,
        granularity=settings.num_envs,
    )
    return samples / settings.batch_size, samples
