"""The task of a run is found by its name, or made of the environment that is handed over."""

from dataclasses import replace

import gymnasium
import pytest

from cmbpo.agent import Agent
from cmbpo.envs.check import examine
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.envs.find import IN_PYTHON, find_task, name_of
from cmbpo.envs.making import require_environment
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import TASKS, short_name
from cmbpo.settings.schema import EnvSettings, TrainSettings
from tests.envs.test_custom_task import Cart, limited


@pytest.mark.parametrize("task", TASKS)
def test_a_task_of_this_package_is_found_with_its_own_limits(task):
    found = find_task(preset("cpo", task))
    assert found.name == f"{task}-v0"
    assert found.knows_termination


def test_an_environment_handed_over_is_a_task_with_the_limits_and_name_of_the_run():
    settings = TrainSettings(env_id="python:Cart", cost_limit=(7.0,), env=EnvSettings(horizon=9))
    task = find_task(settings, lambda: limited(Cart))
    assert isinstance(task, CustomTask)
    assert (task.name, task.cost_limits, task.horizon) == ("Cart", (7.0,), 9)


@pytest.mark.parametrize(
    ("env_id", "limit", "sentence"),
    [
        ("AntSave-v0", 5.0, "'AntSave-v0' cannot be made.*AntSafe.*module:Name-v0"),
        ("no_such_module:Robot-v0", 5.0, "there is no module 'no_such_module'"),
        ("Pendulum-v1", 5.0, "Pendulum-v1: a step reports no cost"),
        ("python:Cart", 5.0, r"Cart, was made in Python.*cmbpo.load\(run, env=…\)"),
    ],
)
def test_an_environment_that_cannot_be_found_is_named(env_id, limit, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_task(TrainSettings(env_id=env_id, cost_limit=(limit,)), trusted=True)


def several():
    return gymnasium.vector.SyncVectorEnv([lambda: limited(Cart)])


@pytest.mark.parametrize(
    ("env", "called"),
    [(5, "5"), (None, "None"), (several(), "a SyncVectorEnv, several environments at once")],
)
def test_what_is_no_environment_is_refused_before_it_is_called(env, called):
    allowed = "the id of a task or of an environment, an environment of Gymnasium's, or a function"
    with pytest.raises(EnvironmentFailure, match=f"^env is {called}; allowed: {allowed} that mak"):
        require_environment(env)


@pytest.mark.parametrize(
    ("make", "called"),
    [
        (lambda: 5, "5"),
        (lambda: None, "None"),
        (several, "a SyncVectorEnv, several environments at once"),
    ],
)
def test_a_function_that_makes_no_environment_is_told_what_it_made(make, called):
    said = f"what makes it returned {called}; allowed: an environment of Gymnasium's"
    with pytest.raises(ValueError, match=said):
        Agent("cpo", make, cost_limit=5)
    (finding,) = examine(make, EnvSettings())
    assert finding.verdict == "refused"
    assert said in finding.sentence


@pytest.mark.parametrize("limit", [None, (1.0, 2.0)])
def test_every_cost_needs_its_limit(limit):
    settings = TrainSettings(env_id="python:Cart", cost_limit=limit)
    with pytest.raises(ValueError, match="a number for each cost"):
        find_task(settings, lambda: limited(Cart))


def test_a_task_of_this_package_takes_as_many_limits_as_it_has_costs():
    with pytest.raises(ValueError, match=r"cost_limit is \(1.0, 2.0\).*PointCircle-v0.*each cost"):
        find_task(replace(preset("cpo", "PointCircle"), cost_limit=(1.0, 2.0)))


@pytest.mark.parametrize("changes", [{"cost_key": ("foo",)}, {"horizon": 50}])
def test_what_is_for_own_environments_is_refused_on_a_task_of_this_package(changes):
    settings = replace(preset("cpo", "PointCircle"), env=EnvSettings(**changes))
    (name,) = changes
    with pytest.raises(ValueError, match=f"env.{name} is .* allowed for PointCircle-v0"):
        find_task(settings)


def made_cart():
    return limited(Cart)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("AntSafe-v0", "AntSafe-v0"),
        ("my_robot:Arm-v3", "my_robot:Arm-v3"),
        (made_cart, "python:made_cart"),
        (lambda: limited(Cart), "python:lambda"),
        (Cart, "python:Cart"),
        (Cart(), "python:Cart"),
        (gymnasium.make("Pendulum-v1"), "python:Pendulum"),
    ],
)
def test_any_environment_has_a_name_for_its_run(env, name):
    assert name_of(env) == name
    assert (name_of(env).startswith(IN_PYTHON)) == (not isinstance(env, str))
    assert "/" not in short_name(name_of(env)), "it becomes the name of a folder"
