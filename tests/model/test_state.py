"""The learned side on the real PointCircle, its cost and its end hidden from imagined steps."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data.archive import Archive
from cmbpo.data.collect import collect
from cmbpo.data.ledger import Ledger
from cmbpo.envs.simulator import Simulator
from cmbpo.model import state as model
from cmbpo.model.disagreement import Limits
from cmbpo.model.ensemble import moved, predict
from cmbpo.model.learned_cost_quality import parts
from cmbpo.networks import Policy
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training.trainer import Trainer
from cmbpo.trajectory import Steps
from tests.tiny import tiny

ROWS = 300
"""Imagined steps that are asked for."""


@dataclass(frozen=True, kw_only=True)
class Hidden(PointCircle):
    """PointCircle that has no functions for its cost and its end."""

    def costs(self, obs, act, next_obs):
        raise AssertionError("asked for what the task does not know")

    def terminated(self, obs, act, next_obs):
        raise AssertionError("asked for what the task does not know")


def start(settings: TrainSettings, *, knows: bool) -> model.Model:
    return model.start(
        4, 2, 1, settings, knows_cost=knows, knows_termination=knows, key=jax.random.key(5)
    )


@pytest.fixture(scope="module")
def settings() -> TrainSettings:
    return tiny("cmbpo", num_envs=20, archive_size=4000, rollout__cut="batch").for_programs()


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(4, 2, hidden=(8,), log_std=0.5, last_layer_scale=1.0, key=jax.random.key(0))


@pytest.fixture(scope="module")
def real(settings, policy) -> Steps:
    """2,000 real steps of a random policy."""
    simulator = Simulator(PointCircle(), settings.num_envs, seed=0, stagger=True)
    ledger = Ledger(settings.num_envs, 1)
    return collect(simulator, ledger, policy, steps=100, rows=100, key=jax.random.key(1))[0]


@pytest.fixture(scope="module")
def remembered(settings, policy, real) -> Archive:
    return model.remember(start(settings, knows=True), real, policy, 0).archive


def fitted(settings: TrainSettings, archive: Archive, *, knows: bool) -> model.Model:
    blank = replace(start(settings, knows=knows), archive=archive, fresh=jnp.array(2000))
    return model.fit_models(blank, settings, epochs=2, key=jax.random.key(2))


@pytest.mark.parametrize("knows", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_fit_that_is_watched_is_the_same_and_tells_how_far_it_is(settings, remembered, knows):
    told = []
    blank = replace(start(settings, knows=knows), archive=remembered, fresh=jnp.array(2000))
    whole, watched = (
        model.fit_models(blank, settings, epochs=40, key=jax.random.key(2), watch=watch)
        for watch in (None, lambda *now: told.append(now))
    )
    jax.tree.map(np.testing.assert_array_equal, watched, whole)
    epochs, learning, networks = zip(*told, strict=True)
    assert len(told) > 2
    assert (np.diff(epochs) >= 0).all()
    assert epochs[-1] >= float(whole.quality.epochs)
    assert learning[0] == networks[0] == (1 if knows else 2) * settings.ensemble.members
    assert (np.diff(learning) <= 0).all()


@pytest.fixture(scope="module")
def known(settings, remembered) -> model.Model:
    return fitted(settings, remembered, knows=True)


@pytest.fixture(scope="module")
def learned(settings, remembered) -> model.Model:
    return fitted(settings, remembered, knows=False)


def test_what_is_remembered_counts_as_fresh_until_the_next_fit(settings, policy, real, known):
    now = model.remember(start(settings, knows=True), real, policy, 7)
    assert int(now.fresh) == int(now.archive.size) == 2000
    np.testing.assert_array_equal(now.archive.epoch[:2000], 7)
    np.testing.assert_array_equal(now.archive.obs[:2000], real.obs.reshape(2000, 4))
    behaviour = jax.vmap(policy)(real.obs.reshape(2000, 4))
    np.testing.assert_allclose(now.archive.behaviour.mean[:2000], behaviour.mean, atol=1e-6)
    assert int(known.fresh) == 0


def test_a_fit_tells_the_quality_of_what_is_learned(learned):
    costs, end = parts(learned.cost_model, learned.quality.cost)
    assert costs is not None
    assert end is not None
    for value in (costs.error, costs.rate, costs.true_rate, end.rate):
        assert np.isfinite(value).all()
    assert float(costs.examples[0]) == float(learned.archive.cost.sum()) > 0.0
    assert float(end.examples) == 0.0
    assert float(learned.quality.epochs) == 2.0
    assert -1.0 <= float(learned.quality.rank_correlation) <= 1.0


def test_the_checkpoint_of_a_fitted_model_fits_an_untrained_one(settings, learned):
    blank = start(settings, knows=False)
    assert jax.tree.structure(learned) == jax.tree.structure(blank)
    for x, y in zip(jax.tree.leaves(learned), jax.tree.leaves(blank), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)


def test_dynamics_are_the_same_whether_cost_is_known_or_learned(known, learned):
    assert known.cost_model is None
    assert known.quality.cost is None
    assert int(learned.cost_model.fits) == 1
    same = jax.tree.map(lambda x, y: bool((x == y).all()), known.ensemble, learned.ensemble)
    assert all(jax.tree.leaves(same))


@pytest.fixture(scope="module")
def limited(settings, policy, known) -> model.Model:
    return model.set_limits(known, policy, settings, PointCircle(), jax.random.key(3))


def test_the_limit_follows_from_the_first_disagreement(settings, limited):
    limits, reference = limited.limits, float(limited.limits.reference)
    assert reference > 0.0
    assert float(limited.disagreement) == reference
    first_horizon = settings.rollout.first_horizon
    np.testing.assert_allclose(limits.accumulated, first_horizon * reference, rtol=1e-6)


def imagine(now: model.Model, policy: Policy, settings: TrainSettings, task: PointCircle, seed=4):
    rows, update = jnp.array(ROWS), jnp.array(0)
    return model.imagine_batch(now, policy, rows, update, settings, task, jax.random.key(seed))


def test_a_batch_is_imagined_with_what_it_says_of_itself(settings, policy, limited):
    found = imagine(limited, policy, settings, PointCircle())
    s, steps = settings.rollout, found.steps
    count = int(steps.valid.sum())
    assert ROWS <= count == int(found.batch.rows) < ROWS + s.lanes
    share = found.disagreement / limited.limits.reference
    np.testing.assert_allclose(found.disagreement_share, share, rtol=1e-6)
    assert s.min_horizon <= int(found.horizon) <= s.max_horizon
    assert float(found.batch.length) <= int(found.horizon)
    assert float(found.effective_policies) == pytest.approx(1.0)
    truth = PointCircle().costs(steps.obs, steps.act, steps.next_obs)
    if not s.cost_over_members:
        np.testing.assert_allclose(steps.cost[steps.valid], truth[steps.valid], atol=1e-6)
    mean = np.asarray(steps.cost)[np.asarray(steps.valid)].mean(axis=0)
    np.testing.assert_allclose(found.batch.cost_rate, mean, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("errs", [False, True])
def test_next_states_are_means_unless_imagined_steps_err(settings, policy, limited, errs):
    s = replace(settings, rollout=replace(settings.rollout, model_errors=errs))
    found = imagine(limited, policy, s, PointCircle())
    valid = np.asarray(found.steps.valid)
    obs, act = found.steps.obs[valid], found.steps.act[valid]
    delta = predict(limited.ensemble, obs, act).mean[..., : obs.shape[-1]]
    means = jax.vmap(lambda one: moved(limited.ensemble, obs, one))(delta)
    gaps = np.asarray(means) - np.asarray(found.steps.next_obs[valid])
    gap = np.abs(gaps).max(axis=-1).min(axis=0)
    assert (gap < 1e-5).mean() == (0.0 if errs else 1.0)


@pytest.mark.slow
def test_a_hidden_cost_is_never_asked_for(settings, policy, learned):
    now = model.set_limits(learned, policy, settings, Hidden(), jax.random.key(3))
    found = imagine(now, policy, settings, Hidden())
    assert int(found.batch.rows) >= ROWS
    with pytest.raises(AssertionError, match="asked for what the task does not know"):
        imagine(replace(now, cost_model=None), policy, settings, Hidden())


def test_with_no_disagreement_allowed_the_least_horizon_is_left(settings, policy, limited):
    nothing = replace(limited, limits=Limits(limited.limits.reference, jnp.zeros(())))
    strict = replace(settings, rollout=replace(settings.rollout, min_horizon=3, max_horizon=10))
    found = imagine(nothing, policy, strict, PointCircle())
    assert int(found.horizon) == 3
    # D̄ stays known although no step is admitted.
    assert float(found.disagreement) > 0.0
    assert int(found.batch.rows) == 0


@pytest.mark.parametrize(
    ("share", "first", "expected"),
    [(1.0, True, 120), (50.0, True, 120), (1.25, False, 180), (0.5, False, 60), (2.0, False, 260)],
)
def test_real_samples_follow_the_share_that_disagreement_asks_for(
    settings, limited, share, first, expected
):
    """α₀ = 0.3 of 400; later 1 − 0.7/1.25 = 0.44, none and so the least, 1 − 0.7/2 = 0.65."""
    rules = replace(settings.real_share, rule="paper", first_alpha=0.3, min_real=60, max_real=400)
    now = replace(limited, disagreement=share * limited.limits.reference)
    wanted = replace(settings, batch_size=400, real_share=rules)
    assert model.next_real_samples(now, wanted, first=first) == expected


def hidden_trainer(settings: TrainSettings) -> Trainer:
    """A trainer whose real steps cost, but whose imagined ones must be learned to."""
    trainer = Trainer(settings, PointCircle())
    trainer.learner = replace(trainer.learner, model=start(settings, knows=False))
    trainer.task = Hidden()
    return trainer


def imagined_cost(trainer: Trainer, now: model.Model, task: PointCircle) -> float:
    """Cost per step along trajectories that do not depend on who judges them."""
    found = model.imagine_batch(
        now,
        trainer.learner.policy,
        jnp.array(3500),
        jnp.array(0),
        trainer.static,
        task,
        jax.random.key(trainer.update),
    )
    return float(found.batch.cost_rate[0])


@pytest.mark.slow
def test_training_with_a_hidden_cost_imagines_the_cost_of_the_known_one(tmp_path):
    settings = tiny(
        "cmbpo",
        tmp_path,
        num_envs=20,
        batch_size=4000,
        initial_steps=2000,
        archive_size=8000,
        cost_limit=(150.0,),
        policy__hidden=(32, 32),
        policy__log_std=0.0,
        critic__hidden=(32, 32),
        critic__members=1,
        critic__batch_size=2048,
        critic__epochs=8,
        ensemble__hidden=(64, 64),
        ensemble__batch_size=256,
        ensemble__epochs=8,
        ensemble__fit_every=500,
        rollout__lanes=200,
        real_share__min_real=500,
        real_share__max_real=500,
    )
    trainer = hidden_trainer(settings)
    trainer.warm_up(epochs=60)
    rates, row = [], {}
    for _ in range(20):
        row = trainer.step()
        now = trainer.learner.model
        assert now is not None
        learned = imagined_cost(trainer, now, Hidden())
        known = imagined_cost(trainer, replace(now, cost_model=None), PointCircle())
        rates.append((learned, known))
    learned, known = np.array(rates)[5:].T
    assert known.mean() > 0.02
    assert learned.mean() == pytest.approx(known.mean(), rel=0.15)
    np.testing.assert_allclose(learned, known, atol=0.03)
    assert float(row["Model/CostAUC"]) > 0.98
