"""The learned side on the real PointCircle, its cost and its end hidden from imagined steps."""

from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data.archive import Archive
from cmbpo.data.collect import Ledger, collect
from cmbpo.envs.simulator import Simulator
from cmbpo.model import state as model
from cmbpo.networks import Policy
from cmbpo.settings.presets import preset
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training import loop


@dataclass(frozen=True, kw_only=True)
class Hidden(PointCircle):
    """PointCircle that has no functions for its cost and its end."""

    def costs(self, obs, act, next_obs):
        raise AssertionError("asked for what the task does not know")

    def terminated(self, obs, act, next_obs):
        raise AssertionError("asked for what the task does not know")


def small(folder: Path, **dynamics) -> TrainSettings:
    s = preset("cmbpo", "PointCircle-v0")
    return replace(
        s,
        num_envs=20,
        batch_size=4000,
        initial_steps=2000,
        archive_size=8000,
        log_dir=str(folder),
        device="cpu",
        policy=replace(s.policy, hidden=(32, 32), log_std=0.0),
        critic=replace(s.critic, hidden=(32, 32), members=1),
        ensemble=replace(
            s.ensemble,
            hidden=(64, 64),
            head_hidden=(32, 32),
            members=3,
            elites=2,
            batch_size=256,
            fit_every=500,
            **dynamics,
        ),
        rollout=replace(s.rollout, lanes=200, probe=50),
        real_share=replace(s.real_share, min_real=500, max_real=500),
    )


def start(settings: TrainSettings, *, knows: bool) -> model.Model:
    return model.start(
        4, 2, 1, settings, knows_cost=knows, knows_termination=knows, key=jax.random.key(5)
    )


def hidden_trainer(settings: TrainSettings) -> loop.Trainer:
    """A trainer whose real steps cost, but whose imagined ones must be learned to."""
    trainer = loop.Trainer(settings)
    trainer.learner = replace(trainer.learner, model=start(settings, knows=False))
    trainer.task = Hidden()
    return trainer


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> TrainSettings:
    return small(tmp_path_factory.mktemp("runs"), first_epochs=4, epochs=2)


@pytest.fixture(scope="module")
def remembered(settings) -> Archive:
    """Real steps of a random policy."""
    simulator = Simulator(PointCircle(), settings.num_envs, seed=0, stagger=True)
    policy = Policy(4, 2, hidden=(8,), log_std=0.5, last_layer_scale=1.0, key=jax.random.key(0))
    real, _ = collect(
        simulator,
        Ledger(settings.num_envs, 1),
        policy,
        steps=100,
        rows=100,
        key=jax.random.key(1),
    )
    return model.remember(start(settings, knows=True), real, policy, 0).archive


def fitted(settings: TrainSettings, archive: Archive, *, knows: bool) -> model.Model:
    blank = replace(start(settings, knows=knows), archive=archive)
    return model.fit(blank, settings, epochs=2, key=jax.random.key(2))


@pytest.fixture(scope="module")
def learned(settings, remembered) -> model.Model:
    return fitted(settings, remembered, knows=False)


def test_the_log_tells_the_quality_of_what_is_learned(learned):
    quality = learned.quality
    for name in ("CostError", "CostRate", "CostTrueRate", "CostExamples", "TerminationRate"):
        assert np.isfinite(quality[f"Model/{name}"]).all()
    assert {"Model/CostAUC", "Model/TerminationRecall", "Model/TerminationAUC"} <= set(quality)
    assert float(quality["Model/CostExamples"][0]) == float(learned.archive.cost.sum())
    assert float(quality["Model/TerminationExamples"]) == 0.0


def test_the_checkpoint_of_a_fitted_model_fits_an_untrained_one(settings, learned):
    blank = start(settings, knows=False)
    assert jax.tree.structure(learned) == jax.tree.structure(blank)
    for x, y in zip(jax.tree.leaves(learned), jax.tree.leaves(blank), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)


def test_dynamics_are_the_same_whether_cost_is_known_or_learned(settings, remembered, learned):
    known = fitted(settings, remembered, knows=True)
    assert known.cost_model is None
    assert int(learned.cost_model.fits) == 1
    same = jax.tree.map(lambda x, y: bool((x == y).all()), known.ensemble, learned.ensemble)
    assert all(jax.tree.leaves(same))
    assert set(known.quality) == set(model.QUALITY)


def imagined_cost(trainer: loop.Trainer, now: model.Model, task: PointCircle) -> float:
    """Cost per step along trajectories that do not depend on who cost_model them."""
    _, _, rate, _ = model.imagine(
        now,
        trainer.learner.policy,
        jnp.array(3500),
        jnp.array(0),
        trainer.static,
        task,
        task.horizon,
        jax.random.key(trainer.update),
    )
    return float(rate[0])


@pytest.mark.slow
def test_training_with_a_hidden_cost_imagines_the_cost_of_the_known_one(tmp_path):
    settings = replace(small(tmp_path, first_epochs=60, epochs=8), cost_limit=(150.0,))
    trainer = hidden_trainer(settings)
    trainer.warm_up()
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
