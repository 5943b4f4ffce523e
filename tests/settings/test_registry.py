"""The rows of algorithms and tasks name what exists; what is not read changes nothing."""

import importlib
import typing
from dataclasses import asdict
from typing import Any, Literal

import pytest

import cmbpo.tasks
from cmbpo import columns
from cmbpo.settings.overrides import flat, names, with_values
from cmbpo.settings.registry import (
    ALGORITHMS,
    TASKS,
    algorithm_name,
    is_built_in,
    reads,
    short_name,
    task_name,
)
from cmbpo.settings.schema import TrainSettings
from cmbpo.training import device, loop
from cmbpo.training.trainer import Trainer
from tests.settings.test_ranges import kind_of, plain
from tests.tiny import tiny


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_row_names_modules_that_have_what_is_looked_for_there(algo: str):
    row = ALGORITHMS[algo]
    module, _, kind = row.trainer.partition(":")
    trainer = getattr(importlib.import_module(module), kind)
    update = importlib.import_module(row.module)
    assert hasattr(update, "ALGORITHM") == issubclass(trainer, Trainer)
    presets = set(importlib.import_module(row.preset).PRESETS)
    assert presets == {"default", "paper"} | ({"released"} if algo == "cmbpo" else set())


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_a_row_reads_are_groups_and_settings_that_exist(algo: str):
    known = {*names(), *(name.split(".")[0] for name in names())}
    assert set(ALGORITHMS[algo].reads) <= known


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_of_the_class_that_its_row_names(task: str):
    found = cmbpo.tasks.get(task)
    assert found.name == f"{task}-v0"
    assert f"{type(found).__module__}:{type(found).__name__}" == TASKS[task]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *((s, "trpo-lag") for s in ("TRPOLag", "trpo_lag", "trpo-lag", "TRPO-Lag", "TRPO-L")),
        *((s, "ppo-lag") for s in ("PPOLag", "ppo_l", "PPO-L")),
        *((s, "cpo") for s in ("CPO", "cpo")),
        *((s, "sac-lag") for s in ("SACLag", "sac_lag", "SAC-L")),
        ("CMBPO", "cmbpo"),
    ],
)
def test_spellings_of_other_libraries_are_understood(spelling: str, name: str):
    assert algorithm_name(spelling) == name


def test_no_two_algorithms_share_a_spelling():
    for name, row in ALGORITHMS.items():
        assert {algorithm_name(spelling) for spelling in (name, *row.spellings)} == {name}


def test_unknown_names_are_named():
    with pytest.raises(ValueError, match=r"'sac'; there are cmbpo, cpo, .*trpo-lag"):
        algorithm_name("sac")
    with pytest.raises(ValueError, match=r"'Humanoid-v5'; there are AntSafe"):
        task_name("Humanoid-v5")


def test_a_task_is_found_by_its_name_with_or_without_version_and_namespace():
    for env_id in ("AntSafe", "AntSafe-v0", "cmbpo/AntSafe-v0"):
        assert is_built_in(env_id)
        assert task_name(env_id) == "AntSafe"
    for env_id in ("AntSafe-v1", "my_robots:AntSafe-v0", "other/AntSafe-v0", "antsafe"):
        assert not is_built_in(env_id)


@pytest.mark.parametrize(
    ("env_id", "short"),
    [
        ("cmbpo/AntSafe-v0", "AntSafe"),
        ("AntSafe-v0", "AntSafe"),
        ("package:MyRobot-v12", "MyRobot"),
        ("package.module:ns/My-very-Robot-v0", "My-very-Robot"),
        ("python:lambda", "lambda"),
    ],
)
def test_folders_have_the_bare_name_of_any_environment(env_id: str, short: str):
    assert short_name(env_id) == short


def test_each_algorithm_reads_its_own_groups_and_every_one_the_settings_of_a_run():
    assert reads("cmbpo", "ensemble.members")
    assert reads("trpo-lag", "lagrangian.gains")
    assert reads("ppo-lag", "clipped.stop_kl")
    assert not reads("cpo", "ensemble.members")
    assert not reads("trpo", "cost_estimate.target")
    assert not reads("ppo-lag", "trust_region.max_kl")
    assert reads("sac-lag", "replay.ratio")
    assert not reads("sac-lag", "lagrangian.rule")
    assert not reads("cmbpo", "replay.ratio")
    for algo in ALGORITHMS:
        for name in ("seed", "total_steps", "cost_limit", "env.horizon", "wandb", "policy.hidden"):
            assert reads(algo, name)


def test_every_setting_is_read_by_some_algorithm():
    unread = [name for name in names() if not any(reads(algo, name) for algo in ALGORITHMS)]
    assert unread == []


def another(name: str, value: Any) -> Any:
    """A value that is allowed and not the present one."""
    kind = kind_of(name)
    if typing.get_origin(plain(kind)) is Literal:
        return next(choice for choice in typing.get_args(plain(kind)) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return tuple(another(name, one) for one in value)
    if value is None:
        return 1.0
    if isinstance(value, int):
        return value + 1
    # Within [0, 1] and above it: shares stay shares, and factors factors.
    return 0.5 * value + (0.1 if value <= 1.0 else 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("algo", [algo for algo in ALGORITHMS if algo != "cmbpo"])
def test_what_an_algorithm_does_not_read_changes_nothing(algo: str, tmp_path):
    """So that a flag which is refused is one that would have done nothing."""
    settings = tiny(algo, tmp_path, policy__normalise=True)
    values = {
        name: value
        for name, value in flat(asdict(settings)).items()
        # None says whole episodes; of an algorithm that heeds no cost it can be nothing else
        if not reads(algo, name) and name != "first_episode"
    }
    assert len(values) > 20
    device.use("cpu")  # which keeps compiled programs: those of both are the same
    other = with_values(settings, {name: another(name, value) for name, value in values.items()})
    assert all(flat(asdict(other))[name] != value for name, value in values.items())
    assert _updates(other) == _updates(settings)


def _updates(settings: TrainSettings) -> list[dict[str, str]]:
    trainer = loop.make_trainer(settings, cmbpo.tasks.get(settings.env_id))
    trainer.warm_up()
    found = [trainer.step() for _ in range(2)]
    trainer.close()
    return [{k: str(v) for k, v in row.items() if not columns.is_time(k)} for row in found]
