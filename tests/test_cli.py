"""Commands as a user types them: a mistake is one sentence, help names what there is."""

import json
import subprocess
import sys

import pytest

from cmbpo import cli
from cmbpo.runs.config import write_config
from cmbpo.settings import registry
from cmbpo.settings.presets import preset
from cmbpo.training import loop


def cmbpo(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["cmbpo", *args])
    cli.main()


def test_help_names_every_command_algorithm_and_task(monkeypatch, capsys):
    cmbpo(monkeypatch, "--help")
    printed = capsys.readouterr().out
    for name in (*cli.COMMANDS, *registry.ALGORITHMS, *registry.TASKS):
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
    assert sentence in refused(monkeypatch, *args)


def test_a_preset_shows_in_the_defaults_of_the_flags(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        cmbpo(monkeypatch, "train", "--env-id", "AntSafe-v0", "--preset", "paper", "--help")
    assert "trajectory" in capsys.readouterr().out


def refused(monkeypatch, *args: str) -> str:
    with pytest.raises(SystemExit) as stop:
        cmbpo(monkeypatch, *args)
    assert "\n" not in str(stop.value.code)
    return str(stop.value.code)


def test_settings_out_of_range_are_refused(monkeypatch):
    said = refused(monkeypatch, "train", "--num-envs", "0")
    assert said == "cmbpo train: num_envs is 0; allowed: a whole number, 1 to 100,000"


@pytest.mark.parametrize(
    "words",
    [
        ("--seed", "3"),
        ("--algo", "cpo"),
        ("--env-id", "AntSafe-v0"),
        ("--preset", "paper"),
        ("--config", "config.json"),
        ("--policy.hidden", "8"),
        ("--no-wandb",),
    ],
)
def test_with_resume_nothing_but_the_total_steps_may_be_given(words, monkeypatch):
    said = refused(monkeypatch, "train", "--resume", "/nowhere", *words)
    assert said.startswith(f"cmbpo train: {words[0]} cannot be given with --resume")
    assert said.endswith("allowed: --total-steps, --start-anew and --trust")


def test_resume_goes_on_with_the_folder_and_the_steps_that_are_given(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        loop,
        "resume",
        lambda folder, total_steps, **rest: asked.append((folder, total_steps, rest)),
    )
    cmbpo(monkeypatch, "train", "--resume", str(tmp_path))
    cmbpo(monkeypatch, "train", "--total-steps", "900", "--resume", str(tmp_path))
    cmbpo(monkeypatch, "train", "--resume", str(tmp_path), "--start-anew")
    cmbpo(monkeypatch, "train", "--resume", str(tmp_path), "--trust")
    on = {"start_anew": False, "trusted": False}
    assert asked == [
        (tmp_path, None, on),
        (tmp_path, 900, on),
        (tmp_path, None, on | {"start_anew": True}),
        (tmp_path, None, on | {"trusted": True}),
    ]


def test_to_start_anew_a_run_has_to_be_named(monkeypatch):
    assert "without --resume" in refused(monkeypatch, "train", "--algo", "cpo", "--start-anew")


def test_what_a_failure_adds_stands_after_it(monkeypatch):
    def fail(settings):
        error = ValueError("motor 3")
        error.add_note("stands at update 6")
        raise error

    monkeypatch.setattr(loop, "run", fail)
    assert refused(monkeypatch, "train") == "cmbpo train: motor 3\nstands at update 6"


def test_a_config_that_is_none_is_named(monkeypatch, tmp_path):
    assert "/nowhere" in refused(monkeypatch, "train", "--config", "/nowhere")
    (tmp_path / "config.json").write_text("{}")
    assert "config.json (cmbpo unknown) holds no settings" in refused(
        monkeypatch, "train", "--config", str(tmp_path / "config.json")
    )


def test_a_config_of_an_algorithm_that_is_not_known_is_one_sentence(monkeypatch, tmp_path):
    """As one of a later version may be."""
    write_config(tmp_path, preset("cpo", "PointCircle"), {})
    config = json.loads((tmp_path / "config.json").read_text())
    config["settings"]["algo"] = "sac"
    (tmp_path / "config.json").write_text(json.dumps(config))
    for args in (["train", "--config"], ["train", "--resume"], ["evaluate"], ["export"]):
        after = ["policy.npz"] if args == ["export"] else []
        assert "unknown algorithm 'sac'" in refused(monkeypatch, *args, str(tmp_path), *after)


def test_help_of_an_algorithm_shows_what_it_reads(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        cmbpo(monkeypatch, "train", "--algo", "cpo", "--help")
    printed = capsys.readouterr().out
    assert "--trust-region.max-kl" in printed
    assert "--ensemble" not in printed


def test_the_tasks_are_listed(monkeypatch, capsys):
    cmbpo(monkeypatch, "tasks")
    printed = capsys.readouterr().out
    for name in registry.TASKS:
        assert name in printed


def test_bench_writes_its_measurements(monkeypatch, tmp_path):
    from cmbpo.bench import simulator

    measure = simulator.main
    monkeypatch.setattr(
        simulator, "main", lambda json: measure(json, num_envs=2, threads=1, steps=2, rounds=1)
    )
    cmbpo(monkeypatch, "bench", "simulator", "--json", str(tmp_path / "a.json"))
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == 4
