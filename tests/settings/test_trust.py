"""A run folder of somebody else's has nothing imported, read elsewhere or sent until trusted."""

import os
import signal
import sys
from dataclasses import replace

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cmbpo
from cmbpo import cli
from cmbpo.networks import Policy
from cmbpo.runs.run_folder import Run
from cmbpo.settings import trust
from cmbpo.settings.schema import EnvSettings, TrainSettings
from cmbpo.training import loop
from tests.tiny import tiny

STRANGE = '''
"""Notes that it was imported, and registers an environment."""
from pathlib import Path
import gymnasium
import numpy as np

Path(__file__).with_name("imported").touch()

class Still(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        return np.zeros(2), 1.0, False, False, {"cost": 0.0}

gymnasium.register("Still-v0", entry_point=lambda **options: Still(), max_episode_steps=5)
'''


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A run on an environment of a module that lies in the working folder."""
    (tmp_path / "strange_module.py").write_text(STRANGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "strange_module", raising=False)
    monkeypatch.delitem(gymnasium.registry, "Still-v0", raising=False)
    settings = tiny("cpo", "runs", env_id="strange_module:Still-v0", cost_limit=(5.0,))
    policy = Policy(2, 1, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(0))
    with Run.create(settings) as run:
        run.save({"learner": {"policy": policy}}, 1)
    return run.folder


def typed(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["cmbpo", *map(str, words)])
    cli.main()


def commands(folder):
    return [
        ("evaluate", folder, "--episodes", "1"),
        ("export", folder, "policy.npz"),
        ("train", "--resume", folder),
        ("train", "--config", folder / "config.json"),
        ("watch", folder, "--video", "film.mp4"),
    ]


@pytest.mark.parametrize("which", range(5))
def test_no_command_imports_what_a_run_folder_names(strange, monkeypatch, tmp_path, which):
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(SystemExit, match=r"import the module 'strange_module'.*--trust") as refusal:
        typed(monkeypatch, *commands(strange)[which])
    assert "\n" not in str(refusal.value)
    assert "strange_module" not in sys.modules
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("which", range(2))
def test_it_is_imported_for_those_who_trust_it(strange, monkeypatch, tmp_path, which):
    typed(monkeypatch, *commands(strange)[which], "--trust")
    assert (tmp_path / "imported").exists()


def test_python_asks_for_the_same_trust(strange, tmp_path):
    with pytest.raises(ValueError, match=r"'strange_module'.*trust=True"):
        cmbpo.load(strange)
    assert not (tmp_path / "imported").exists()
    assert cmbpo.load(strange, trust=True).predict(np.zeros(2)).shape == (1,)


def test_an_id_that_the_user_gives_is_the_users_own_word(strange):
    assert cmbpo.load(strange, env="strange_module:Still-v0").predict(np.zeros(2)).shape == (1,)


OWN = TrainSettings(env_id="Still-v0")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (replace(OWN, env_id="far:Still-v0"), "'far'"),
        (replace(OWN, wandb=True), "send its records to Weights & Biases"),
        (replace(OWN, init_from="/home/other/run"), "read another, '/home/other/run'"),
    ],
)
def test_to_train_on_is_refused_and_the_way_on_is_told(settings, said):
    with pytest.raises(ValueError, match=f"{said}.*--trust"):
        trust.require_for_training(settings)
    assert trust.flag_for_training(settings) == " --trust"


@pytest.mark.parametrize(
    "env_id", ["Still-v0", "other/Still-v0", "cmbpo/AntSafe-v0", "python:Cart"]
)
def test_what_is_installed_or_made_in_python_needs_no_trust(env_id):
    settings = replace(OWN, env_id=env_id, env=EnvSettings(horizon=3))
    trust.require_for_training(settings)
    assert trust.flag_for_training(settings) == trust.flag_for_acting(settings) == ""


def test_a_loaded_agent_learns_nothing_from_elsewhere(tmp_path):
    settings = tiny("cpo", tmp_path, init_from="/home/other/run")
    policy = Policy(4, 2, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(0))
    with Run.create(settings) as run:
        run.save({"learner": {"policy": policy}}, 1)
    with pytest.raises(ValueError, match="read another, '/home/other/run'"):
        cmbpo.load(run.folder).learn()


def test_a_policy_that_is_not_finite_does_not_act(tmp_path, monkeypatch):
    policy = Policy(4, 2, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(0))
    broken = eqx.tree_at(lambda p: p.net.layers[0].bias, policy, jnp.full(8, jnp.nan))
    with Run.create(tiny("cpo", tmp_path)) as run:
        run.save({"learner": {"policy": broken}}, 1)
    files = [tmp_path / f"p{suffix}" for suffix in (".npz", ".onnx", ".h")]
    for words in (("evaluate", run.folder), *(("export", run.folder, file) for file in files)):
        with pytest.raises(SystemExit, match="'net/layers/0/bias' that are not finite"):
            typed(monkeypatch, *words)
    with pytest.raises(ValueError, match="not finite"):
        cmbpo.load(run.folder)
    assert not any(file.exists() for file in files)


def test_an_interrupted_run_names_the_flag_that_it_needs(strange, monkeypatch, capsys):
    del strange
    make = loop.make_trainer

    def interrupted(settings, task):
        os.kill(os.getpid(), signal.SIGINT)
        return make(settings, task)

    monkeypatch.setattr(loop, "make_trainer", interrupted)
    folder, _ = loop.run(tiny("cpo", "runs", env_id="strange_module:Still-v0", cost_limit=(5.0,)))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"interrupted; go on with: cmbpo train --resume {folder} --trust"
    with pytest.raises(ValueError, match="'strange_module'"):
        loop.resume(folder)
    loop.resume(folder, trusted=True)
    assert capsys.readouterr().out.splitlines()[-1] == last
