"""Whole updates, phase by phase, and what cannot be trained with."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cmbpo
from cmbpo import columns
from cmbpo.envs.find import find_task
from cmbpo.networks import Policy
from cmbpo.runs import checkpoint
from cmbpo.runs.array_file import arrays_in, write_whole
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import read_table
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training import loop
from cmbpo.training.trainer import Trainer
from tests.tiny import REAL, steps, tiny


def made(settings) -> Trainer:
    return Trainer(settings, PointCircle())


def test_a_non_finite_policy_is_named_and_its_batch_saved(tmp_path):
    trainer = made(tiny("cmbpo", tmp_path))
    trainer.warm_up()
    broken = eqx.tree_at(lambda c: c.output.mean, trainer.learner.critic, jnp.full(1, jnp.nan))
    trainer.learner = replace(trainer.learner, critic=broken)
    with pytest.raises(NonFiniteError, match="not finite in update 1: the advantages"):
        trainer.step()
    assert trainer.offending is not None


def test_another_run_lends_its_policy_critics_and_model_but_not_its_counts(tmp_path):
    folder, _ = loop.run(tiny("cmbpo", tmp_path, total_steps=steps(1)))
    trainer = made(tiny("cmbpo", tmp_path, init_from=str(folder)))
    trainer.take_over(Run.open(folder))
    lent = cmbpo.load(folder).policy
    same = jax.tree.map(lambda x, y: bool((x == y).all()), trainer.learner.policy, lent)
    assert all(jax.tree.leaves(same))
    assert (trainer.env_steps, trainer.update) == (0, 0)
    archive = trainer.learner.model.archive  # pyright: ignore[reportOptionalMemberAccess]
    assert int(archive.size) == steps(1)
    assert int(archive.epoch.max()) < 0, "their policies are older than the first of this run"


@pytest.mark.parametrize(("adapts", "counted"), [(False, 200), (True, steps(3))])
def test_a_policys_units_are_those_of_the_first_steps_or_of_all(adapts, counted):
    trainer = made(tiny("cmbpo", policy__normalise=True, policy__adapt_units=adapts))
    trainer.warm_up()
    for _ in range(3):
        trainer.step()
    assert trainer.learner.model is not None
    seen = np.asarray(trainer.learner.model.archive.obs[:counted])
    found = trainer.learner.policy.normaliser
    np.testing.assert_allclose(found.mean, seen.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(found.std, seen.std(axis=0), rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_envs": 101}, "num_envs is 101; allowed here: at most 100"),
        ({"archive_size": 99}, r"archive_size is 99; allowed here: at least 100.*max_real"),
        ({"total_steps": 200}, "total_steps is 200; allowed here: more than the 200 initial_steps"),
    ],
)
def test_settings_that_do_not_fit_the_task_or_each_other_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        made(tiny("cmbpo", **changes))


def test_environments_of_which_nothing_is_known_share_their_programs():
    """A program is compiled once for equal settings and known parts of the task."""
    robots = [
        tiny(
            "cmbpo",
            env_id=f"tests.envs.bad_environments:{name}-v0",
            cost_limit=(limit,),
            env__timeout=timeout,
        )
        for name, limit, timeout in (("fine", 5.0, 600.0), ("raises_in_close", 3.0, 9.0))
    ]
    one, other = (Trainer(robot, find_task(robot, trusted=True)) for robot in robots)
    assert one.static == other.static
    assert (one._known, hash(one._known)) == (other._known, hash(other._known))
    assert one._known != made(tiny("cmbpo"))._known, "of this one, the cost is known"


def test_what_needs_no_first_steps_may_end_with_them():
    assert made(tiny("trpo", total_steps=200, policy__normalise=False)).env_steps == 0


def test_an_update_takes_its_real_steps_and_counts_each_phase():
    trainer = made(tiny("cmbpo"))
    trainer.warm_up()
    assert trainer.env_steps == steps(0)
    row = trainer.step()
    assert trainer.env_steps == steps(1)
    assert (trainer.update, row[columns.UPDATE]) == (1, 1)
    assert row[columns.ALPHA] == pytest.approx(REAL / trainer.settings.batch_size)
    assert set(trainer.phases) == set(columns.PHASES)
    within = sum(float(row[phase]) for phase in columns.PHASES)
    assert within <= float(row[columns.UPDATE_SECONDS])


def test_a_fit_has_epochs_for_its_rows():
    """900 rows, in whole epochs of an archive of 300, 400 and 500."""
    trainer = made(tiny("cmbpo", ensemble__fit_rows=900, ensemble__epochs=1))
    trainer.warm_up(epochs=1)
    assert [float(trainer.step()[columns.FIT_EPOCHS]) for _ in range(3)] == [3.0, 2.0, 1.0]


def test_the_model_is_fitted_again_once_its_data_grew_by_a_share():
    """100 new steps are half of the first 200, but only a third of the next 300."""
    trainer = made(tiny("cmbpo", ensemble__fit_every=10_000, ensemble__fit_growth=0.4))
    trainer.warm_up(epochs=1)
    unfitted = []
    for _ in range(3):
        trainer.step()
        assert trainer.learner.model is not None
        unfitted.append(int(trainer.learner.model.fresh))
    assert unfitted == [0, REAL, 0]


def test_what_imagines_nothing_has_no_phases_of_a_model():
    trainer = made(tiny("trpo", policy__normalise=False))
    trainer.step()
    assert set(trainer.phases) == set(columns.PHASES) - {columns.MODEL, columns.IMAGINE}


def test_a_restored_trainer_goes_on_to_the_bit():
    settings = tiny("trpo", policy__normalise=False)
    one = made(settings)
    one.step()
    other = made(replace(settings, seed=9))
    other.restore(one.state())
    expected, found = one.step(), other.step()
    for name, value in expected.items():
        if not columns.is_time(name):
            assert str(found[name]) == str(value), name


def test_a_run_ends_quietly_and_is_loud_again_where_it_goes_on(tmp_path):
    """Also from a checkpoint in the middle of the fading, to the bit."""
    settings = tiny(
        "cmbpo",
        tmp_path / "whole",
        total_steps=steps(8),
        policy__quiet_end=0.5,
        cost_limit=1e6,
    )
    levels = []

    def note(moment: loop.Moment) -> None:
        assert isinstance(moment.policy, Policy)
        levels.append(float(moment.policy.noise))

    whole, policy = loop.run(settings, [note])
    assert isinstance(policy, Policy)
    # In half of 1000 steps it falls to a tenth; an update takes 100, and the third ends halfway.
    assert levels == pytest.approx([1.0, 1.0, *(0.1 ** (n / 5) for n in range(1, 6)), 0.1])
    told = read_table(whole / "progress.csv")[columns.POLICY_STD]
    assert float(told[-1]) == pytest.approx(float(jnp.exp(policy.log_deviation).mean()), rel=1e-4)

    cut = replace(settings, log_dir=str(tmp_path / "cut"))
    halfway, _ = loop.run(cut, [lambda moment: moment.row[columns.UPDATE] != 3])
    _, resumed = loop.resume(halfway)
    same = jax.tree.map(lambda x, y: bool((x == y).all()), resumed, policy)
    assert all(jax.tree.leaves(same))

    _, further = loop.resume(whole, total_steps=steps(40), callbacks=[lambda moment: False])
    assert isinstance(further, Policy)
    assert float(further.noise) == 1.0


def test_while_its_noise_fades_it_aims_at_half_of_what_it_aimed_at(monkeypatch):
    trainer = made(tiny("cmbpo", total_steps=steps(3), policy__quiet_end=0.3))
    aims = []
    monkeypatch.setattr(
        trainer.real, "lengthen", lambda cost, target, steps: aims.append(target.tolist())
    )
    trainer.warm_up()
    for _ in range(3):
        trainer.step()
    usual = trainer.settings.cost_estimate.target * 10.0
    assert aims == [[usual], [0.5 * usual], [0.5 * usual]], "from 350 of 500 steps on"


def test_a_checkpoint_of_before_there_was_a_quiet_end_acts_and_goes_on(tmp_path):
    folder, policy = loop.run(tiny("cmbpo", tmp_path, total_steps=steps(1)))
    (newest, *_) = Run.open(folder).checkpoints()
    members = arrays_in(newest.read_bytes())
    header = json.loads(members.pop("manifest").tobytes())
    without = members.pop("leaves/learner/policy/noise")
    header["leaves"].remove("learner/policy/noise")
    members["manifest"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    kept = {name: members[f"leaves/{name}"] for name in header["leaves"]}
    checksum = checkpoint._checksum(members["manifest"].tobytes(), kept)
    members["checksum"] = np.frombuffer(checksum, np.uint8)
    write_whole(newest, members)
    assert float(without) == 1.0
    loaded = cmbpo.load(folder)
    same = jax.tree.map(lambda x, y: bool((x == y).all()), loaded.policy, policy)
    assert all(jax.tree.leaves(same))
    assert np.isfinite(loaded.predict(np.zeros(len(PointCircle().obs_names)), False)).all()
    loop.resume(folder, total_steps=steps(2))
