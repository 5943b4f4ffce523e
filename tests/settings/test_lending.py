"""A run begins with what another has learned where that fits; what does not is said first."""

from dataclasses import replace

import jax
import pytest

import cmbpo
from cmbpo.envs.find import find_task
from cmbpo.runs.copying import lender
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.lending import SAME
from cmbpo.settings.overrides import with_values
from cmbpo.settings.registry import reads
from cmbpo.training import loop
from tests.tiny import TINY, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return loop.run(tiny("trpo-lag", tmp_path_factory.mktemp("runs"), total_steps=400))[0]


def small(algo):
    """What an agent is told to be tiny, as far as its algorithm reads it."""
    return {name: value for name, value in TINY.items() if reads(algo, name)}


@pytest.mark.parametrize(
    ("algo", "changes", "said"),
    [
        ("trpo", {}, "a run of trpo-lag; allowed for trpo: a run of the same algorithm"),
        ("trpo-lag", {"policy.hidden": 16}, r"^policy.hidden is \[16\]; allowed .*: \[8\], as"),
        ("trpo-lag", {"critic.members": 3}, "^critic.members is 3; allowed with init_from .*: 2"),
        ("trpo-lag", {"policy.compress": True}, "^policy.compress is True; .*: False, as that run"),
    ],
)
def test_an_agent_says_at_once_what_of_a_run_does_not_fit(trained, algo, changes, said):
    with pytest.raises(ValueError, match=said):
        cmbpo.Agent(algo, **{**small(algo), **changes}, init_from=trained)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "allowed: a run folder .*nowhere is no run folder: it has no config.json"),
        ("empty", "which has no checkpoint yet"),
    ],
)
def test_an_agent_says_at_once_that_there_is_nothing_to_begin_with(tmp_path, made, said):
    if made:
        Run.create(replace(tiny("cpo"), log_dir=str(tmp_path))).close()
    (folder,) = tmp_path.rglob("seed-*") if made else [tmp_path / "nowhere"]
    with pytest.raises(RunError, match=f"^init_from is '{folder}'.*{said}"):
        cmbpo.Agent("cpo", **small("cpo"), init_from=folder)


def test_a_run_on_another_robot_is_refused_before_any_step(trained, tmp_path):
    start = tiny("trpo-lag", tmp_path, env_id="HalfCheetahSafe", init_from=str(trained))
    settings = with_values(start, {"policy.compress": False})
    with pytest.raises(RunError, match=r"a run on PointCircle-v0; allowed for HalfCheetahSafe-v0"):
        loop.run(settings)
    assert not list(tmp_path.iterdir())


def test_the_rule_of_the_multiplier_need_not_be_the_same(trained, tmp_path):
    settings = tiny("trpo-lag", tmp_path, init_from=str(trained), total_steps=400)
    other = {"adam": "pid", "pid": "adam"}[settings.lagrangian.rule]
    trainer = loop.make_trainer(
        with_values(settings, {"lagrangian.rule": other}), find_task(settings)
    )
    trainer.take_over(lender(settings))
    lent, now = cmbpo.load(trained).policy, trainer.policy
    assert all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), lent, now)))
    trainer.close()


OTHER = {
    **{"policy.hidden": 16, "critic.hidden": 16, "critic.members": 3, "ensemble.hidden": 8},
    **{"ensemble.members": 4, "ensemble.elites": 3, "archive_size": 1001, "replay.size": 1001},
}


@pytest.mark.parametrize("algo", ["cmbpo", "trpo", "sac-lag"])
def test_every_setting_that_changes_what_is_lent_is_named_and_no_other(algo):
    """By the shapes of untrained learners; units and scales change numbers only."""
    start = tiny(algo)
    for name in filter(lambda name: reads(algo, name), OTHER):
        assert name in SAME
        assert shapes(start) != shapes(with_values(start, {name: OTHER[name]})), name
    for name in ("num_envs", "batch_size", "policy.normalise", "rollout.lanes", "critic.epochs"):
        if reads(algo, name):
            value = {"policy.normalise": True}.get(name, 10)
            assert shapes(start) == shapes(with_values(start, {name: value})), name


def shapes(settings):
    trainer = loop.make_trainer(settings, find_task(settings))
    trainer.close()
    learned = vars(trainer)["learner"], vars(trainer).get("replay")
    return [x.shape for x in jax.tree.leaves(learned) if hasattr(x, "shape")]
