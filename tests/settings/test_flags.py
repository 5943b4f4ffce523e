"""The flags of an algorithm are the settings that it reads, each with its help."""

import dataclasses
import sys
from typing import Any

import pytest

from cmbpo import cli
from cmbpo.settings import flags
from cmbpo.settings.overrides import flat, help_texts, names
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS, reads
from cmbpo.settings.schema import CriticSettings, TrainSettings


def offered(algo: str) -> dict[str, Any]:
    """The flags by the dotted names of their settings, with their defaults."""
    return flat(dataclasses.asdict(flags.command(preset(algo, "AntSafe"))()))


def shown(algo: str, monkeypatch, capsys) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["cmbpo", "train", "--algo", algo, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().out


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_flags_of_an_algorithm_are_the_settings_that_it_reads(algo: str):
    settings = {name for name in names() if reads(algo, name)}
    assert offered(algo).keys() == settings | set(flags.NO_SETTINGS)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_their_defaults_are_the_values_of_the_preset(algo: str):
    held = flat(dataclasses.asdict(preset(algo, "AntSafe")))
    for name, value in offered(algo).items():
        assert not value if name in flags.NO_SETTINGS else value == held[name]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_help_shows_every_flag_that_is_read_and_no_other(algo: str, monkeypatch, capsys):
    printed = shown(algo, monkeypatch, capsys)
    for name in names():
        flag = f"--{name.replace('_', '-')}"
        assert (f"{flag} " in printed or f"{flag}," in printed) == reads(algo, name), name


def test_cpo_is_asked_nothing_about_models(monkeypatch, capsys):
    printed = shown("cpo", monkeypatch, capsys)
    for group in ("ensemble", "rollout", "real-share", "clipped", "lagrangian"):
        assert f"--{group}." not in printed


def test_every_setting_has_its_help():
    for group in (TrainSettings, *(type(v) for v in vars(TrainSettings()).values())):
        if dataclasses.is_dataclass(group):
            plain = {f.name for f in dataclasses.fields(group) if "Settings" not in str(f.type)}
            assert plain <= help_texts(group).keys()
            assert all(help_texts(group).values())
    assert help_texts(CriticSettings)["epochs"] == "Passes over the batch of an update."


def test_the_help_of_algorithm_and_task_names_them_all():
    texts = help_texts(TrainSettings)
    assert all(algo in texts["algo"] for algo in ALGORITHMS)
    assert "AntSafe-v0" in texts["env_id"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command_and_every_setting(shell, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cmbpo", "completion", shell])
    cli.main()
    script = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"'{name}'" in script
    for name in (*names(), "resume", "trust"):
        assert f"--{name.replace('_', '-')}'" in script
