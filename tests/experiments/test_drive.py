"""Experiments as a user types them: they finish, skip, survive failures, stop and go on."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmbpo.experiments import drive, hold, live, plan
from cmbpo.runs import config
from tests.experiments.test_progress import HEADER, bad_folders
from tests.tiny import assignments

CHANGES = {
    "num_envs": 120,
    "batch_size": 240,
    "checkpoint_every": 5,
    "policy.normalise": False,
    "critic.members": 1,
    "critic.epochs": 1,
}
SMALL = assignments("cpo", **CHANGES)


def command(folder: Path, *args: str, more: Sequence[str] = ()) -> list[str]:
    cmbpo = [sys.executable, "-m", "cmbpo.cli", "experiment", "table1"]
    common = ["--envs", "PointCircle", "--device", "cpu", "--log-dir", str(folder)]
    return [*cmbpo, *common, *args, "--set", *SMALL, *more]


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
    # with 120 copies the archive is too small for the samples of CMBPO; CPO has none
    what = ["--algos", "cmbpo", "CPO", "--seeds", "1", "--total-steps", "480"]
    args = command(tmp_path, *what, more=["archive_size=50"])
    first = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "cmbpo-PointCircle/seed-000 failed: archive_size is 50; allowed here" in first.stdout
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


@pytest.mark.slow
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

    with long_run() as driver:
        driver.kill()

    # the run whose driver is gone may still end its update
    reached = int(rows(folder)[-1]["TotalEnvSteps"]) + 2400
    with start(reached + 480) as driver:
        printed, _ = driver.communicate(timeout=120)
        assert driver.returncode == 0, printed
    assert updates(folder) == list(range(1, reached // 240 + 3))


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


class StandIn:
    """An engine whose runs end as soon as they begin."""

    def __init__(self):
        self.started, self.over = [], []

    def room(self) -> bool:
        return True

    def start(self, job: plan.Job) -> None:
        self.started.append(job.name)
        self.over.append((job, None))

    def progress(self):
        return {}

    def ended(self):
        over, self.over = self.over, []
        return over

    def interrupt(self) -> None: ...

    def kill(self) -> None: ...


@pytest.mark.parametrize("it_finishes", [True, False])
def test_of_two_experiments_at_once_the_second_waits_and_no_run_fails(
    tmp_path, monkeypatch, capsys, it_finishes
):
    monkeypatch.setattr(drive, "PAUSE", 0.02)
    common = {"envs": ["PointCircle"], "algos": ["cpo"], "total_steps": 100}
    first, second = plan.jobs("table1", seeds=[0, 1], log_dir=str(tmp_path), **common)
    held = hold.take(first.folder)

    def the_other_experiment_ends() -> None:
        if it_finishes:
            (first.folder / "progress.csv").write_text(HEADER + "100,1,1.0,2.0,10.0,5.0\n")
            (first.folder / "checkpoints").mkdir()
            (first.folder / "checkpoints" / "1.npz").touch()
        held.close()

    lines = {job.name: live.Line(job.name, 100) for job in (first, second)}
    engine = StandIn()
    threading.Timer(0.3, the_other_experiment_ends).start()
    with live.view(list(lines.values())) as view:
        drive.drive([first, second], engine, view, lines)
    assert {line.state for line in lines.values()} == {"finished"}
    assert engine.started == [second.name] + ([] if it_finishes else [first.name])
    printed = capsys.readouterr().out
    assert f"{first.name} elsewhere 0%" in printed
    assert f"process {os.getpid()} has it" in printed
    with hold.take(first.folder), hold.take(second.folder):
        pass


@pytest.mark.slow
def test_a_grid_stops_what_has_lost_and_again_comes_to_the_same(tmp_path):
    short = ["initial_steps=240", "first_episode=5", "num_envs=24"]
    grid = ["--grid", "trust-region.max-kl=0.01", "--grid", "policy.hidden=8,8x8"]
    args = [sys.executable, "-m", "cmbpo", "experiment", "grid", "--algos", "cpo", *grid]
    args += ["--seeds", "1", "--stop-losers", "--device", "cpu", "--log-dir", str(tmp_path)]
    args += ["--total-steps", "1000", "--set", *short]
    args += [word for word in SMALL if word.split("=")[0] not in ("policy.hidden", "num_envs")]
    first = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert first.returncode == 0, first.stdout + first.stderr
    runs = sorted(tmp_path.glob("cpo-PointCircle/*/seed-000"))
    assert [run.parent.name for run in runs] == [
        "max-kl=0.01,policy.hidden=8",
        "max-kl=0.01,policy.hidden=8x8",
    ]
    steps = [int(rows(run)[-1]["TotalEnvSteps"]) for run in runs]
    assert max(steps) >= 1000 > min(steps) >= 500
    assert f"lost: stopped at {min(steps)} of 1,000 steps, number 2 of 2" in first.stdout
    for run in runs:
        made = config.read_config(run)
        assert made["settings"]["total_steps"] == 1000
        assert made["grid"] == ["trust_region.max_kl", "policy.hidden"]
        assert updates(run) == list(range(1, len(updates(run)) + 1))
    table = first.stdout[first.stdout.index("PointCircle, the last quarter") :]
    assert "of 1,000" in table.splitlines()[3]

    second = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert second.stdout.endswith(table)
    assert [int(rows(run)[-1]["TotalEnvSteps"]) for run in runs] == steps
