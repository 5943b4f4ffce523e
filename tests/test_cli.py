"""Commands as a user types them: a mistake is one sentence, help names what there is."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cmbpo import __version__ as cmbpo_version
from cmbpo import cli, load
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.evaluation import numpy_policy
from cmbpo.runs.config import write_config
from cmbpo.runs.errors import RunError
from cmbpo.settings import registry
from cmbpo.settings.presets import preset
from cmbpo.training import loop
from tests.tiny import flags as tiny_flags


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
        (["export", "/nowhere", "policy.npz"], "/nowhere"),
        (["train", "--preset", "fast"], "unknown preset 'fast'; there are default, paper"),
        (["train", "--resume", "/nowhere"], "/nowhere"),
        (["evaluate", "/nowhere"], "/nowhere"),
        (["tasks", "--render", "Moon", "a.png"], "'Moon'"),
        (["tasks", "--render", "AntSafe"], "--render is 'AntSafe'; allowed: a task and a file, as"),
        # as a variable that is not set leaves them
        (["train", "--algo", ""], "unknown algorithm ''"),
        (["bound", "--out", "x.txt"], "--out is 'x.txt'; allowed: a name in .png, .pdf or .svg"),
        (["bound", "--out", "/nowhere/x.png"], "there is no folder /nowhere"),
        (["train", "--env-id", ""], "'' cannot be made"),
        (["train", "--preset", ""], "unknown preset ''"),
        (["train", "--config", ""], ". is no run folder"),
        (["train", "--resume", "", "--seed", "3"], "--seed cannot be given with --resume"),
        (["train", "--resume", "x", "--total-steps", "abc"], "--total-steps: 'abc' is no whole"),
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
        ("300000",),
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
    with pytest.raises(SystemExit) as stop:
        cmbpo(monkeypatch, "train")
    assert stop.value.code == "cmbpo train: motor 3\nstands at update 6"


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
        simulator,
        "main",
        lambda json, **asked: measure(json, **asked, num_envs=2, threads=1, steps=2, rounds=1),
    )
    words = ["--envs", "PointCircle", "HopperVelocity", "--json", str(tmp_path / "a.json")]
    cmbpo(monkeypatch, "bench", "simulator", *words)
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert len(rows) == 2


def test_whole_numbers_may_be_written_as_users_write_them(monkeypatch):
    asked = []
    monkeypatch.setattr(loop, "run", asked.append)
    monkeypatch.setattr(loop, "resume", lambda _, total_steps, **__: asked.append(total_steps))
    words = ["--total-steps", "1e6", "--seed", "3.0", "--policy.hidden", "1e1", "2_0"]
    cmbpo(monkeypatch, "train", *words)
    cmbpo(monkeypatch, "train", "--resume", "x", "--total-steps", "2.5e6")
    (settings, more) = asked
    assert (settings.total_steps, settings.seed, settings.policy.hidden) == (10**6, 3, (10, 20))
    assert more == 2_500_000


def test_what_is_missing_behind_a_flag_is_named_by_the_command(monkeypatch, capsys):
    for flag in ("--algo", "--resume", "--total-steps", "--seed"):
        with pytest.raises(SystemExit):
            cmbpo(monkeypatch, "train", flag)
        said = capsys.readouterr().err
        assert f"Missing value for argument '{flag}'" in said
        assert "cmbpo train --help" in said


@pytest.mark.parametrize("word", ["1.5", "many", "nan", "inf", "1e999999999", "", "1e-1"])
def test_what_is_no_whole_number_is_named(word, monkeypatch, capsys):
    for flag in ("--seed", "--total-steps"):
        with pytest.raises(SystemExit):
            cmbpo(monkeypatch, "train", flag, word)
        assert flag in (said := capsys.readouterr().err)
        assert f"{word!r}" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "18446744073709551616"], "0 to 4,294,967,295"),
        (["--archive-size", "1000000000000"], "1 to 2,000,000"),
        (["--policy.hidden", "1000000", "1000000"], "1 to 65,536"),
        (["--critic.batch-size", "0"], "1 to 2,147,483,647"),
        (["--critic.hidden", "-3"], "1 to 65,536"),
        (["--critic.hidden", "0"], "1 to 65,536"),
        (["--rollout.lanes", "0"], "2 to 1,000,000"),
        (["--initial-steps", "-5"], "1 to 100,000,000"),
        (["--critic.learning-rate", "-1"], "above 0.0"),
        (["--critic.learning-rate", "nan"], "above 0.0"),
        (["--critic.learning-rate", "inf"], "above 0.0"),
        (["--dynamics.batch-size", "-5"], "--ensemble.batch-size"),
        (["--ensemble.batch-size", "-5"], "1 to 2,147,483,647"),
        (["--ensemble.hidden", "0"], "1 to 65,536"),
        (["--dynamics.learning-rate", "inf"], "0.001 always"),
        (["--dynamics.learning-rate", "0"], "0.001 always"),
        (["--dynamics.max-holdout", "0"], "5000 always"),
        (["--rollout.probe", "0"], "half of rollout.lanes"),
        (["--algo", "ppo-lag", "--clipped.minibatches", "0"], "1 to 2,147,483,647"),
        (["--algo", "ppo-lag", "--clipped.clip", "-1"], "0.2 always"),
        (["--trust-region.cg-iterations", "-1"], "10 always"),
    ],
)
def test_flags_that_ended_in_a_traceback_or_silence_are_told_what_is_allowed(
    words, said, monkeypatch
):
    sentence = refused(monkeypatch, "train", *words)
    assert said in sentence
    flag = next(word for word in reversed(words) if word.startswith("--"))
    assert flag in sentence or flag[2:].replace("-", "_") in sentence


def stop(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_training_shows_in_the_status(number, status, monkeypatch, tmp_path):
    ended = []

    def interrupted(*_, **__) -> None:
        stop(number)
        ended.append("its update")

    monkeypatch.setattr(loop, "run", interrupted)
    monkeypatch.setattr(loop, "resume", interrupted)
    for words in ([], ["--resume", str(tmp_path)]):
        with pytest.raises(SystemExit) as end:
            cmbpo(monkeypatch, "train", *words)
        assert end.value.code == status
    assert len(ended) == 2


def test_a_second_one_stops_at_once_and_shows_too(monkeypatch):
    def interrupted(_) -> None:
        stop(signal.SIGTERM)
        stop(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(loop, "run", interrupted)
    with pytest.raises(SystemExit) as end:
        cmbpo(monkeypatch, "train")
    assert end.value.code == 143


@pytest.mark.slow
def test_what_learns_from_a_replay_buffer_is_trained_evaluated_and_exported_like_any_other(
    monkeypatch, tmp_path, capsys
):
    words = tiny_flags("sac-lag", total_steps=600)
    cmbpo(
        monkeypatch,
        "train",
        "--algo",
        "SACLag",
        "--device",
        "cpu",
        "--log-dir",
        str(tmp_path),
        *words,
    )
    (folder,) = tmp_path.glob("sac-lag-PointCircle/*")
    cmbpo(monkeypatch, "evaluate", str(folder), "--episodes", "2")
    assert "episodes within the limit" in capsys.readouterr().out
    cmbpo(monkeypatch, "export", str(folder), str(tmp_path / "policy.npz"))
    agent, exported = load(folder), numpy_policy.load(tmp_path / "policy.npz")
    obs = np.random.default_rng(0).normal(size=(50, len(agent.task.obs_names)))
    np.testing.assert_allclose(exported(obs), agent.predict(obs), atol=1e-5)
    assert "--replay.ratio" in shown_by_help(monkeypatch, capsys, "sac-lag")
    assert "--replay.ratio" not in shown_by_help(monkeypatch, capsys, "cpo")


def shown_by_help(monkeypatch, capsys, algo: str) -> str:
    with pytest.raises(SystemExit):
        cmbpo(monkeypatch, "train", "--algo", algo, "--help")
    return capsys.readouterr().out


def test_what_fails_after_an_interruption_is_still_told(monkeypatch):
    def interrupted(_) -> None:
        stop(signal.SIGINT)
        raise RunError("could not write runs: No space left on device")

    monkeypatch.setattr(loop, "run", interrupted)
    assert "No space left" in refused(monkeypatch, "train")


def test_an_environment_that_fails_is_told_without_a_traceback(monkeypatch):
    def fails(_) -> None:
        raise EnvironmentFailure("robot.py, line 3: motor 3 does not answer.")

    monkeypatch.setattr(loop, "run", fails)
    assert refused(monkeypatch, "train") == (
        "cmbpo train: robot.py, line 3: motor 3 does not answer."
    )


def test_a_lack_of_memory_says_what_needs_less(monkeypatch):
    def fails(_) -> None:
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr(loop, "run", fails)
    said = refused(monkeypatch, "train")
    assert "Unable to allocate 7.28 TiB" in said
    assert "--archive-size" in said


def test_an_error_of_this_package_keeps_its_traceback(monkeypatch):
    def fails(_) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(loop, "run", fails)
    with pytest.raises(KeyError):
        cmbpo(monkeypatch, "train")


def shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = f'"{sys.executable}" -m cmbpo'
    return subprocess.run(
        ["bash", "-c", command.replace("cmbpo", program, 1)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def test_an_output_that_is_full_or_unread_is_no_traceback():
    full = shell("cmbpo > /dev/full")
    assert full.stderr == "cmbpo: standard output: No space left on device\n"
    assert full.returncode == 1
    unread = shell("cmbpo | head -0; exit ${PIPESTATUS[0]}")
    assert (unread.returncode, unread.stderr) == (141, "")


def test_help_that_nobody_reads_is_no_traceback():
    """It ends in SystemExit, and is written as it ends."""
    unread = shell("cmbpo train --help | true; exit ${PIPESTATUS[0]}")
    assert (unread.returncode, unread.stderr) == (141, "")


def test_help_fits_an_ascii_output():
    done = shell("cmbpo train --help", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_a_renderer_that_is_none_is_named():
    done = shell("cmbpo tasks", MUJOCO_GL="foo")
    assert done.stderr == (
        "cmbpo tasks: MUJOCO_GL is 'foo'; allowed: egl, osmesa, glfw, or leave it out\n"
    )


@pytest.mark.slow
def test_training_outlives_its_reader(tmp_path):
    words = tiny_flags("cpo", total_steps=1000, checkpoint_every=1)
    command = f"cmbpo train --algo cpo --device cpu --log-dir {tmp_path} {' '.join(words)}"
    done = shell(f"{command} | head -1; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0
    assert done.stderr == (
        "standard output cannot be written (Broken pipe); training goes on without it\n"
    )
    (folder,) = tmp_path.glob("cpo-PointCircle/*")
    assert len((folder / "progress.csv").read_text().splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.15 * i for i in range(1, 24)])
def test_ctrl_c_while_it_starts_is_quiet(after, tmp_path):
    words = tiny_flags("cpo", total_steps=10**6)
    command = [sys.executable, "-m", "cmbpo", "train", "--algo", "cpo", "--device", "cpu"]
    with subprocess.Popen(
        [*command, "--log-dir", str(tmp_path), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=100)
    # To a shell, a process that a signal killed and one that ends with 130 are the same.
    assert process.returncode in (130, -signal.SIGINT)
    assert said in ("", "finishing this update; again to stop at once\n")


def at_random(code: str) -> None:
    """Outside the checks of types that tests run under: users have none of them."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"from random import Random\n{code}"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr


def test_any_line_ends_in_its_work_or_in_a_sentence():
    """And at least half of them are understood."""
    at_random(
        "from tests.command_lines import attempt, line\n"
        "lines = [line(Random(seed)) for seed in range(120)]\n"
        "ends = [attempt(words) for words in lines]\n"
        "for words, end in zip(lines, ends):\n"
        "    assert end.status in (0, 1, 2), words\n"
        "    assert end.status == 0 or end.said.strip(), words\n"
        "assert sum(end.parsed for end in ends) >= 60\n"
        "assert len({end.began for end in ends}) > 8\n"
    )


def test_any_config_is_settings_or_a_sentence_that_names_the_file(tmp_path):
    at_random(
        "from pathlib import Path\n"
        "from cmbpo.runs.config import read_config, settings_from_json\n"
        "from cmbpo.runs.errors import RunError\n"
        "from tests.mutated_configs import mutated\n"
        f"path, refused = Path({str(tmp_path)!r}) / 'config.json', 0\n"
        "for seed in range(300):\n"
        "    path.write_text(mutated(Random(seed)))\n"
        "    try: settings_from_json(read_config(path))\n"
        "    except RunError as error:\n"
        "        assert 'config.json' in str(error), error\n"
        "        refused += 1\n"
        "assert 150 < refused < 290, refused\n"
    )


def test_any_call_returns_or_is_a_sentence():
    at_random(
        "from tests.python_calls import attempt, call\n"
        "for seed in range(400):\n"
        "    one = call(Random(seed))\n"
        "    assert attempt(one) != '', one.text\n"
    )


def test_python_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "cmbpo", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == cmbpo_version


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["expe"], ["experiment"]),
        (["train", "--algo", "trpo"], ["trpo-lag", "trpo"]),
        (["train", "--env-id", "AntC"], ["AntCircle-v0"]),
        (["train", "--trust-region.max"], ["--trust-region.max-kl"]),
        (["experiment", "grid", "--stop"], ["--stop-losers"]),
    ],
)
def test_bash_completes(words, offered, monkeypatch, capsys, tmp_path):
    cmbpo(monkeypatch, "completion", "bash")
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    typed = " ".join(["cmbpo", *words])
    code = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _tyro_cmbpo;"
        " printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered
