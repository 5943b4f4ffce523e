"""Which runs an experiment is made of, with which settings, in which folders."""

from dataclasses import replace

import pytest

from cmbpo.experiments import plan
from cmbpo.runs import config
from cmbpo.settings.presets import preset


@pytest.mark.parametrize(
    ("name", "tasks", "arms"),
    [
        ("figure2", 3, ("cmbpo", "cpo", "ppo-lag", "trpo-lag", "trpo")),
        ("figure3", 2, ("cmbpo", "cmbpo-no-alpha", "cmbpo-schedule1", "cmbpo-schedule2")),
        ("table1", 3, ("cmbpo", "cpo", "ppo-lag", "trpo-lag")),
    ],
)
def test_an_experiment_is_its_tasks_by_its_arms_by_seeds_each_in_its_own_folder(name, tasks, arms):
    jobs = plan.jobs(name, seeds=range(4), preset="paper")
    assert len({job.name for job in jobs}) == len(jobs) == tasks * len(arms) * 4
    assert {job.arm for job in jobs} == set(arms)
    assert {job.settings.preset for job in jobs} == {"paper"}


@pytest.mark.parametrize("start", ["default", "paper"])
def test_the_ablations_are_those_of_figure_3(start):
    jobs = {job.name: job for job in plan.jobs("figure3", seeds=[0], preset=start)}
    suffix = "" if start == "default" else "-paper"

    def settings(arm: str, task: str):
        return jobs[f"{arm}{suffix}-{task}/seed-000"].settings

    for task, alpha in (("AntSafe", 0.05), ("AntCircle", 0.03)):
        plain = settings("cmbpo", task)
        assert plain == preset("cmbpo", task, start)
        constant = settings("cmbpo-no-alpha", task)
        assert (constant.real_share.rule, constant.real_share.first_alpha) == ("constant", alpha)
        least, most = constant.real_share.min_real, constant.real_share.max_real
        assert least <= alpha * constant.batch_size <= most
        assert replace(constant, real_share=plain.real_share) == plain
        for arm, horizons in (("cmbpo-schedule1", (3, 15)), ("cmbpo-schedule2", (5, 25))):
            scheduled = settings(arm, task)
            assert scheduled.rollout.cut == "schedule"
            assert scheduled.rollout.schedule == (*horizons, 1000)
            assert scheduled.rollout.max_horizon >= horizons[1]
            assert replace(scheduled, rollout=plain.rollout) == plain


def test_settings_given_together_may_depend_on_each_other():
    given = ["ensemble.members=3", "ensemble.elites=2", "policy.hidden=8", "critic.hidden=8,4"]
    (job,) = plan.jobs("table1", seeds=[3], envs=["AntSafe"], algos=["cmbpo"], overrides=given)
    assert (job.settings.ensemble.members, job.settings.ensemble.elites) == (3, 2)
    assert (job.settings.policy.hidden, job.settings.critic.hidden) == ((8,), (8, 4))
    assert job.name == "cmbpo-AntSafe/seed-003"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("batch_size", "allowed: KEY=VALUE"),
        ("batchsize=3", "unknown setting 'batchsize'; there are: batch_size"),
        ("real_share.alpha=3", "unknown setting 'real_share.alpha'; there are: real_share.rule"),
        ("real_share=3", "real_share is a group of settings"),
        ("mixing.min_real=3", "mixing.min_real is called real_share.min_real now"),
        ("rollout.quantile=0.5", "rollout.quantile is no setting any more: it is 0.75 always"),
        ("seed.x=3", "unknown setting 'seed.x'; there are:"),
        ("batch_size=many", "batch_size is 'many'; allowed: a whole number"),
        ("real_share.rule=half", "real_share.rule is 'half'; allowed: paper, proportional, con"),
        ("rollout.schedule=1,2", r"rollout.schedule is \(1, 2\); allowed: 3 numbers"),
        ("total_steps=3", "a flag of its own for total_steps"),
        ("real_share.first_alpha=2", "real_share.first_alpha is 2.0; allowed: a number, above 0"),
    ],
)
def test_a_wrong_setting_is_named(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan.jobs("table1", seeds=[0], overrides=[given])


def test_an_unknown_algorithm_is_named():
    with pytest.raises(ValueError, match=r"unknown algorithm 'sac'; there are cmbpo, .*schedule2"):
        plan.jobs("table1", seeds=[0], algos=["sac"])


def test_a_misspelt_task_is_named_before_anything_runs():
    with pytest.raises(ValueError, match="unknown task 'AntSaf'; there are AntSafe"):
        plan.jobs("table1", seeds=[0], envs=["AntSaf"])
    with pytest.raises(ValueError, match="unknown task 'AntSafe-v1'; there are AntSafe"):
        plan.jobs("table1", seeds=[0], envs=["AntSafe-v1"])


def test_a_folder_made_with_other_settings_is_refused_but_more_steps_are_welcome(tmp_path):
    def job(*given: str, total_steps: int = 1000) -> plan.Job:
        return plan.jobs(
            "table1",
            seeds=[0],
            envs=["PointCircle"],
            algos=["cpo"],
            overrides=given,
            total_steps=total_steps,
            log_dir=str(tmp_path),
        )[0]

    assert plan.conflict(job()) is None
    job().folder.mkdir(parents=True)
    config.write_config(job().folder, job().settings, {})
    assert plan.conflict(job("checkpoint_every=3", total_steps=2000)) is None
    epochs = job().settings.critic.epochs
    problem = plan.conflict(job(f"critic.epochs={epochs + 1}"))
    assert problem is not None
    assert f"made with critic.epochs {epochs}, now {epochs + 1}" in problem


def test_an_environment_of_ones_own_asks_for_its_limits_as_an_experiment_takes_them():
    def own(*given: str) -> list[plan.Job]:
        return plan.jobs("table1", seeds=[0], envs=["my_robot:Cook-v0"], overrides=given)

    with pytest.raises(ValueError, match=r"cost_limit is None; .* as in --set cost_limit=25$"):
        own()
    with pytest.raises(ValueError, match=r"\(heat, spill\), as in --set cost_limit=25,25$"):
        own("env.cost_key='heat','spill'", "cost_limit=3")
    assert {job.settings.cost_limit for job in own("cost_limit=25")} == {(25.0,)}


def test_a_setting_goes_to_the_arms_that_read_it():
    jobs = plan.jobs("table1", seeds=[0], envs=["PointCircle"], overrides=["rollout.lanes=30"])
    changed = {job.arm for job in jobs if job.settings.rollout.lanes == 30}
    assert changed == {"cmbpo"}
    assert len(jobs) == 4
    with pytest.raises(ValueError, match=r"--set rollout.lanes is read by none of cpo, trpo"):
        plan.jobs("table1", seeds=[0], algos=["cpo", "trpo"], overrides=["rollout.lanes=30"])


def test_a_grid_is_every_combination_by_seeds_in_folders_that_say_what_differs():
    grid = ["trust-region.max-kl=0.01,2e-2", "policy.hidden=64x64,128"]
    jobs = plan.jobs("grid", seeds=[0, 1], algos=["cpo"], envs=["AntSafe"], grid=grid)
    first = [job.name for job in jobs if job.settings.seed == 0]
    assert first == [
        "cpo-AntSafe/max-kl=0.01,policy.hidden=64x64/seed-000",
        "cpo-AntSafe/max-kl=0.01,policy.hidden=128/seed-000",
        "cpo-AntSafe/max-kl=0.02,policy.hidden=64x64/seed-000",
        "cpo-AntSafe/max-kl=0.02,policy.hidden=128/seed-000",
    ]
    assert len(jobs) == 8
    assert jobs[3].settings.policy.hidden == (128,)
    plain = preset("cpo", "AntSafe")
    assert replace(jobs[0].settings, policy=plain.policy, trust_region=plain.trust_region) == plain


def test_a_grid_is_of_the_first_run_unless_more_is_said():
    (job,) = plan.jobs("grid", seeds=[0])
    assert job.name == "cmbpo-PointCircle/seed-000"


def test_a_figure_may_be_a_grid_too():
    jobs = plan.jobs("table1", seeds=[0], grid=["advantage.lam=0.9,0.95"])
    assert len({job.name for job in jobs}) == 3 * 4 * 2


def test_what_is_no_part_of_a_folders_name_is_left_out_of_it():
    (job,) = plan.jobs("grid", seeds=[0], grid=["init_from=../runs/a b"])
    assert job.name == "cmbpo-PointCircle/init-from=..-runs-a-b/seed-000"


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        (["trust_region.max_kl=0.01,-1"], "trust_region.max_kl is -1.0; allowed: a number, above"),
        (["rollout.lanes=20,30"], "rollout.lanes is not read by cpo: leave it out"),
        (["seed=1,2"], "--grid seed; an experiment has a flag of its own for seed"),
        (["batch_size=500,5e2"], "--grid gives cpo-PointCircle/batch-size=500 twice"),
        (["critic.epochs=1,2"], "critic.epochs is given by --set and by --grid"),
        (["policy.hidden=64x0"], r"policy.hidden is \(64, 0\); allowed: one to 16 of"),
        (["trust_region.max_kl="], "trust_region.max_kl is ''; allowed: a number"),
    ],
)
def test_a_wrong_value_of_a_grid_is_named_before_anything_runs(grid, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan.jobs("grid", seeds=[0], algos=["cpo"], grid=grid, overrides=["critic.epochs=3"])


def test_combinations_that_cannot_be_are_named():
    with pytest.raises(ValueError, match="elites is 5; allowed: 1 to members = 3"):
        plan.jobs("grid", seeds=[0], grid=["ensemble.members=3,7", "ensemble.elites=2,5"])
