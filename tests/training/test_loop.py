"""Whole updates on the real PointCircle, with networks too small to learn much."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs import registration

import cmbpo
from cmbpo.evaluation import evaluate as evaluation
from cmbpo.runs.config import read_config, rewrite_config
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training import loop
from cmbpo.training.protocol import RunInProgress
from cmbpo.training.real_world import RealWorld
from cmbpo.training.trainer import Trainer
from tests.tiny import rows, steps, tiny

UPDATES = 4


def small(log: Path, **changes: Any) -> TrainSettings:
    """A tiny run with what the default of most robots has, and that of PointCircle has not."""
    return tiny("cmbpo", log, rollout__model_errors=True, ensemble__fit_rows=1000, **changes)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    log = tmp_path_factory.mktemp("unbroken")
    folder, _ = loop.run(small(log, total_steps=steps(UPDATES)))
    return folder


def test_a_run_has_a_row_for_each_update_and_leaves_curves(unbroken):
    assert [int(row["Train/Epoch"]) for row in rows(unbroken)] == [1, 2, 3, 4]
    assert [int(row["TotalEnvSteps"]) for row in rows(unbroken)] == [300, 400, 500, 600]
    assert (unbroken / "curves.png").stat().st_size > 0


def test_the_log_shows_real_and_imagined_cost_the_range_of_v_c_and_the_case(unbroken):
    last = rows(unbroken)[-1]
    for name in ("Constraint/Real", "Constraint/Model", "Value/CostMin", "Value/CostMax"):
        assert np.isfinite(float(last[name]))
    assert last["Misc/Case"] in ("recovery", "constrained", "unconstrained")
    assert float(last["Bound/RealChange"]) == pytest.approx(
        float(last["Constraint/Real"]) - float(rows(unbroken)[-2]["Constraint/Real"]), abs=1e-3
    )


def test_the_last_line_is_the_next_command(tmp_path, capsys):
    folder, _ = loop.run(tiny("cmbpo", tmp_path, total_steps=steps(1)))
    *_, row, curves, last = capsys.readouterr().out.splitlines()
    assert row.startswith("update 1 | steps 300 |")
    assert curves == f"curves: {folder / 'curves.png'}"
    assert last == f"see what it learned: cmbpo evaluate {folder}"


def test_the_same_seed_gives_the_same_rows_and_another_does_not(unbroken, tmp_path):
    again, _ = loop.run(small(tmp_path, total_steps=steps(UPDATES)))
    other, _ = loop.run(small(tmp_path, total_steps=steps(1), seed=1))
    assert rows(again) == rows(unbroken)
    assert rows(other)[0] != rows(unbroken)[0]


def test_a_resumed_run_has_the_rows_of_an_unbroken_one(unbroken, tmp_path):
    folder, _ = loop.run(small(tmp_path, total_steps=steps(2)))
    assert rows(folder) == rows(unbroken)[:2]
    loop.resume(folder, total_steps=steps(UPDATES))
    assert rows(folder) == rows(unbroken)
    assert (folder / "episodes.csv").exists() == (unbroken / "episodes.csv").exists()


def test_an_agent_that_learns_in_parts_writes_the_rows_of_an_unbroken_run(unbroken, tmp_path):
    agent = cmbpo.Agent.of_settings(small(tmp_path, checkpoint_every=20))
    agent.learn(steps(1) + 50)
    assert agent.folder is not None
    assert rows(agent.folder) == rows(unbroken)[:2], "updates are whole"
    with pytest.warns(UserWarning, match="has taken 400 steps, and 400 are asked for"):
        agent.learn(50)
    agent.learn(200, callback=lambda agent, row: False)
    assert rows(agent.folder) == rows(unbroken)[:3], "stopped"
    cmbpo.load(agent.folder).learn(100)
    assert rows(agent.folder) == rows(unbroken)


@pytest.mark.parametrize(
    ("owner", "name"), [(RealWorld, "collect"), (Trainer, "_imagine"), (Trainer, "_guard")]
)
def test_a_run_whose_third_update_fails_goes_on_after_its_second(
    owner, name, unbroken, tmp_path, monkeypatch
):
    """Before, while and after the archive, the model and the policy have become others."""
    work = getattr(owner, name)

    def fail(self, *args, **kwargs):
        done = work(self, *args, **kwargs)
        if self.env_steps == steps(3):
            raise RuntimeError("motor 3")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(RuntimeError, match="motor 3") as failure:
            loop.run(small(tmp_path, total_steps=steps(UPDATES), checkpoint_every=20))
    (folder,) = tmp_path.glob("*/seed-*")
    assert f"stands at update 2; go on with: cmbpo train --resume {folder}" in str(
        failure.value.__notes__
    )
    assert rows(folder) == rows(unbroken)[:2]
    loop.resume(folder)
    assert rows(folder) == rows(unbroken)


def test_rows_after_the_last_checkpoint_are_made_again(unbroken, tmp_path):
    settings = small(tmp_path, total_steps=steps(3))
    folder, _ = loop.run(replace(settings, checkpoint_every=2))
    (newest, *_) = Run.open(folder).checkpoints()
    newest.unlink()
    loop.resume(folder, total_steps=steps(UPDATES))
    assert rows(folder) == rows(unbroken)


def test_nothing_compiles_after_the_second_update(tmp_path):
    compiled: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    seen = []
    agent = cmbpo.Agent.of_settings(small(tmp_path, total_steps=steps(UPDATES + 1)))
    agent.learn(callback=lambda agent, row: seen.append(len(compiled)))
    jax.monitoring.clear_event_listeners()
    assert len(set(seen[1:])) == 1, f"compilations after each update: {seen}"


def test_an_agent_learns_acts_and_is_loaded_again(unbroken):
    agent = cmbpo.load(unbroken)
    obs = np.zeros((7, len(agent.task.obs_names)))
    batch, single = agent.predict(obs), agent.predict(obs[0])
    assert batch.shape == (7, len(agent.task.act_names))
    np.testing.assert_allclose(single, batch[0], atol=1e-6)
    assert (np.abs(agent.predict(obs, deterministic=False)) <= 1.0).all()


@pytest.mark.parametrize("algo", [a for a in ALGORITHMS if a != "cmbpo"])
def test_every_baseline_runs_and_resumes(algo: str, tmp_path):
    whole, _ = loop.run(tiny(algo, tmp_path / "whole", total_steps=800))
    folder, _ = loop.run(tiny(algo, tmp_path, total_steps=400))
    loop.resume(folder, total_steps=800)
    assert rows(folder) == rows(whole)


def test_the_limit_of_the_task_is_written_down_unless_the_run_has_its_own(tmp_path):
    settings = tiny("cpo", tmp_path, total_steps=400)
    assert settings.cost_limit is None
    assert loop.with_limits(settings, PointCircle()).cost_limit == PointCircle().cost_limits
    own = replace(settings, cost_limit=(3.0,))
    assert loop.with_limits(own, PointCircle()) == own
    folder, _ = loop.run(settings)
    assert read_config(folder)["settings"]["cost_limit"] == list(PointCircle().cost_limits)
    assert read_config(folder)["horizon"] == PointCircle().horizon


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_row_of_an_algorithm_says_what_trains_it(algo: str):
    trainer = loop.make_trainer(tiny(algo), PointCircle())
    assert isinstance(trainer, RunInProgress)
    assert (type(trainer) is Trainer) == (algo != "sac-lag")
    if isinstance(trainer, Trainer):
        assert (trainer.learner.model is not None) == (algo == "cmbpo")
    trainer.close()


def test_a_run_that_becomes_infinite_leaves_its_batch_behind(tmp_path, monkeypatch):
    """A reward of 1e38 overflows in the targets of V."""
    reward_terms = PointCircle.reward_terms

    def huge(*args):
        return {name: term * 0.0 + 3e38 for name, term in reward_terms(*args).items()}

    monkeypatch.setattr(PointCircle, "reward_terms", huge)
    with pytest.raises(
        NonFiniteError, match=r"not finite in update 1: .*; the batch is in "
    ) as stop:
        loop.run(tiny("cpo", tmp_path, total_steps=800))
    kept = Path(str(stop.value).split(" is in ")[1])
    with np.load(kept) as batch:
        assert not np.isfinite(batch["batch/target"]).all()


def test_a_resumed_run_says_where_it_goes_on(tmp_path, capsys):
    folder, _ = loop.run(tiny("cpo", tmp_path, total_steps=600))
    capsys.readouterr()
    loop.resume(folder, total_steps=1000)
    assert "going on from update 1 |" in capsys.readouterr().out


class Shaky(gymnasium.Env):
    """Once, at the step `breaks` of the copy, it observes what is no number; each costs 0.8."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, breaks: int = 0, **options):
        self.breaks, self.taken = breaks, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.taken += 1
        obs = np.full(2, np.nan if self.taken == self.breaks else 0.0, np.float32)
        return obs, 1.0, False, False, {"cost": 0.8}


@pytest.fixture
def shaky(monkeypatch):
    monkeypatch.setattr(registration, "registry", dict(registration.registry))
    gymnasium.register("Steady-v0", entry_point=Shaky, max_episode_steps=10)
    gymnasium.register("Shaky-v0", entry_point=lambda **_: Shaky(breaks=30), max_episode_steps=50)


@pytest.mark.usefixtures("shaky")
def test_numbers_that_are_not_finite_are_said_in_training_and_in_evaluation(tmp_path, capsys):
    settings = tiny("cpo", tmp_path, env_id="Shaky-v0", cost_limit=(5.0,), total_steps=steps(3))
    folder, _ = loop.run(settings)
    said = capsys.readouterr().out
    assert said.count("Not finite: ") == 1
    assert "Such a step ends its episode, earns nothing and costs at least 1" in said
    evaluation.main(folder, episodes=2, seed=0)
    assert "Not finite: " in capsys.readouterr().err
    with pytest.warns(UserWarning, match="Not finite: "):
        cmbpo.load(folder).evaluate(episodes=2)


@pytest.mark.usefixtures("shaky")
def test_a_horizon_that_was_edited_does_not_make_a_policy_the_best_within_the_limit(tmp_path):
    settings = tiny("cpo", tmp_path, env_id="Steady-v0", cost_limit=(5.0,), total_steps=600)
    folder, _ = loop.run(settings)
    rewrite_config(folder, {**read_config(folder), "horizon": 1})
    loop.resume(folder, total_steps=1000)
    assert not (folder / "best.npz").exists()


def test_the_environment_of_a_user_has_a_time_limit_unless_told_otherwise():
    assert cmbpo.preset("cpo", "mine:Robot-v0").env.timeout == 600.0
