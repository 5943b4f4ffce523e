"""Commands as a user types them: a mistake is one sentence, help names what there is."""

import json
import subprocess
import sys

import pytest

from cmbpo import cli
from cmbpo.settings import presets


def cmbpo(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["cmbpo", *args])
    cli.main()


def test_help_names_every_command_algorithm_and_task(monkeypatch, capsys):
    cmbpo(monkeypatch, "--help")
    printed = capsys.readouterr().out
    for name in (*cli.COMMANDS, *registry.ALGORITHMS, *presets.TASKS):
        assert name in printed


def test_help_imports_neither_jax_nor_mujoco_nor_gymnasium():
    code = (
        "import sys, cmbpo.cli; sys.argv = ['cmbpo', 'train', '--help']\n"
        "try: cmbpo.cli.main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('jax', 'mujoco', 'gymnasium') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--trust-region.max-kl" in done.stdout


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["fly"], "unknown command 'fly'; there are train, evaluate"),
        (["train", "--algo", "sac"], "unknown algorithm 'sac'; there are cmbpo"),
        (["train", "--env-id", "Humanoid-v5"], "Humanoid-v5: a step reports no cost"),
        (["train", "--env-id", "AntSave-v0"], "'AntSave-v0' cannot be made"),
        (["check", "--env-id", "AntSave-v0"], "'AntSave-v0' cannot be made"),
        (["export", "/nowhere", "policy.npz"], "/nowhere"),
        (["train", "--preset", "fast"], "unknown preset 'fast'; there are default, paper"),
        (["train", "--resume", "/nowhere"], "/nowhere"),
        (["evaluate", "/nowhere"], "/nowhere"),
        (["tasks", "--render", "Moon", "a.png"], "'Moon'"),
    ],
)
def test_a_mistake_is_one_sentence(args, sentence, monkeypatch):
    with pytest.raises(SystemExit) as stop:
        cmbpo(monkeypatch, *args)
    message = str(stop.value.code)
    assert sentence in message
    assert "\n" not in message


def test_a_preset_shows_in_the_defaults_of_the_flags(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        cmbpo(monkeypatch, "train", "--env-id", "AntSafe-v0", "--preset", "paper", "--help")
    assert "trajectory" in capsys.readouterr().out


def test_settings_out_of_range_are_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        cmbpo(monkeypatch, "train", "--num-envs", "0")
    assert "num_envs is 0; allowed: at least 1" in "".join(capsys.readouterr())


def test_the_tasks_are_listed(monkeypatch, capsys):
    cmbpo(monkeypatch, "tasks")
    printed = capsys.readouterr().out
    for name in presets.TASKS:
        assert name in printed


def test_bench_writes_its_measurements(monkeypatch, tmp_path):
    from cmbpo.bench import simulator

    measure = simulator.main
    monkeypatch.setattr(
        simulator, "main", lambda json: measure(json, num_envs=2, threads=1, steps=2, rounds=1)
    )
    cmbpo(monkeypatch, "bench", "simulator", "--json", str(tmp_path / "a.json"))
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == 4
