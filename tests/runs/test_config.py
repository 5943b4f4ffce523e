"""config.json says how to repeat a run, and is read back exactly or refused by name."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbpo.runs.config import read_config, rewrite_config, settings_from_json
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import EnsembleSettings, RolloutSettings, TrainSettings


def test_the_config_says_what_it_ran_on(run):
    config = json.loads((run.folder / "config.json").read_text())
    assert config["versions"].keys() >= {"cmbpo", "python", "jax", "mujoco", "gymnasium", "numpy"}
    assert config["horizon"] == 1000
    assert {"device", "commit", "command"} <= config.keys()


@given(
    seed=st.integers(0, 2**31),
    hidden=st.lists(st.integers(1, 512), min_size=1, max_size=4).map(tuple),
    limit=st.none() | st.lists(st.floats(0, 1e6), min_size=1, max_size=3).map(tuple),
    temperature=st.floats(0, 1e3),
)
def test_settings_come_back_from_json_exactly(seed, hidden, limit, temperature):
    settings = TrainSettings(
        seed=seed,
        cost_limit=limit,
        ensemble=EnsembleSettings(hidden=hidden),
        rollout=RolloutSettings(temperature=temperature),
    )
    config = json.loads(json.dumps({"settings": dataclasses.asdict(settings)}))
    assert settings_from_json(config) == settings
    assert hash(settings_from_json(config)) == hash(settings)


def test_an_unknown_setting_is_named_with_the_version_that_wrote_it():
    config = {"versions": {"cmbpo": "9.1"}, "settings": dataclasses.asdict(TrainSettings())}
    config["settings"]["rollout"]["colour"] = "red"
    with pytest.raises(RunError, match=r"cmbpo 9\.1.*'rollout\.colour'"):
        settings_from_json(config)


def test_a_missing_setting_takes_its_default_and_says_so():
    config = {"settings": dataclasses.asdict(TrainSettings())}
    del config["settings"]["rollout"]["lanes"]
    with pytest.warns(UserWarning, match=r"lacks 'rollout\.lanes'"):
        assert settings_from_json(config) == TrainSettings()


@pytest.mark.parametrize(
    ("group", "name", "value", "sentence"),
    [
        (None, "num_envs", 0, "num_envs is 0; allowed: a whole number, 1 to 100,000"),
        (None, "algo", "nonsense", "unknown algorithm 'nonsense'; there are cmbpo"),
        ("policy", "log_std", "x", "policy.log_std is 'x'; allowed: a number"),
        ("policy", "hidden", [16.5], r"policy.hidden is .*16\.5.*; allowed: one to 16 of a whole"),
        ("critic", "learning_rate", None, "critic.learning_rate is None; allowed: a number"),
        ("ensemble", "variance_loss", "x", r"ensemble\.variance_loss = 'x'"),
        ("rollout", "cut", "x", "rollout.cut is 'x'; allowed: "),
    ],
)
def test_an_impossible_setting_is_named(group, name, value, sentence):
    config = {"settings": dataclasses.asdict(TrainSettings())}
    place = config["settings"] if group is None else config["settings"][group]
    place[name] = value
    with pytest.raises(RunError, match=sentence):
        settings_from_json(config)


def test_a_config_is_read_from_its_folder_or_by_its_own_name(run):
    assert read_config(run.folder) == read_config(run.folder / "config.json") == run.config


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"settings": {"algo": "cp', r"config\.json is not readable as JSON"),
        ("[1, 2]", r"config\.json holds no settings"),
    ],
)
def test_a_config_that_cannot_be_read_is_named(text, sentence, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunError, match=sentence):
        read_config(tmp_path)


def test_a_config_without_settings_is_refused():
    with pytest.raises(RunError, match=r"here \(cmbpo unknown\) holds no settings"):
        settings_from_json({"settings": [1]}, where="here")


def test_a_place_without_config_is_no_run_folder(tmp_path):
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RunError, match=r"is no run folder: it has no config\.json"):
            read_config(place)
    with pytest.raises(RunError, match="is no run folder: File name too long"):
        read_config(tmp_path / ("x" * 300))


def test_a_place_within_a_run_leads_to_its_folder(run):
    with pytest.raises(RunError, match=f"has no config.json, but {run.folder} has one$"):
        Run.open(run.folder / "checkpoints")
    (run.folder / "checkpoints" / "8.npz").write_bytes(b"\xa7")
    for name in ("config.json", "checkpoints/8.npz"):
        allowed = f"{name} is a file; allowed: a run folder, as {run.folder} is$"
        with pytest.raises(RunError, match=allowed):
            Run.open(run.folder / name)
    with pytest.raises(RunError, match=r"8\.npz is not readable as JSON: it is no text$"):
        read_config(run.folder / "checkpoints" / "8.npz")


def test_a_file_beside_no_run_is_no_run_folder(tmp_path):
    (tmp_path / "letter").write_text("{}")
    with pytest.raises(RunError, match="is a file; allowed: a run folder, which has a con"):
        Run.open(tmp_path / "letter")


def test_a_config_is_replaced_whole(run):
    rewrite_config(run.folder, {"settings": {}, "note": "α"})
    assert read_config(run.folder) == {"settings": {}, "note": "α"}
    assert not list(run.folder.glob(".config*"))


@pytest.mark.parametrize("horizon", [0, -3, "x", 2.5, True, [1000], 10**400])
def test_a_horizon_that_no_episode_has_is_named(tmp_path, horizon):
    (tmp_path / "config.json").write_text(json.dumps({"settings": {}, "horizon": horizon}))
    with pytest.raises(RunError, match=r"config.json has the horizon .*; allowed: a whole number"):
        read_config(tmp_path)
