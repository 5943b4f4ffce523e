"""An exported policy does on NumPy alone, as ONNX or as C what the trained one does."""

import json
import os
import shutil
import subprocess
import sys

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

import cmbpo
from cmbpo import cli, columns
from cmbpo.evaluation.evaluate import load_policy
from cmbpo.networks import Normaliser, Policy
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import EnvSettings, PolicySettings, TrainSettings
from cmbpo.tasks.point_circle import PointCircle

SUFFIXES = (".npz", ".onnx", ".h")


class Kettle(gymnasium.Env):
    """Something whose action runs from 10 to 20 and from −1 to 0."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Box(
        np.array([10.0, -1.0]), np.array([20.0, 0.0]), dtype=np.float64
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {"cost": 0.0}


gymnasium.register("Kettle-v0", entry_point=lambda **options: Kettle(**options))


def trained(folder, env_id):
    """A run whose policy was not trained but is none of the untrained ones either."""
    settings = TrainSettings(
        algo="cpo",
        env_id=env_id,
        log_dir=str(folder),
        cost_limit=(5.0,),
        env=EnvSettings(horizon=9) if env_id == "Kettle-v0" else EnvSettings(),
        policy=PolicySettings(hidden=(16, 8), last_layer_scale=1.0),
    )
    p = settings.policy
    key = jax.random.key(3)
    policy = Policy(4, 2, hidden=p.hidden, log_std=-1.0, last_layer_scale=1.0, key=key)
    moved = Normaliser(jnp.array([1.0, -2.0, 0.5, 0.0]), jnp.array([0.5, 3.0, 1.0, 10.0]))
    policy = eqx.tree_at(lambda q: q.normaliser, policy, moved)
    with Run.create(settings) as run:
        run.save({"learner": {"policy": policy}}, 1)
    return run.folder


@pytest.fixture(params=["PointCircle-v0", "Kettle-v0"])
def run(request, tmp_path):
    return trained(tmp_path / "runs", request.param)


@pytest.fixture
def point(tmp_path):
    return trained(tmp_path / "runs", "PointCircle-v0")


def exported(run, path, monkeypatch, *flags):
    monkeypatch.setattr(sys, "argv", ["cmbpo", "export", str(run), str(path), *flags])
    cli.main()


def test_it_acts_as_the_agent_does_where_jax_cannot_be_imported(run, tmp_path, monkeypatch):
    robot = tmp_path / "robot"
    exported(run, robot / "policy.npz", monkeypatch)
    obs = np.random.default_rng(0).normal(0.0, 5.0, (200, 4))
    np.save(robot / "obs.npy", obs)
    code = (
        "import sys\n"
        "for name in ('jax', 'equinox', 'cmbpo', 'gymnasium', 'scipy'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from numpy_policy import load\n"
        "policy, obs = load('policy.npz'), np.load('obs.npy')\n"
        "np.save('act.npy', policy(obs)); np.save('one.npy', policy(obs[0]))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=robot, check=True)
    act, expected = np.load(robot / "act.npy"), cmbpo.load(run).predict(obs)
    np.testing.assert_allclose(act, expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(np.load(robot / "one.npy"), expected[0], atol=1e-5, rtol=0)
    assert np.std(act, axis=0).min() > 0.1, "the actions are no constants"


def test_the_model_acts_as_the_agent_does(run, tmp_path, monkeypatch):
    exported(run, tmp_path / "policy.onnx", monkeypatch)
    obs = np.random.default_rng(0).normal(0.0, 5.0, (200, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    expected = cmbpo.load(run).predict(obs)
    # single precision tells two numbers near 20 apart from 2e-6 on
    within = 1e-6 * max(1.0, np.abs(expected).max())
    acts = np.asarray(session.run(None, {"obs": obs})[0])
    np.testing.assert_allclose(acts, expected, atol=within, rtol=0)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler cc")
def test_the_header_acts_as_the_agent_does(run, tmp_path, monkeypatch):
    exported(run, tmp_path / "policy.h", monkeypatch)
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "policy.h"\n'
        "int main(void) { float obs[] = {1, 2, 3, 4}, act[2]; int wrong = policy_act(obs, act);"
        ' printf("%.9g %.9g", act[0], act[1]); return wrong; }'
    )
    subprocess.run(["cc", "main.c", "-o", "main", "-lm"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    expected = cmbpo.load(run).predict([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(list(map(float, said.split())), expected, atol=1e-5, rtol=0)


def test_how_it_is_used_is_told(point, tmp_path, monkeypatch, capsys):
    for suffix, said in zip(
        SUFFIXES, ("from numpy_policy", '{"obs":', "walk_act(obs"), strict=True
    ):
        exported(point, tmp_path / f"walk{suffix}", monkeypatch)
        told = capsys.readouterr().out
        assert told.startswith(f"{tmp_path / 'walk'}{suffix}: the deterministic policy of {point}")
        assert said in told


def test_what_is_known_of_the_policy_goes_with_it(point, tmp_path, monkeypatch):
    def told():
        exported(point, tmp_path / "policy.onnx", monkeypatch)
        session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
        return session.get_modelmeta().custom_metadata_map

    assert "env_steps" not in told(), "nothing is recorded"
    with Run.resume(point) as run:
        for steps in (100, 200):
            run.record({columns.ENV_STEPS: steps})
        run.save({"learner": {"policy": load_policy(run, PointCircle())}}, 2)
        run.record({columns.ENV_STEPS: 300})
    known = told()
    assert known["env_steps"] == "200", "those of the checkpoint, not of the last row"
    assert known["task"] == "PointCircle-v0"
    assert (known["algorithm"], known["seed"]) == ("cpo", "0")
    assert json.loads(known["cost_limit"]) == [5.0]
    assert json.loads(known["obs_names"]) == list(PointCircle().obs_names)


def test_without_onnx_a_sentence_names_the_extra(point, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SystemExit, match=r'not installed: pip install "cmbpo\[onnx\]"'):
        exported(point, tmp_path / "policy.onnx", monkeypatch)
    for suffix in (".npz", ".h"):
        exported(point, tmp_path / f"policy{suffix}", monkeypatch)


def test_a_mistake_is_one_sentence(run, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"allowed: a name that ends in .npz, .onnx, .h$"):
        exported(run, tmp_path / "policy.pt", monkeypatch)
    with pytest.raises(SystemExit, match=r"'2.h'; allowed: letters, digits and _ before .h"):
        exported(run, tmp_path / "2.h", monkeypatch)
    for suffix in SUFFIXES:
        with pytest.raises(SystemExit, match="/nowhere is no run folder"):
            exported("/nowhere", tmp_path / f"policy{suffix}", monkeypatch)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("numpy_policy.py", b"# a controller of my own\n"),
        ("policy.npz", b"measurements"),
        ("numpy_policy.py", b""),
        ("policy.onnx", b"another network"),
        ("policy.h", b"#pragma once"),
    ],
)
def test_what_no_export_wrote_is_not_replaced(point, tmp_path, monkeypatch, name, content):
    (tmp_path / name).write_bytes(content)
    path = tmp_path / ("policy.npz" if name == "numpy_policy.py" else name)
    with pytest.raises(SystemExit, match=rf"{name} is there already and no export wrote it"):
        exported(point, path, monkeypatch)
    assert (tmp_path / name).read_bytes() == content
    assert set(os.listdir(tmp_path)) == {name, "runs"}


def test_an_archive_of_other_arrays_is_not_replaced(point, tmp_path, monkeypatch):
    np.savez(tmp_path / "policy.npz", mean=np.zeros(3))
    with pytest.raises(SystemExit, match=r"policy.npz is there already"):
        exported(point, tmp_path / "policy.npz", monkeypatch)
    assert np.load(tmp_path / "policy.npz").files == ["mean"]


@pytest.mark.parametrize("name", ["policy.npz", "numpy_policy.py", "policy.onnx", "policy.h"])
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_written_through_a_link(point, tmp_path, monkeypatch, name, there):
    target = tmp_path / "elsewhere"
    if there:
        target.write_text("mine")
    (tmp_path / name).symlink_to(target)
    path = tmp_path / ("policy.npz" if name == "numpy_policy.py" else name)
    with pytest.raises(SystemExit, match=f"{name} is a symbolic link; allowed: a file"):
        exported(point, path, monkeypatch)
    assert target.read_text() == "mine" if there else not target.exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_export_is_replaced_by_the_next_one(point, tmp_path, monkeypatch, suffix):
    path = tmp_path / f"policy{suffix}"
    exported(point, path, monkeypatch)
    first = path.stat().st_ino
    exported(point, path, monkeypatch)
    assert path.stat().st_ino != first
    beside = {"numpy_policy.py"} if suffix == ".npz" else set()
    assert {path.name for path in tmp_path.iterdir()} == {path.name, "runs"} | beside


def test_the_best_policy_is_exported_where_it_is_asked_for(point, tmp_path, monkeypatch):
    key = jax.random.key(9)
    best = Policy(4, 2, hidden=(16, 8), log_std=-1.0, last_layer_scale=1.0, key=key)
    with pytest.raises(SystemExit, match=r"has no best.npz: no update has kept the limits"):
        exported(point, tmp_path / "policy.npz", monkeypatch, "--best")
    with Run.resume(point) as run:
        run.save_best(best, {"update": 1, "env_steps": 9, "return": 2.0, "cost": [3.0]})
    exported(point, tmp_path / "policy.npz", monkeypatch, "--best")
    weight = np.load(tmp_path / "policy.npz")["weight_0"]
    np.testing.assert_array_equal(weight, best.net.layers[0].weight)


@pytest.mark.parametrize("suffix", [".npz", ".onnx", ".h"])
def test_damaged_records_do_not_keep_a_policy_from_its_robot(
    point, tmp_path, monkeypatch, capsys, suffix
):
    folder = shutil.copytree(Run.open(point).folder, tmp_path / "damaged")
    (folder / "progress.csv").write_bytes(bytes(2000))
    exported(folder, tmp_path / f"policy{suffix}", monkeypatch)
    assert (tmp_path / f"policy{suffix}").stat().st_size > 0
    monkeypatch.setattr(sys, "argv", ["cmbpo", "evaluate", str(folder), "--episodes", "1"])
    cli.main()
    assert "cost per episode" in capsys.readouterr().out
