"""Presets are what their names say: the numbers of appendix B, task by task."""

from dataclasses import replace

import pytest

from cmbpo.algorithms.update import region
from cmbpo.model.ensemble_fit import FitConfig
from cmbpo.settings import cmbpo_presets
from cmbpo.settings.presets import CUSTOM, preset
from cmbpo.settings.registry import ALGORITHMS, TASKS, TUNED
from cmbpo.settings.schema import EnsembleSettings

PRESETS = ("default", "paper")
PAPER = {"AntSafe": (0.4, 5), "HalfCheetahSafe": (0.3, 5), "AntCircle": (0.2, 7)}


@pytest.mark.parametrize("task", PAPER)
def test_the_paper_preset_is_the_table_of_appendix_b(task: str):
    s = preset("cmbpo", f"{task}-v0", "paper")
    assert (s.real_share.first_alpha, s.rollout.first_horizon) == PAPER[task]
    assert (s.policy.hidden, s.critic.hidden) == ((256, 256), (128, 128))
    assert (s.advantage.discount, s.advantage.cost_discount) == (0.99, 0.97)
    assert (s.advantage.lam, s.advantage.cost_lam) == (0.95, 0.5)
    step = region(s, 1000)
    assert (step.max_kl, step.cg_iterations, step.cg_damping) == (0.01, 10, 0.1)
    assert (step.backtracks, s.trust_region.step) == (10, "cpo")
    assert s.batch_size == 50_000
    assert (s.critic.learning_rate, s.critic.batch_size, s.critic.epochs) == (3e-4, 2048, 8)
    model = s.ensemble
    assert (model.hidden, model.members, model.elites) == ((512, 512), 7, 5)
    assert model.batch_size == 2048
    assert FitConfig(batch_size=1).learning_rate == 1e-3
    assert s.rollout.temperature == 2.0
    assert (s.rollout.cut, s.real_share.rule) == ("trajectory", "paper")
    assert s.cost_limit is None, "the task's own limit, which is 10"


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_algorithm_has_every_preset_on_every_task(algo: str, task: str, name: str):
    settings = preset(algo, task, name)
    assert (settings.algo, settings.env_id, settings.preset) == (algo, f"{task}-v0", name)


def test_one_table_serves_every_robot_but_the_point():
    """At most two settings of a robot differ from it; PointCircle has sizes of its own."""
    _, exceptions, custom = cmbpo_presets.PRESETS["default"]
    robots = {**exceptions, "one's own": custom}
    few = {task: {n for n in own if n != "total_steps"} for task, own in robots.items()}
    assert {task for task, own in few.items() if len(own) > 2} == {"PointCircle"}


def test_imagined_steps_err_in_the_table_and_are_means_in_print_and_by_hand():
    def fits(settings):
        s = settings.ensemble
        return settings.rollout.model_errors, s.batch_size, s.fit_rows

    assert fits(preset("cmbpo", "AntSafe")) == (True, 256, 400_000)
    assert fits(preset("cmbpo", "AntSafe", "paper")) == (False, 2048, 0)
    assert fits(preset("cmbpo", "AntCircle")) == (True, 256, 400_000)
    assert fits(preset("cmbpo", "PointCircle")) == (False, 512, 0)


@pytest.mark.parametrize(
    ("epochs", "fit_rows", "rows", "most"),
    [(4, 0, 5000, 4), (4, 400_000, 22_740, 17), (4, 400_000, 100_000, 4), (5, 400_000, 10**6, 5)],
)
def test_a_small_archive_is_passed_more_often(epochs: int, fit_rows: int, rows: int, most: int):
    assert EnsembleSettings(epochs=epochs, fit_rows=fit_rows).most_epochs(rows) == most


@pytest.mark.parametrize(
    ("task", "first_real"),
    [("HalfCheetahSafe", 15_000), ("AntSafe", 20_000), ("AntCircle", 20_000)],
)
def test_the_released_preset_is_the_authors_code_not_the_print(task: str, first_real: int):
    s = preset("cmbpo", task, "released")
    assert s.real_share.first_alpha * s.batch_size == first_real
    assert (s.real_share.rule, s.real_share.min_real) == ("proportional", 500)
    assert (s.num_envs, s.first_episode, s.archive_size) == (1, None, 300_000)
    assert (s.cost_estimate.source, s.cost_estimate.target) == ("batch", 1.0)
    assert s.advantage.apart
    assert not s.critic.bound_cost
    assert (s.ensemble.members, s.ensemble.elites, s.rollout.max_horizon) == (7, 5, 34)


def test_only_cmbpo_has_a_released_preset():
    with pytest.raises(ValueError, match=r"'released'; there are default, paper$"):
        preset("cpo", "AntSafe", "released")


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match=r"'fast'; there are default, paper"):
        preset("cpo", "AntSafe", "fast")


@pytest.mark.parametrize("task", TASKS)
def test_an_algorithm_that_heeds_no_cost_has_whole_episodes(task: str):
    assert preset("trpo", task).first_episode is None


def test_baselines_begin_with_short_episodes_where_cmbpo_does_on_the_circle():
    firsts = {preset(algo, "AntCircle").first_episode for algo in ("cmbpo", "cpo", "trpo-lag")}
    assert firsts == {100}


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("name", PRESETS)
def test_an_environment_of_ones_own_starts_from_what_holds_of_any(algo: str, name: str):
    settings = preset(algo, "my_robot:Arm-v3", name)
    assert settings.env_id == "my_robot:Arm-v3"
    assert settings.cost_limit is None, "nobody but the user knows it"
    for setting in ("num_envs", "initial_steps"):
        assert getattr(settings, setting) == CUSTOM[setting]
    assert settings.policy.normalise
    assert not settings.critic.bound_cost, "costs may be larger than 1 a step"


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("name", PRESETS)
def test_a_task_without_numbers_of_its_own_starts_as_ones_own_environment_does(algo, name):
    own = preset(algo, "my_robot:Arm-v3", name)
    for task in TASKS:
        same = replace(preset(algo, task, name), env_id=own.env_id) == own
        assert same == (task not in TUNED)


@pytest.mark.parametrize(
    ("fit_growth", "rows", "steps"),
    [(0.0, 5000, 4000), (0.15, 5000, 750), (0.15, 20_000, 3000), (0.15, 80_000, 4000)],
)
def test_a_small_archive_is_fitted_again_sooner(fit_growth: float, rows: int, steps: int):
    settings = EnsembleSettings(fit_every=4000, fit_growth=fit_growth)
    assert settings.until_due(rows, least=1) == steps
    assert settings.until_due(rows, least=1000) == max(steps, 1000)
