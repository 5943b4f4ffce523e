"""Experiments as a user types them: they finish, skip, survive failures, stop and go on."""

import csv
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cmbpo.experiments import live, machine, plan
from cmbpo.experiments.progress import Progress, finished, newest, read
from cmbpo.experiments.worker import Worker
from cmbpo.runs import config
from cmbpo.settings.presets import preset

SMALL = (
    "num_envs=120",
    "batch_size=240",
    "checkpoint_every=5",
    "policy.hidden=8",
    "policy.normalise=false",
    "critic.hidden=8",
    "critic.members=1",
    "critic.epochs=1",
    "real_share.min_real=100",
)
"""Too few real samples for CMBPO with 120 copies: it fails, while CPO runs."""


def command(folder: Path, *args: str) -> list[str]:
    cmbpo = [sys.executable, "-m", "cmbpo.cli", "experiment", "table1"]
    common = ["--envs", "PointCircle", "--device", "cpu", "--log-dir", str(folder)]
    return [*cmbpo, *common, *args, "--set", *SMALL]


def rows(folder: Path) -> list[dict[str, str]]:
    path = folder / "progress.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def updates(folder: Path) -> list[int]:
    return [int(row["Train/Epoch"]) for row in rows(folder)]


def wait_until(what, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def trainer_of(folder: Path) -> int:
    """The process that trains in the folder."""
    return int((folder / ".lock").read_text())


def test_what_can_finish_does_and_what_fails_is_reported(tmp_path):
    args = command(tmp_path, "--algos", "cmbpo", "CPO", "--seeds", "1", "--total-steps", "480")
    first = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "cmbpo-PointCircle/seed-000 failed: num_envs is 120; allowed here" in first.stdout
    assert "1 failed, 1 finished" in first.stdout
    assert f"cmbpo report {tmp_path}" in first.stdout
    assert updates(tmp_path / "cpo-PointCircle/seed-000") == [1, 2]
    made = config.read_config(tmp_path / "cpo-PointCircle/seed-000")
    assert made["arm"] == "cpo"
    assert made["command"][1:3] == ["experiment", "table1"]

    before = (tmp_path / "cpo-PointCircle/seed-000/console.txt").read_text()
    second = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert second.returncode == 1
    assert "2 runs" in second.stdout
    assert "1 of them finished before" in second.stdout
    assert (tmp_path / "cpo-PointCircle/seed-000/console.txt").read_text() == before


def test_a_run_goes_on_after_it_was_killed_and_after_ctrl_c(tmp_path):
    folder = tmp_path / "cpo-PointCircle/seed-000"

    def start(total_steps: int) -> subprocess.Popen[str]:
        args = ["--algos", "cpo", "--seeds", "1", "--total-steps", str(total_steps)]
        return subprocess.Popen(command(tmp_path, *args), stdout=subprocess.PIPE, text=True)

    @contextmanager
    def long_run() -> Iterator[subprocess.Popen[str]]:
        had = len(rows(folder))
        with start(100_000_000) as driver:
            try:
                wait_until(lambda: len(rows(folder)) > had + 5)
                yield driver
            finally:
                driver.kill()

    def is_saved() -> bool:
        return (folder / "checkpoints" / f"{updates(folder)[-1]}.npz").exists()

    with long_run() as driver:
        os.kill(trainer_of(folder), signal.SIGKILL)
        printed, _ = driver.communicate(timeout=60)
        assert driver.returncode == 1
        assert "cpo-PointCircle/seed-000 failed: killed by SIGKILL" in printed

    with long_run() as driver:
        driver.send_signal(signal.SIGINT)
        printed, _ = driver.communicate(timeout=60)
        assert driver.returncode == 130
        assert "1 stopped" in printed
        assert "go on with: " in printed
        assert is_saved()

    reached = int(rows(folder)[-1]["TotalEnvSteps"])
    with start(reached + 480) as driver:
        printed, _ = driver.communicate(timeout=120)
        assert driver.returncode == 0, printed
    assert updates(folder) == list(range(1, reached // 240 + 3))


@pytest.mark.parametrize(
    ("name", "tasks", "arms"),
    [
        ("figure2", 3, ("cmbpo", "cpo", "ppo-lag", "trpo-lag", "trpo")),
        ("figure3", 2, ("cmbpo", "cmbpo-no-alpha", "cmbpo-schedule1", "cmbpo-schedule2")),
        ("table1", 3, ("cmbpo", "cpo", "ppo-lag", "trpo-lag")),
    ],
)
def test_an_experiment_is_its_tasks_by_its_arms_by_seeds_each_in_its_own_folder(name, tasks, arms):
    jobs = plan.jobs(name, seeds=range(4), preset="paper")
    assert len({job.name for job in jobs}) == len(jobs) == tasks * len(arms) * 4
    assert {job.arm for job in jobs} == set(arms)
    assert {job.settings.preset for job in jobs} == {"paper"}


@pytest.mark.parametrize("start", ["default", "paper"])
def test_the_ablations_are_those_of_figure_3(start):
    jobs = {job.name: job for job in plan.jobs("figure3", seeds=[0], preset=start)}
    suffix = "" if start == "default" else "-paper"

    def settings(arm: str, task: str):
        return jobs[f"{arm}{suffix}-{task}/seed-000"].settings

    for task, alpha in (("AntSafe", 0.05), ("AntCircle", 0.03)):
        plain = settings("cmbpo", task)
        assert plain == preset("cmbpo", task, start)
        constant = settings("cmbpo-no-alpha", task)
        assert (constant.real_share.rule, constant.real_share.first_alpha) == ("constant", alpha)
        least, most = constant.real_share.min_real, constant.real_share.max_real
        assert least <= alpha * constant.batch_size <= most
        assert replace(constant, real_share=plain.real_share) == plain
        for arm, horizons in (("cmbpo-schedule1", (3, 15)), ("cmbpo-schedule2", (5, 25))):
            scheduled = settings(arm, task)
            assert scheduled.rollout.cut == "schedule"
            assert scheduled.rollout.schedule == (*horizons, 1000)
            assert scheduled.rollout.max_horizon >= horizons[1]
            assert replace(scheduled, rollout=plain.rollout) == plain


def test_settings_given_together_may_depend_on_each_other():
    given = ["dynamics.members=3", "dynamics.elites=2", "policy.hidden=8", "critic.hidden=8,4"]
    (job,) = plan.jobs("table1", seeds=[3], envs=["AntSafe"], algos=["cmbpo"], overrides=given)
    assert (job.settings.ensemble.members, job.settings.ensemble.elites) == (3, 2)
    assert (job.settings.policy.hidden, job.settings.critic.hidden) == ((8,), (8, 4))
    assert job.name == "cmbpo-AntSafe/seed-003"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("batch_size", "allowed: KEY=VALUE"),
        ("batchsize=3", "unknown setting 'batchsize'; there are algo"),
        ("real_share.alpha=3", "unknown setting 'real_share.alpha'; there are real_share.rule"),
        ("real_share=3", "mixing is a group of settings"),
        ("seed.x=3", "seed is one setting"),
        ("batch_size=many", "batch_size is 'many'; allowed: int"),
        ("real_share.rule=half", "real_share.rule is 'half'; allowed: Literal"),
        ("rollout.schedule=1,2", r"rollout.schedule is \(1, 2\); allowed: tuple"),
        ("total_steps=3", "a flag of its own for total_steps"),
        ("real_share.first_alpha=2", "real_share.first_alpha is 2.0; allowed: above 0"),
    ],
)
def test_a_wrong_setting_is_named(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan.jobs("table1", seeds=[0], overrides=[given])


def test_an_unknown_algorithm_is_named():
    with pytest.raises(ValueError, match=r"unknown algorithm 'sac'; there are cmbpo, .*schedule2"):
        plan.jobs("table1", seeds=[0], algos=["sac"])


def test_a_misspelt_task_is_named_before_anything_runs():
    with pytest.raises(ValueError, match="unknown task 'AntSaf'; there are AntSafe"):
        plan.jobs("table1", seeds=[0], envs=["AntSaf"])


def test_a_folder_made_with_other_settings_is_refused_but_more_steps_are_welcome(tmp_path):
    def job(*given: str, total_steps: int = 1000) -> plan.Job:
        return plan.jobs(
            "table1",
            seeds=[0],
            envs=["PointCircle"],
            algos=["cpo"],
            overrides=given,
            total_steps=total_steps,
            log_dir=str(tmp_path),
        )[0]

    assert plan.conflict(job()) is None
    job().folder.mkdir(parents=True)
    config.write_config(job().folder, job().settings, {})
    assert plan.conflict(job("checkpoint_every=3", total_steps=2000)) is None
    epochs = job().settings.critic.epochs
    problem = plan.conflict(job(f"critic.epochs={epochs + 1}"))
    assert problem is not None
    assert f"made with critic.epochs {epochs}, now {epochs + 1}" in problem


def test_an_environment_of_ones_own_asks_for_its_limits_as_an_experiment_takes_them():
    def own(*given: str) -> list[plan.Job]:
        return plan.jobs("table1", seeds=[0], envs=["my_robot:Cook-v0"], overrides=given)

    with pytest.raises(ValueError, match=r"cost_limit is None; .* as in --set cost_limit=25$"):
        own()
    with pytest.raises(ValueError, match=r"\(heat, spill\), as in --set cost_limit=25,25$"):
        own("env.cost_key='heat','spill'", "cost_limit=3")
    assert {job.settings.cost_limit for job in own("cost_limit=25")} == {(25.0,)}


def bad_folders(log: Path) -> dict[str, Path]:
    """Run folders of four seeds that are damaged each in its own way, and what is."""
    wrong = {seed: log / f"cpo-PointCircle/seed-00{seed}" for seed in range(4)}
    for seed in (0, 2, 3):
        wrong[seed].mkdir(parents=True)
    wrong[1].write_text("no folder")
    (wrong[0] / "config.json").write_text('{"settings": {"algo": "cp')
    row = "100,1,1.0,2.0,10.0,5.0\n"
    (wrong[2] / "progress.csv").write_bytes(HEADER.encode() + row.encode() + b"\xff\xfe,1\n")
    without = HEADER.replace(",Time/Total", "")
    (wrong[3] / "progress.csv").write_text(without + "100,1,1.0,2.0,10.0\n")
    return {
        f"{wrong[0] / 'config.json'} is not readable": wrong[0],
        f"{wrong[1]} is a file": wrong[1],
        f"{wrong[2] / 'progress.csv'} is not readable": wrong[2],
        f"{wrong[3] / 'progress.csv'} has no column Time/Total": wrong[3],
    }


def test_a_bad_folder_fails_its_run_and_the_others_go_on(tmp_path):
    expected = bad_folders(tmp_path)
    args = command(tmp_path, "--algos", "cpo", "--seeds", "5", "--total-steps", "240")
    done = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for reason, folder in expected.items():
        assert f"cpo-PointCircle/{folder.name} failed: {reason}" in done.stdout
    assert "4 failed, 1 finished" in done.stdout
    assert updates(tmp_path / "cpo-PointCircle/seed-004") == [1]


def test_while_a_run_goes_on_what_cannot_be_read_counts_as_nothing(tmp_path):
    for folder in bad_folders(tmp_path).values():
        assert read(folder) is None
        assert not finished(folder, 10)
    with pytest.raises(ValueError, match=r"progress\.csv has no column Time/Total"):
        newest(tmp_path / "cpo-PointCircle/seed-003")


LOSING = """
import gc, os, signal, sys

def interrupt(phase, info):
    if "jax.numpy" in sys.modules:
        gc.callbacks.remove(interrupt)
        open(os.environ["SENT"], "w").close()
        os.kill(os.getpid(), signal.SIGINT)

gc.callbacks.append(interrupt)
"""


def test_a_run_that_is_still_starting_loses_no_ctrl_c(tmp_path):
    """Python swallows an exception that is raised while its garbage collector calls back."""
    (tmp_path / "sitecustomize.py").write_text(LOSING)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    env = {"PYTHONPATH": path, "SENT": str(tmp_path / "sent")}
    (job,) = plan.jobs(
        "table1",
        seeds=[0],
        envs=["PointCircle"],
        algos=["cpo"],
        overrides=SMALL,
        total_steps=100_000_000,
        log_dir=str(tmp_path),
        device="cpu",
    )
    worker = Worker(job, job.folder, cores=1, command=["cmbpo"], env=env)
    try:
        wait_until(lambda: worker.ended)
    finally:
        worker.kill()
    assert (tmp_path / "sent").exists()
    assert worker.failure() == "interrupted"
    assert not rows(job.folder)


HEADER = "TotalEnvSteps,Train/Epoch,Metrics/EpRet,Metrics/EpCost,Constraint/Limit,Time/Total\n"


def test_progress_is_the_last_complete_row(tmp_path):
    path = tmp_path / "progress.csv"
    assert read(tmp_path) is None
    path.write_text(HEADER)
    assert read(tmp_path) is None
    path.write_text(HEADER + "100,1,1.0,2.0,10.0,5.0\n300,2,3.0,4.0,10.0,9.0\n500,3,1")
    assert read(tmp_path) == Progress(
        update=2, steps=300, ret=3.0, cost=4.0, limit=10.0, seconds_per_step=0.02
    )


def test_progress_of_a_long_run_is_read_from_its_end(tmp_path):
    lines = [f"{100 * i},{i},0.0,,10.0,{0.5 * i}\n" for i in range(1, 20_001)]
    (tmp_path / "progress.csv").write_text(HEADER + "".join(lines))
    now = read(tmp_path)
    assert now is not None
    assert (now.update, now.steps) == (20_000, 2_000_000)
    assert now.seconds_per_step == pytest.approx(0.005)


def test_a_run_is_finished_only_with_its_last_policy(tmp_path):
    (tmp_path / "progress.csv").write_text(HEADER + "100,1,1.0,2.0,10.0,5.0\n")
    (tmp_path / "checkpoints").mkdir()
    assert not finished(tmp_path, 100)
    (tmp_path / "checkpoints" / "1.npz").touch()
    assert finished(tmp_path, 100)
    assert not finished(tmp_path, 101)


def lines() -> list[live.Line]:
    now = Progress(update=9, steps=250, ret=1234.5, cost=12.0, limit=10.0, seconds_per_step=0.1)
    return [
        live.Line("cpo-AntSafe/seed-000", 1000, "waiting"),
        live.Line("cpo-AntSafe/seed-001", 1000, "running", now),
        live.Line("cpo-AntSafe/seed-002", 1000, "failed", None, "no [room]"),
    ]


def test_a_terminal_shows_a_line_per_run_those_that_go_on_first():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with live.view(lines(), console) as view:
        view.show()
        view.say("a [word]")
    shown = [line for line in out.getvalue().split("\n") if "seed-" in line]
    assert "seed-001" in shown[0]
    for words in ("250 of 1,000", "1,234", "12.0 of 10", "1 min 15 s"):
        assert words in shown[0]
    assert "a [word]" in out.getvalue()


@pytest.mark.parametrize(
    "name", ["cpo-AntSafe/seed-001", "cmbpo-no-alpha-paper-AntCircle/seed-001"]
)
def test_at_80_columns_all_that_matters_is_readable(name):
    now = Progress(9, steps=1_234_567, ret=3012.0, cost=8.3, limit=25.0, seconds_per_step=0.005)
    console = Console(file=io.StringIO(), record=True, width=80)
    console.print(live.LiveLines(console, [live.Line(name, 10_000_000, "running", now)]))
    _, shown = console.export_text().rstrip().split("\n")
    assert len(shown) <= 80
    for words in ("12 %", "1.2M of 10M", " 3,012 ", " 8.3 of 25 ", "12 h 10 min"):
        assert words in shown
    assert shown.startswith(name[:9])
    assert "seed-001 " in shown
    assert ("━" in shown) == (len(name) < 30)


@pytest.mark.parametrize(
    ("count", "words"),
    [(9_999, "9,999"), (25_000, "25k"), (999_999, "999k"), (1_234_567, "1.2M"), (10**7, "10M")],
)
def test_counts_are_short(count, words):
    assert live.short(count) == words


def test_elsewhere_a_line_is_printed_when_a_run_begins_or_ends():
    out = io.StringIO()
    with live.view(lines(), Console(file=out, width=40)) as view:
        view.show()
        view.show()
    assert out.getvalue().split("\n") == [
        "cpo-AntSafe/seed-001 running 25% | steps 250 of 1,000 | return 1,234 | cost 12.0 of 10"
        " | left 1 min 15 s",
        "cpo-AntSafe/seed-002 failed 0% | steps 0 of 1,000 | no [room]",
        "",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(59.6, "1 min 00 s"), (3.0, "3 s"), (7380.0, "2 h 03 min"), (float("nan"), "–")],
)
def test_durations_are_in_the_two_largest_units(seconds, words):
    assert live.duration(seconds) == words


FAKE_MPS = """#!/bin/sh
if [ "$1" = -d ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY" >> "$LOG"; exit 0; fi
read command
echo "$command $CUDA_MPS_PIPE_DIRECTORY" >> "$LOG"
[ "$command" = get_server_list ] && exit "$ASKED"
exit 0
"""


@pytest.mark.parametrize("runs_already", [False, True])
def test_mps_is_started_unless_it_runs_and_stopped_at_the_end(runs_already, tmp_path, monkeypatch):
    fake = tmp_path / machine.MPS
    fake.write_text(FAKE_MPS)
    fake.chmod(0o755)
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("ASKED", "0" if runs_already else "1")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with machine.shared_gpus() as env:
        pass
    said = [line.split() for line in log.read_text().split("\n") if line]
    if runs_already:
        assert env == {}
        assert said == [["get_server_list"]]
    else:
        pipe = env["CUDA_MPS_PIPE_DIRECTORY"]
        assert said == [["get_server_list"], ["start", pipe], ["quit", pipe]]
        assert not Path(pipe).exists()


def test_gpus_are_those_that_cuda_may_see(tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.gpus("auto") == ("0", "1")
    assert machine.gpus("cpu") == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machine.gpus("gpu") == ("1",)


def test_a_run_on_a_gpu_keeps_the_flags_it_was_given(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    env = machine.gpu_environment("3")
    assert env["XLA_FLAGS"] == f"--xla_a=1 {machine.XLA_FLAGS}"
    assert env["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.skipif(len(machine.cores()) < 2, reason="needs two cores")
def test_runs_hold_different_cores(tmp_path):
    code = (
        "import os; from cmbpo.experiments import machine; machine.hold_cores(1);"
        "print(os.sched_getaffinity(0), flush=True); input()"
    )
    start = [sys.executable, "-c", code]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(start, stdin=pipe, stdout=pipe, text=True, env=env) as one,
        subprocess.Popen(start, stdin=pipe, stdout=pipe, text=True, env=env) as other,
    ):
        assert one.stdout is not None
        assert other.stdout is not None
        held = {one.stdout.readline(), other.stdout.readline()}
        one.communicate("\n")
        other.communicate("\n")
    assert len(held) == 2
