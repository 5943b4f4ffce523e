"""Run folders of older versions open by today's names, or say which setting keeps them closed."""

import json
import re
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cmbpo.runs.config import settings_from_json
from cmbpo.runs.errors import RunError
from cmbpo.settings import aliases
from cmbpo.settings.aliases import CONSTANTS, DERIVED, LATER, RENAMED, renamed, upgraded
from cmbpo.settings.overrides import flat, names
from cmbpo.settings.presets import preset
from cmbpo.settings.schema import TrainSettings

RESULTS = Path(__file__).parents[2] / "results"
OLD_NAMES: dict[str, str] = {now: before for before, now in RENAMED.items()}


def older(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings as a version wrote them that still had the constants."""
    old: dict[str, Any] = {}
    for name, value in settings.items():
        old[OLD_NAMES.get(name, name)] = dict(value) if isinstance(value, dict) else value
    for constant, value in {**CONSTANTS, "rollout.probe": 250}.items():
        group, setting = constant.split(".")
        old[OLD_NAMES.get(group, group)][setting] = value
    return old


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps({"settings": settings, "versions": {"cmbpo": "0.0.9"}}))


def test_the_groups_of_older_versions_have_a_group_today():
    groups = {name.split(".")[0] for name in names() if "." in name}
    assert set(RENAMED.values()) <= {*groups, *names()}
    assert not set(RENAMED) & {*groups, *names()}
    assert renamed("mixing.min_real") == "real_share.min_real"
    assert renamed("seed") == "seed"


def test_what_became_a_constant_is_no_setting_any_more():
    assert not {*CONSTANTS, *DERIVED} & set(names())
    assert all(aliases.is_older(name) for name in (*CONSTANTS, *DERIVED, "mixing.rule"))
    assert not any(aliases.is_older(name) for name in names())


@pytest.mark.parametrize("task", ["AntSafe", "PointCircle", "my_robot:Arm-v0"])
def test_a_config_of_an_older_version_opens_to_equal_settings(task: str):
    settings = preset("cmbpo", task)
    config = as_json(older(asdict(settings)))
    assert {"dynamics", "mixing", "constraint"} <= config["settings"].keys()
    assert settings_from_json(config) == settings


@pytest.mark.parametrize("name", CONSTANTS)
def test_one_with_another_constant_is_refused_with_its_name(name: str):
    old = older(asdict(preset("cmbpo", "AntSafe")))
    group, setting = name.split(".")
    old[OLD_NAMES.get(group, group)][setting] = 17
    with pytest.raises(RunError, match=rf"cmbpo 0\.0\.9\) has {re.escape(name)} = 17; .* always$"):
        settings_from_json(as_json(old))


@pytest.mark.parametrize("name", CONSTANTS)
def test_one_with_another_constant_is_read_where_nothing_is_trained(name: str):
    settings = preset("cmbpo", "AntSafe")
    old = older(asdict(settings))
    group, setting = name.split(".")
    old[OLD_NAMES.get(group, group)][setting] = 17
    assert settings_from_json(as_json(old), to_train=False) == settings


def test_the_probes_may_have_been_any_number():
    assert upgraded({"rollout.probe": 3}) == LATER


def test_names_of_today_are_left_as_they_are():
    today = {"seed": 3, "real_share.min_real": 500, "policy.hidden": [8]}
    assert upgraded(today) == {**LATER, **today}


def test_what_came_later_is_what_older_versions_did():
    """Off; and no setting that a run has is replaced."""
    defaults = flat(asdict(TrainSettings()))
    assert {name: defaults[name] for name in LATER} == LATER
    assert upgraded({"policy.quiet_end": 0.3})["policy.quiet_end"] == 0.3


def committed() -> Iterator[tuple[str, dict[str, Any]]]:
    """The config.json of every committed run, those in archives too, with its place."""
    for path in sorted(RESULTS.glob("**/config.json")):
        yield str(path), json.loads(path.read_text())
    for path in sorted(RESULTS.glob("*.tar.xz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith("/config.json"):
                    held = archive.extractfile(member)
                    assert held is not None
                    yield f"{path}/{member.name}", json.load(held)


def test_every_committed_run_opens_or_is_refused_by_the_name_of_a_setting():
    """677 runs, to be read; 126 are of trial code or were made with what is unknown today.

    In the archive `trial` names the code, or says "none" where it was that of this package.
    """
    opened, refused = 0, Counter()
    for place, config in committed():
        if config["settings"].get("trial") == "none":
            del config["settings"]["trial"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* lacks .*; taking the default")
            try:
                settings = settings_from_json(config, where=place, to_train=False)
            except RunError as error:
                refused[_named(str(error), config["settings"])] += 1
            else:
                opened += 1
                assert settings.seed == config["settings"]["seed"]
                assert list(settings.policy.hidden) == config["settings"]["policy"]["hidden"]
    assert opened + refused.total() >= 677
    assert opened >= 551
    assert refused.total() <= 126, "what opened once still opens"


def _named(said: str, settings: dict[str, Any]) -> str:
    """The setting that a refusal names, which must be one that cannot be what it was."""
    found = re.search(r"has (?:the setting )?'?([a-z_.]+)|cannot be: ([a-z_.]+) is", said)
    assert found is not None, said
    name = found[1] or found[2]
    held = aliases.upgraded(flat(settings))
    assert name in held, said
    assert name in CONSTANTS or name not in set(names()) or "; allowed: " in said
    return name
