"""A single setting is changed in the same way by a flag, from Python and beside a file."""

import json
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

import cmbpo
from cmbpo import cli
from cmbpo.runs.config import write_config
from cmbpo.settings.aliases import CONSTANTS
from cmbpo.settings.overrides import (
    changed,
    flat,
    literal,
    names,
    parsed,
    require_known,
    short,
    spelt,
    with_values,
)
from cmbpo.settings.presets import preset
from cmbpo.settings.schema import TrainSettings
from cmbpo.training import loop


@pytest.fixture
def typed(monkeypatch):
    """What `cmbpo train` with these words would train with."""
    ran: list[TrainSettings] = []
    monkeypatch.setattr(loop, "run", ran.append)

    def settings(*words: str) -> TrainSettings:
        monkeypatch.setattr(sys, "argv", ["cmbpo", "train", *words])
        cli.main()
        return ran.pop()

    return settings


def refused(monkeypatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["cmbpo", "train", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, str)
    assert "\n" not in ended.value.code
    return ended.value.code


def test_one_change_leaves_the_rest_of_its_group_wherever_it_is_made(typed, tmp_path):
    """AntSafe begins with σ = exp(−2.5): another network does not change that."""
    start = preset("cmbpo", "AntSafe-v0")
    assert start.policy.log_std == -2.5
    wanted = replace(start, seed=3, policy=replace(start.policy, hidden=(64, 32)))

    write_config(tmp_path, start, {})
    change = ("--seed", "3", "--policy.hidden", "64", "32")
    assert typed("--algo", "cmbpo", "--env-id", "AntSafe-v0", *change) == wanted
    assert typed("--config", str(tmp_path / "config.json"), *change) == wanted
    agent = cmbpo.Agent("cmbpo", "AntSafe-v0", seed=3, policy={"hidden": (64, 32)})
    assert agent.settings == wanted
    assert changed(start, {"seed": 3, "policy.hidden": [64, 32]}) == wanted
    assert changed(start, {"seed": 3, "policy": {"hidden": (64, 32)}}) == wanted


def test_a_config_repeats_a_run_without_a_word_more(typed, tmp_path):
    settings = replace(preset("ppo-lag", "AntCircle-v0", "paper"), seed=7, cost_limit=(3.0,))
    write_config(tmp_path, settings, {})
    assert typed("--config", str(tmp_path / "config.json")) == settings
    assert typed("--config", str(tmp_path)) == settings, "its folder will do"
    same = ("--algo", "PPOLag", "--env-id", "AntCircle-v0", "--preset", "paper")
    assert typed("--config", str(tmp_path), *same) == settings


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--algo", "cpo"), "--algo is 'cpo'; allowed with {}: ppo-lag"),
        (("--env-id", "AntSafe-v0"), "--env-id is 'AntSafe-v0'; allowed with {}: AntCircle-v0"),
        (("--preset", "default"), "--preset is 'default'; allowed with {}: paper"),
    ],
)
def test_a_config_is_of_one_algorithm_task_and_preset(words, sentence, monkeypatch, tmp_path):
    write_config(tmp_path, preset("ppo-lag", "AntCircle-v0", "paper"), {})
    assert sentence.format(tmp_path) in refused(monkeypatch, "--config", str(tmp_path), *words)


def test_a_config_of_an_older_version_is_repeated_by_todays_names(typed, tmp_path):
    settings = preset("cmbpo", "AntSafe-v0")
    held = asdict(settings)
    held["mixing"] = held.pop("real_share")
    (tmp_path / "config.json").write_text(json.dumps({"settings": held}))
    wanted = replace(settings, real_share=replace(settings.real_share, min_real=700))
    assert typed("--config", str(tmp_path), "--real-share.min-real", "700") == wanted


UNKNOWN = "unknown setting 'policy.colour'; there are: policy.hidden, policy.log_std"
WRONG: list[tuple[str, str, Any, str]] = [
    ("unknown", "policy.colour", 3, UNKNOWN),
    ("renamed", "mixing.min_real", 3, "mixing.min_real is called real_share.min_real now"),
    (
        "constant",
        "ensemble.patience",
        3,
        "ensemble.patience is no setting any more: it is 5 always",
    ),
    (
        "constant by its old name",
        "dynamics.patience",
        3,
        "dynamics.patience is no setting any more",
    ),
    ("derived", "rollout.probe", 3, "rollout.probe is no setting any more: it is half of rollout"),
    ("misspelt", "batchsize", 3, "unknown setting 'batchsize'; there are: batch_size"),
    (
        "unknown in a group that was renamed",
        "mixing.colour",
        3,
        "unknown setting 'mixing.colour'",
    ),
    ("unread", "rollout.lanes", 30, "rollout.lanes is not read by cpo"),
    ("group", "policy", 3, "policy is a group of settings; allowed: those that change, as in"),
]


@pytest.mark.parametrize(
    ("name", "value", "sentence"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_a_name_that_is_none_gives_one_sentence_in_python(name, value, sentence):
    with pytest.raises(ValueError, match=rf"^{sentence}"):
        changed(preset("cpo", "AntSafe"), {name: value})
    group, _, setting = name.partition(".")
    change: Any = {group: {setting: value} if setting else value}
    with pytest.raises(ValueError, match=rf"^{sentence}"):
        cmbpo.Agent("cpo", "AntSafe-v0", **change)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--mixing.min-real", "3"), "--mixing.min-real is called --real-share.min-real now"),
        (("--ensemble.patience", "3"), "ensemble.patience is no setting any more: it is 5 always"),
        (("--dynamics.patience", "3"), "dynamics.patience is no setting any more"),
        (("--rollout.probe", "3"), "rollout.probe is no setting any more: it is half of rollout"),
        (("--rollout.lanes", "30"), "--rollout.lanes is not read by cpo"),
        (("--rollout.lanes=30",), "--rollout.lanes is not read by cpo"),
        (("--rollout.no-cost-over-members",), "--rollout.no-cost-over-members is not read by cpo"),
    ],
)
def test_a_flag_that_is_none_gives_one_sentence(words, sentence, monkeypatch):
    assert sentence in refused(monkeypatch, "--algo", "cpo", *words)


def test_an_unknown_flag_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cmbpo", "train", "--algo", "cpo", "--policy.colour", "3"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "--policy.colour" in capsys.readouterr().err


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_is_refused_with_its_value(name):
    with pytest.raises(ValueError, match=f"^{name} is no setting any more: it is .* always$"):
        require_known(name)


def test_values_that_depend_on_each_other_are_set_together():
    start = preset("cmbpo", "AntSafe")
    made = changed(start, {"ensemble.members": 3, "ensemble.elites": 2})
    assert (made.ensemble.members, made.ensemble.elites) == (3, 2)
    with pytest.raises(ValueError, match="elites is 4; allowed: 1 to members = 3"):
        changed(start, {"ensemble.members": 3})


def test_settings_come_back_from_their_flat_names():
    settings = preset("cmbpo", "AntCircle", "paper")
    values = flat(asdict(settings))
    assert list(values) == list(names())
    assert with_values(TrainSettings(), values) == settings


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("batch_size=500", 500),
        ("batch-size = 500", 500),
        ("policy.hidden=64,64", (64, 64)),
        ("policy.hidden=64,", (64,)),
        ("policy.hidden=64x64", (64, 64)),
        ("policy.normalise=true", True),
        ("policy.normalise=False", False),
        ("first_episode=none", None),
        ("real_share.rule=constant", "constant"),
        ("clipped.stop_kl=1e-2", 0.01),
        ("env.cost_key='heat','spill'", ("heat", "spill")),
    ],
)
def test_assignments_are_read_as_a_user_means_them(assignment, value):
    (found,) = parsed([assignment]).values()
    assert found == value
    assert type(found) is type(value)


def test_what_is_no_assignment_is_named():
    with pytest.raises(ValueError, match="'batch_size'; allowed: KEY=VALUE"):
        parsed(["batch_size"])


def test_a_short_name_says_which_setting_it_is():
    shorts = {name: short(name) for name in names()}
    assert shorts["trust_region.max_kl"] == "max-kl"
    assert shorts["policy.hidden"] == "policy.hidden"
    assert len(set(shorts.values())) == len(shorts)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((64, 64), "64x64"),
        ((0.1, 1.0), "0.1x1"),
        (1e-05, "1e-05"),
        (None, "none"),
        (True, "true"),
        ("cpo", "cpo"),
    ],
)
def test_a_value_is_spelt_as_it_can_be_typed(value, words):
    assert spelt(value) == words
    assert literal(words) == value


@pytest.mark.parametrize("words", ["08x16", "{[1]:2}", "((", "08"])
def test_what_is_no_value_is_a_word_which_the_setting_refuses(words):
    assert literal(words) == words
    with pytest.raises(ValueError, match=r"^policy.hidden is .*; allowed:"):
        changed(preset("cpo", "AntSafe"), {"policy.hidden": literal(words)})
