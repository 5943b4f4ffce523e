"""The learned side of CMBPO: its data, its ensemble, its limits, and what an update imagines."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cmbpo.data import archive as archives
from cmbpo.data import ring
from cmbpo.data.archive import Archive
from cmbpo.data.start_states import Starts, past_policies
from cmbpo.model import learned_cost_quality, rollout
from cmbpo.model.disagreement import Limits, limits_from, reliability
from cmbpo.model.ensemble import Ensemble, begin_ensemble, fit_ensemble
from cmbpo.model.ensemble_fit import FitConfig, FitState, optimiser, unfinished
from cmbpo.model.learned_cost import CostModel, begin_cost_model, fit_cost_model
from cmbpo.model.learned_cost_quality import Quality
from cmbpo.model.model_errors import held_out_errors
from cmbpo.model.real_share import real_samples, real_share
from cmbpo.model.rollout import Imagination
from cmbpo.model.world import KnownTask, World
from cmbpo.networks import Policy
from cmbpo.settings.schema import RolloutSettings, TrainSettings
from cmbpo.trajectory import Steps

FIRST_EPOCHS = 200
"""Most epochs of the first fit."""
BETWEEN_REPORTS = 3.0
"""Seconds between two reports of a fit that somebody watches, about."""
COST_HIDDEN = (128, 128)
"""Widths of the networks that learn cost and end where the task does not know them."""
QUANTILE = 0.75
"""With one horizon for a batch: the quantile of trajectories' disagreement held against d_H."""
ROOM = 1.3
"""Imagined rows that there is room for, per row wanted: a step that is cut off leaves none."""


class ModelFit(eqx.Module):
    """How the last fit went: of the ensemble and, where there is one, of the cost model.

    `holdout_error` is the elites' mean squared error on held-out rows in standard units,
    `rank_correlation` says how well disagreement ranks such errors.
    """

    holdout_error: Float[Array, ""]
    train_loss: Float[Array, ""]
    epochs: Float[Array, ""]
    rank_correlation: Float[Array, ""]
    cost: Quality | None


class Model(eqx.Module):
    """What is learned of the world.

    `cost_model` judges what the task does not know of its costs and ends; None where it knows both.
    `disagreement` is D̄ of the newest policy, `fresh` counts the real steps since the last fit, and
    `quality` says how that fit went.
    """

    ensemble: Ensemble
    opt_state: PyTree
    cost_model: CostModel | None
    cost_opt_state: PyTree
    archive: Archive
    limits: Limits
    disagreement: Float[Array, ""]
    fresh: Int[Array, ""]
    quality: ModelFit


class Imagined(eqx.Module):
    """What an update imagined: the steps, D̄ and D̄/D̄₀ on the way, and what the batch looks like.

    `horizon` is the longest trajectory that the cut admits, `effective_policies` the number of past
    policies that start states come from.
    """

    steps: Steps
    disagreement: Float[Array, ""]
    disagreement_share: Float[Array, ""]
    horizon: Int[Array, ""]
    batch: Imagination
    effective_policies: Float[Array, ""]


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
    s = settings.ensemble
    ensemble = Ensemble(n_obs, n_act, hidden=s.hidden, members=s.members, elites=s.elites, key=key)
    cost_model = None
    if not (knows_cost and knows_termination):
        cost_model = CostModel(
            n_obs,
            n_act,
            n_cost=0 if knows_cost else n_cost,
            ends=not knows_termination,
            hidden=COST_HIDDEN,
            members=s.members,
            key=jax.random.fold_in(key, 1),
        )
    zero = jnp.zeros(())
    unknown = None if cost_model is None else learned_cost_quality.unknown(cost_model)
    return Model(
        ensemble=ensemble,
        opt_state=optimiser(ensemble.members),
        cost_model=cost_model,
        cost_opt_state=None if cost_model is None else optimiser(cost_model.members),
        archive=archives.empty(settings.archive_size, n_obs, n_act, n_cost),
        limits=Limits(zero, zero),
        disagreement=zero,
        fresh=jnp.zeros((), jnp.int32),
        quality=ModelFit(zero, zero, zero, zero, unknown),
    )


# The archive is the largest thing in memory: it is donated, so that rows are written in place.
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


_next_to_go = jax.jit(ring.next_to_go, static_argnames="rows")


def next_to_go(model: Model, real: Steps) -> Archive:
    """What `remember` is going to write over, for `put_back`."""
    return _next_to_go(model.archive, rows=real.valid.size)


def is_written_over(model: Model) -> bool:
    """Whether the archive was given to a later `remember`."""
    return ring.is_written_over(model.archive)


def put_back(model: Model, newer: Model, gone: Archive) -> Model:
    """The model as it was before `newer` remembered steps in place of the rows in `gone`."""
    return replace(model, archive=ring.put_back(newer.archive, gone))


Begun = tuple[FitState, FitState | None]
"""How far a fit is: of the ensemble and, where there is one, of the cost model."""
Watch = Callable[[int, int, int], None]
"""Told after some epochs of a fit how many there were, and how many networks of how many go on."""


@jax.jit
def _begin(
    learned: tuple[Ensemble, CostModel | None],
    opt_states: tuple[PyTree, PyTree],
    archive: Archive,
    key: PRNGKeyArray,
) -> Begun:
    (ensemble, cost_model), (opt_state, cost_opt_state) = learned, opt_states
    begun = begin_ensemble(ensemble, opt_state, archive, key=key)
    if cost_model is None:
        return begun, None
    key_cost = jax.random.fold_in(key, 1)
    return begun, begin_cost_model(cost_model, cost_opt_state, archive, key=key_cost)


# Nothing is donated: if the update fails after the fit, the state before it is to be saved.
@partial(jax.jit, static_argnames="settings")
def _fit(
    learned: tuple[Ensemble, CostModel | None],
    begun: Begun,
    archive: Archive,
    max_epochs: Int[Array, ""],
    settings: TrainSettings,
) -> tuple[tuple[Ensemble, CostModel | None], Begun, ModelFit]:
    ensemble, cost_model = learned
    config = FitConfig(batch_size=settings.ensemble.batch_size)
    ensemble, report = fit_ensemble(ensemble, begun[0], archive, config, max_epochs=max_epochs)
    quality, cost_state = None, begun[1]
    if cost_model is not None and cost_state is not None:
        cost_model, cost_state = fit_cost_model(
            cost_model, cost_state, archive, config, max_epochs=max_epochs
        )
        # After the ensemble: probabilities are calibrated on the next states that it imagines.
        cost_model, quality = learned_cost_quality.calibrate_probabilities(
            cost_model, ensemble, archive
        )
    fit = ModelFit(
        holdout_error=report.holdout_error[ensemble.elites].mean(),
        train_loss=report.train_loss.mean(),
        epochs=report.epochs.max().astype(jnp.float32),
        rank_correlation=reliability(ensemble, archive),
        cost=quality,
    )
    return (ensemble, cost_model), (report.state, cost_state), fit


def _tell(watch: Watch, begun: Begun, epochs: int) -> bool:
    """Tell how far a fit of at most so many epochs is; whether any network still learns."""
    states = [state for state in begun if state is not None]
    still = [unfinished(state, FitConfig(batch_size=1), max_epochs=epochs) for state in states]
    learning = sum(int(one.sum()) for one in still)
    watch(max(int(s.epochs.max()) for s in states), learning, sum(len(one) for one in still))
    return learning > 0


def fit_models(
    model: Model,
    settings: TrainSettings,
    *,
    epochs: int,
    key: PRNGKeyArray,
    watch: Watch | None = None,
) -> Model:
    """Train the ensemble, and the cost model, on the archive for at most `epochs` passes.

    Where somebody watches, the fit is interrupted every few seconds to tell how far it is; what
    comes of it is the same.
    """
    learned = model.ensemble, model.cost_model
    opt_states = model.opt_state, model.cost_opt_state
    begun = _begin(learned, opt_states, model.archive, key)
    until, stride, learning = 0, epochs if watch is None else 1, True
    fitted, quality = learned, model.quality
    while until < epochs and learning:
        began, until = time.monotonic(), min(until + stride, epochs)
        fitted, begun, quality = _fit(learned, begun, model.archive, jnp.array(until), settings)
        if watch is not None:
            learning = _tell(watch, begun, epochs)
            stride *= 2 if time.monotonic() - began < BETWEEN_REPORTS / 2 else 1
    (ensemble, cost_model), (state, cost_state) = fitted, begun
    return replace(
        model,
        ensemble=ensemble,
        opt_state=state.best[1],
        cost_model=cost_model,
        cost_opt_state=None if cost_state is None else cost_state.best[1],
        fresh=jnp.zeros_like(model.fresh),
        quality=quality,
    )


def _world(
    model: Model, s: RolloutSettings, task: KnownTask, starts: Starts, *, key: PRNGKeyArray
) -> World:
    errors = None
    if s.model_errors:
        errors = held_out_errors(model.ensemble, model.archive, starts, key=key)
    return World(model.ensemble, model.cost_model, task, s.cost_over_members, errors)


@partial(jax.jit, static_argnames=("settings", "task"))
def set_limits(
    model: Model, policy: Policy, settings: TrainSettings, task: KnownTask, key: PRNGKeyArray
) -> Model:
    """D̄₀ along imagined trajectories of h₀ steps, and the limit d_H that follows."""
    s = settings.rollout
    key_starts, key_draw, key_probe, key_errors = jax.random.split(key, 4)
    starts = past_policies(model.archive, policy, temperature=s.temperature, key=key_starts)
    obs = model.archive.obs[starts.draw(model.archive, (_probes(s),), key=key_draw)]
    everything = jnp.array(jnp.inf)
    probed = rollout.probe(
        _world(model, s, task, starts, key=key_errors),
        policy,
        obs,
        rollout.Cut(jnp.array(s.first_horizon), everything, everything),
        quantile=QUANTILE,
        max_horizon=s.first_horizon,
        key=key_probe,
    )
    limits = limits_from(probed.disagreement, first_horizon=s.first_horizon)
    return replace(model, limits=limits, disagreement=limits.reference)


@partial(jax.jit, static_argnames=("settings", "task"))
def imagine_batch(
    model: Model,
    policy: Policy,
    rows: Int[Array, ""],
    update: Int[Array, ""],
    settings: TrainSettings,
    task: KnownTask,
    key: PRNGKeyArray,
) -> Imagined:
    """`rows` imagined steps of the policy, cut where the ensemble's disagreement says."""
    s = settings.rollout
    key_starts, key_draw, key_probe, key_steps, key_errors = jax.random.split(key, 5)
    starts = past_policies(model.archive, policy, temperature=s.temperature, key=key_starts)
    world = _world(model, s, task, starts, key=key_errors)
    cut = rollout.cut_rule(
        s.cut,
        limit=model.limits.accumulated,
        max_horizon=s.max_horizon,
        schedule=s.schedule,
        update=update,
    )
    # A probe is always imagined first: D̄ stays known even where α = 1 leaves nothing to imagine.
    obs = model.archive.obs[starts.draw(model.archive, (_probes(s),), key=key_draw)]
    probed = rollout.probe(
        world, policy, obs, cut, quantile=QUANTILE, max_horizon=s.max_horizon, key=key_probe
    )
    least = s.min_horizon if s.cut == "batch" else 1
    horizon = jnp.maximum(probed.horizon, least)
    steps, batch = rollout.imagine(
        world,
        policy,
        model.archive,
        starts,
        replace(cut, horizon=horizon),
        rows=rows,
        steps=-int(-ROOM * settings.batch_size // s.lanes),
        lanes=s.lanes,
        key=key_steps,
    )
    return Imagined(
        steps=steps,
        disagreement=probed.disagreement,
        disagreement_share=probed.disagreement / model.limits.reference,
        horizon=horizon,
        batch=batch,
        effective_policies=starts.effective(),
    )


def _probes(s: RolloutSettings) -> int:
    return s.lanes // 2


def next_real_samples(model: Model, settings: TrainSettings, *, first: bool) -> int:
    """The real samples of the next update, α(π) of the batch, in whole rounds of all copies."""
    s = settings.real_share
    alpha = s.first_alpha
    if not first:
        alpha = real_share(
            float(model.disagreement),
            float(model.limits.reference),
            rule=s.rule,
            first_alpha=s.first_alpha,
        )
    return real_samples(
        alpha,
        batch_size=settings.batch_size,
        min_real=s.min_real,
        max_real=s.max_real,
        granularity=settings.num_envs,
    )
