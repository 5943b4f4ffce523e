"""Whole updates on the real PointCircle, with networks too small to learn much."""

import csv
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cmbpo
from cmbpo.runs.run_folder import NonFiniteError, Run
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.training import loop

UPDATES = 4
REAL = 100


def tiny(algo: str, folder: Path, **changes) -> TrainSettings:
    s = preset(algo, "PointCircle-v0")
    return replace(
        s,
        num_envs=5,
        batch_size=400,
        initial_steps=200,
        archive_size=1000,
        checkpoint_every=1,
        log_dir=str(folder),
        device="cpu",
        policy=replace(s.policy, hidden=(8,)),
        critic=replace(s.critic, hidden=(8,), members=2, batch_size=100, epochs=2),
        ensemble=replace(
            s.ensemble,
            hidden=(16,),
            members=3,
            elites=2,
            batch_size=64,
            first_epochs=3,
            epochs=2,
            fit_every=REAL,
        ),
        rollout=replace(s.rollout, lanes=20, probe=10),
        real_share=replace(s.real_share, min_real=REAL, max_real=REAL),
        **changes,
    )


def steps(updates: int) -> int:
    return 200 + REAL * updates


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of progress.csv without the times."""
    with (folder / "progress.csv").open() as file:
        return [
            {k: v for k, v in row.items() if not k.startswith("Time/")}
            for row in csv.DictReader(file)
        ]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    log = tmp_path_factory.mktemp("unbroken")
    folder, _ = loop.run(tiny("cmbpo", log, total_steps=steps(UPDATES)))
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
    again, _ = loop.run(tiny("cmbpo", tmp_path, total_steps=steps(UPDATES)))
    other, _ = loop.run(tiny("cmbpo", tmp_path, total_steps=steps(1), seed=1))
    assert rows(again) == rows(unbroken)
    assert rows(other)[0] != rows(unbroken)[0]


def test_a_resumed_run_has_the_rows_of_an_unbroken_one(unbroken, tmp_path):
    folder, _ = loop.run(tiny("cmbpo", tmp_path, total_steps=steps(2)))
    assert rows(folder) == rows(unbroken)[:2]
    loop.resume(folder, total_steps=steps(UPDATES))
    assert rows(folder) == rows(unbroken)
    assert (folder / "episodes.csv").exists() == (unbroken / "episodes.csv").exists()


def test_rows_after_the_last_checkpoint_are_made_again(unbroken, tmp_path):
    settings = tiny("cmbpo", tmp_path, total_steps=steps(3))
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
    agent = cmbpo.Agent(settings=tiny("cmbpo", tmp_path, total_steps=steps(UPDATES + 1)))
    agent.learn(callbacks=[lambda row: seen.append(len(compiled))])
    jax.monitoring.clear_event_listeners()
    assert len(set(seen[1:])) == 1, f"compilations after each update: {seen}"


def test_a_non_finite_policy_is_named_and_its_batch_saved(tmp_path):
    settings = tiny("cmbpo", tmp_path, total_steps=steps(UPDATES))
    trainer = loop.Trainer(settings)
    trainer.warm_up()
    broken = eqx.tree_at(lambda c: c.output.mean, trainer.learner.critic, jnp.full(1, jnp.nan))
    trainer.learner = replace(trainer.learner, critic=broken)
    with pytest.raises(NonFiniteError, match="not finite in update 1: the advantages"):
        trainer.step()
    assert trainer.offending is not None


def test_an_agent_learns_acts_and_is_loaded_again(unbroken):
    agent = cmbpo.load(unbroken)
    obs = np.zeros((7, len(agent.task.obs_names)))
    batch, single = agent.predict(obs), agent.predict(obs[0])
    assert batch.shape == (7, len(agent.task.act_names))
    np.testing.assert_allclose(single, batch[0], atol=1e-6)
    assert (np.abs(agent.predict(obs, deterministic=False)) <= 1.0).all()


def test_another_run_lends_its_policy_critics_and_model(unbroken, tmp_path):
    settings = tiny("cmbpo", tmp_path, total_steps=steps(1), init_from=str(unbroken))
    trainer = loop.Trainer(settings)
    trainer.take_over(Run.open(unbroken))
    lent = cmbpo.load(unbroken).policy
    same = jax.tree.map(lambda x, y: bool((x == y).all()), trainer.learner.policy, lent)
    assert all(jax.tree.leaves(same))
    assert trainer.env_steps == 0


@pytest.mark.parametrize(("adapts", "counted"), [(False, 200), (True, steps(3))])
def test_a_policys_units_are_those_of_the_first_steps_or_of_all(adapts, counted, tmp_path):
    settings = tiny("cmbpo", tmp_path)
    policy = replace(settings.policy, normalise=True, adapt_units=adapts)
    trainer = loop.Trainer(replace(settings, policy=policy))
    trainer.warm_up()
    for _ in range(3):
        trainer.step()
    assert trainer.learner.model is not None
    seen = np.asarray(trainer.learner.model.archive.obs[:counted])
    found = trainer.learner.policy.normaliser
    np.testing.assert_allclose(found.mean, seen.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(found.std, seen.std(axis=0), rtol=1e-4)


@pytest.mark.parametrize("algo", [a for a in ALGORITHMS if a != "cmbpo"])
def test_every_baseline_runs_and_resumes(algo: str, tmp_path):
    whole, _ = loop.run(tiny(algo, tmp_path / "whole", total_steps=800))
    folder, _ = loop.run(tiny(algo, tmp_path, total_steps=400))
    loop.resume(folder, total_steps=800)
    assert rows(folder) == rows(whole)


def test_settings_that_do_not_fit_the_task_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cost_limit has 2 numbers; PointCircle-v0 has 1"):
        loop.Trainer(tiny("cmbpo", tmp_path, cost_limit=(1.0, 2.0)))
    with pytest.raises(ValueError, match=r"num_envs is 101; allowed here: at most 100"):
        loop.Trainer(replace(tiny("cmbpo", tmp_path), num_envs=101))
