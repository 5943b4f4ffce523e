"""The learned side of CMBPO: its data, its ensemble, its limits, and what an update imagines."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cmbpo import archive as archives
from cmbpo import dynamics, head_quality, heads, mixing, rollout, uncertainty
from cmbpo.archive import Archive
from cmbpo.collect import Steps
from cmbpo.dynamics import Ensemble
from cmbpo.early_stopping import Course
from cmbpo.heads import Heads
from cmbpo.learned_world import KnownTask, World
from cmbpo.networks import Policy
from cmbpo.settings import RolloutSettings, TrainSettings
from cmbpo.starts import past_policies
from cmbpo.uncertainty import Limits

QUALITY = ("Model/HoldoutMSE", "Model/TrainLoss", "Model/Epochs", "Model/RankCorrelation")
ROOM = 1.3
"""Imagined rows that there is room for, per row wanted: a step that is cut off leaves none."""


class Model(eqx.Module):
    """What is learned of the world.

    `heads` judge what the task does not know of its costs and ends; None where it knows both.
    `disagreement` is D̄ of the newest policy, `fresh` counts the real steps since the last fit, and
    `quality` says how that fit went.
    """

    ensemble: Ensemble
    opt_state: PyTree
    heads: Heads | None
    head_opt_state: PyTree
    archive: Archive
    limits: Limits
    disagreement: Float[Array, ""]
    fresh: Int[Array, ""]
    quality: dict[str, Array]


def start(
    n_obs: int,
    n_act: int,
    n_cost: int,
    settings: TrainSettings,
    *,
    knows_cost: bool,
    knows_termination: bool,
    key: PRNGKeyArray,
) -> Model:
    """An untrained ensemble and an empty archive; limits that allow nothing.

    What the task does not know is to be learned as well.
    """
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
    judges = None
    if not (knows_cost and knows_termination):
        judges = Heads(
            n_obs,
            n_act,
            n_cost=0 if knows_cost else n_cost,
            ends=not knows_termination,
            hidden=s.head_hidden,
            members=s.members,
            key=jax.random.fold_in(key, 1),
        )
    zero = jnp.zeros(())
    quality: dict[str, Array] = dict.fromkeys(QUALITY, zero)
    if judges is not None:
        quality |= head_quality.columns(judges, head_quality.unknown(judges))
    return Model(
        ensemble=ensemble,
        opt_state=dynamics.start_optimiser(ensemble),
        heads=judges,
        head_opt_state=None if judges is None else heads.start_optimiser(judges),
        archive=archives.empty(settings.archive_size, n_obs, n_act, n_cost),
        limits=Limits(zero, zero, zero),
        disagreement=zero,
        fresh=jnp.zeros((), jnp.int32),
        quality=quality,
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


@partial(jax.jit, static_argnames="settings", donate_argnames=("learned", "opt_states"))
def _fit(
    learned: tuple[Ensemble, Heads | None],
    opt_states: tuple[PyTree, PyTree],
    archive: Archive,
    max_epochs: Int[Array, ""],
    settings: TrainSettings,
    key: PRNGKeyArray,
) -> tuple[tuple[Ensemble, Heads | None], tuple[PyTree, PyTree], dict[str, Array]]:
    s = settings.dynamics
    (ensemble, judges), (opt_state, head_opt_state) = learned, opt_states
    course = Course(
        learning_rate=s.learning_rate,
        batch_size=s.batch_size,
        weight_decay=s.weight_decay,
        holdout=s.holdout,
        max_holdout=s.max_holdout,
        subsample=s.subsample,
        patience=s.patience,
    )
    held = {"holdout": s.holdout, "max_holdout": s.max_holdout}
    ensemble, opt_state, report = dynamics.fit(
        ensemble, opt_state, archive, course, max_epochs=max_epochs, key=key
    )
    trust = uncertainty.reliability(ensemble, archive, **held)
    found = (
        report.holdout_error[ensemble.elites].mean(),
        report.train_loss.mean(),
        report.epochs.max().astype(jnp.float32),
        trust.rank_correlation,
    )
    quality: dict[str, Array] = dict(zip(QUALITY, found, strict=True))
    if judges is not None:
        key_heads = jax.random.fold_in(key, 1)
        judges, head_opt_state = heads.fit(
            judges, head_opt_state, archive, course, max_epochs=max_epochs, key=key_heads
        )
        judges, judged = head_quality.calibrate(judges, ensemble, archive, **held)
        quality |= head_quality.columns(judges, judged)
    return (ensemble, judges), (opt_state, head_opt_state), quality


def fit(model: Model, settings: TrainSettings, *, epochs: int, key: PRNGKeyArray) -> Model:
    """Train the ensemble, and the heads, on the archive for at most `epochs` passes."""
    (ensemble, judges), (opt_state, head_opt_state), quality = _fit(
        (model.ensemble, model.heads),
        (model.opt_state, model.head_opt_state),
        model.archive,
        jnp.array(epochs),
        settings,
        key,
    )
    return replace(
        model,
        ensemble=ensemble,
        opt_state=opt_state,
        heads=judges,
        head_opt_state=head_opt_state,
        fresh=jnp.zeros_like(model.fresh),
        quality=quality,
    )


def _world(model: Model, s: RolloutSettings, task: KnownTask) -> World:
    return World(model.ensemble, model.heads, task, s.cost_over_members, s.end_over_members)


@partial(jax.jit, static_argnames=("settings", "task"))
def calibrate(
    model: Model,
    policy: Policy,
    settings: TrainSettings,
    task: KnownTask,
    key: PRNGKeyArray,
) -> Model:
    """D̄₀ along imagined trajectories of h₀ steps, and the limits that follow from it."""
    s = settings.rollout
    key_starts, key_draw, key_probe = jax.random.split(key, 3)
    starts = past_policies(model.archive, policy, temperature=s.temperature, key=key_starts)
    obs = model.archive.obs[starts.draw(model.archive, (s.probe,), key=key_draw)]
    everything = jnp.array(jnp.inf)
    found = rollout.probe(
        _world(model, s, task),
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
    task: KnownTask,
    horizon: int,
    key: PRNGKeyArray,
) -> tuple[Steps, Float[Array, ""], Float[Array, " cost"], dict[str, Array]]:
    """`rows` imagined steps of the policy, D̄, the imagined cost per step, and what to log."""
    s = settings.rollout
    key_starts, key_draw, key_probe, key_steps = jax.random.split(key, 4)
    world = _world(model, s, task)
    starts = past_policies(model.archive, policy, temperature=s.temperature, key=key_starts)
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
