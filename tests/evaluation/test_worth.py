"""An export says what its policy was found to be worth without noise, or that nobody has looked."""

import json
import sys

import jax
import numpy as np
import onnxruntime
import pytest

from cmbpo import cli, columns
from cmbpo.evaluation import evaluate, evaluated
from cmbpo.evaluation.evaluate import load_policy
from cmbpo.evaluation.evaluated import Episodes, Evaluated
from cmbpo.networks import Policy
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import PolicySettings, TrainSettings
from cmbpo.tasks.point_circle import PointCircle


@pytest.fixture
def run(tmp_path):
    """A run of 200 steps, with a policy that nobody trained."""
    settings = TrainSettings(
        algo="cpo",
        env_id="PointCircle-v0",
        log_dir=str(tmp_path / "runs"),
        policy=PolicySettings(hidden=(4,)),
    )
    policy = Policy(4, 2, hidden=(4,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(0))
    with Run.create(settings) as run:
        run.record({columns.ENV_STEPS: 200})
        run.save({"learner": {"policy": policy}}, 1)
    return run.folder


def keep_evaluation(run, *, cost, env_steps=200, best=False, of=None):
    """Two episodes without noise, which differ by 2 in cost and 100 in return, and free ones."""
    costs = np.array([[cost - 1.0], [cost + 1.0]])
    lengths, ended = np.array([1000, 1000]), np.zeros(2, bool)
    kinds = [
        Episodes(np.array([1000.0, 1100.0]), spent, lengths, ended) for spent in (costs, 0 * costs)
    ]
    kept = Evaluated(of or Run.open(run).id, env_steps, best, 0, 1000, ("strip",), (10.0,), *kinds)
    evaluated.write(run / evaluated.file_of(best=best), kept)


def exported(run, capsys, monkeypatch, *flags, to="policy.npz"):
    path = run.parent / to
    monkeypatch.setattr(sys, "argv", ["cmbpo", "export", str(run), str(path), *flags])
    cli.main()
    return capsys.readouterr().out, path


def test_what_nobody_has_looked_at_is_said_to_be_unknown(run, capsys, monkeypatch):
    told, _ = exported(run, capsys, monkeypatch)
    assert "not known: training held the limit with noise, this acts without." in told
    command = f"cmbpo evaluate {run} --episodes 100 --out {run}/evaluation.json"
    assert f" To know it: {command}\n" in told


def test_the_command_that_is_told_makes_it_known(run, capsys, monkeypatch):
    told, _ = exported(run, capsys, monkeypatch)
    (line,) = (line for line in told.splitlines() if "To know it: " in line)
    words = line.partition("To know it: ")[2].replace("--episodes 100", "--episodes 2").split()
    monkeypatch.setattr(sys, "argv", words)
    cli.main()
    told, _ = exported(run, capsys, monkeypatch)
    assert "2 episodes without noise: return " in told


def test_costs_without_noise_are_told_and_those_above_the_limit_first(run, capsys, monkeypatch):
    keep_evaluation(run, cost=4.0)
    told, _ = exported(run, capsys, monkeypatch)
    # Student's t of two numbers: 12.706 standard errors
    assert "\n2 episodes without noise: return 1,050 ± 635, cost 4.00 ± 12.71 per 1000" in told
    assert " steps, limit 10\n" in told
    keep_evaluation(run, cost=11.0)
    told, _ = exported(run, capsys, monkeypatch)
    assert "\nABOVE ITS LIMIT: 2 episodes without noise" in told


@pytest.mark.parametrize("other", [{"env_steps": 100}, {"best": True}, {"of": "another run"}])
def test_an_evaluation_of_another_policy_says_nothing(run, capsys, monkeypatch, other):
    keep_evaluation(run, cost=4.0, **other)
    (kept,) = run.glob("evaluation*.json")
    kept.rename(run / evaluated.FILE)
    told, _ = exported(run, capsys, monkeypatch)
    assert "what it costs is not known" in told


def test_the_command_it_names_is_obeyed_with_success_where_a_run_was_killed(
    run, capsys, monkeypatch
):
    """Its records then go on after the checkpoint that the policy is of."""
    with Run.resume(run) as killed:
        killed.record({columns.ENV_STEPS: 300})
    evaluate.main(run, episodes=2, seed=0, out=run / evaluated.FILE)
    told, _ = exported(run, capsys, monkeypatch)
    assert "2 episodes without noise" in told


def test_that_of_the_best_policy_is_told_with_it(run, capsys, monkeypatch):
    with Run.resume(run) as open_run:
        policy = load_policy(open_run, PointCircle())
        open_run.save_best(policy, {"update": 1, "env_steps": 9, "return": 2.0, "cost": [3.0]})
    told, _ = exported(run, capsys, monkeypatch, "--best")
    command = f"cmbpo evaluate {run} --best --episodes 100 --out {run}/evaluation-best.json"
    assert f" To know it: {command}\n" in told
    keep_evaluation(run, cost=4.0, env_steps=9, best=True)
    keep_evaluation(run, cost=40.0)
    told, _ = exported(run, capsys, monkeypatch, "--best")
    assert "\n2 episodes without noise" in told
    told, _ = exported(run, capsys, monkeypatch)
    assert "\nABOVE ITS LIMIT: 2 episodes without noise" in told


def test_it_goes_with_the_policy(run, capsys, monkeypatch):
    keep_evaluation(run, cost=4.0)
    _, path = exported(run, capsys, monkeypatch, to="policy.onnx")
    known = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert (known["episodes"], known["mean_return"]) == ("2", "1050")
    assert json.loads(known["cost"]) == [4.0]


def test_a_damaged_evaluation_does_not_keep_a_policy_from_its_robot(run, capsys, monkeypatch):
    (run / evaluated.FILE).write_text("{}")
    told, path = exported(run, capsys, monkeypatch)
    assert f"what it costs is not known: {run}/evaluation.json is no evaluation: it" in told
    assert path.exists()


def test_the_command_that_is_told_can_be_pasted(run, capsys, monkeypatch):
    spaced = run.rename(run.parent / "my run")
    told, _ = exported(spaced, capsys, monkeypatch)
    assert f"cmbpo evaluate '{spaced}' --episodes 100 --out '{spaced}/evaluation.json'\n" in told
