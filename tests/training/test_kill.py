"""A run that is killed at any moment goes on as if nothing had happened; a long one stays small."""

import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tiny import flags, rows, steps

FOREVER = 100_000_000
SECONDS = 240.0
CMBPO = [sys.executable, "-m", "cmbpo.cli", "train"]


def train(algo: str, log: Path, *args: str, total_steps: int = FOREVER) -> list[str]:
    """A tiny run as a user types it."""
    run = ["--algo", algo, "--env-id", "PointCircle-v0", "--seed", "3", "--device", "cpu"]
    where = ["--log-dir", str(log), "--total-steps", str(total_steps), "--checkpoint-every", "1"]
    return [*CMBPO, *run, *where, *flags(algo), *args]


def tables(log: Path) -> tuple[list[dict[str, str]], bytes]:
    """The rows of progress.csv without the times, and episodes.csv."""
    episodes = run_folder(log) / "episodes.csv"
    return rows(run_folder(log)), episodes.read_bytes() if episodes.exists() else b""


def run_folder(log: Path) -> Path:
    (folder,) = log.glob("*/seed-*")
    return folder


def newest(log: Path) -> int:
    """The number of the newest checkpoint, 0 if there is none yet."""
    return max((int(path.stem) for path in log.glob("**/checkpoints/[0-9]*.npz")), default=0)


def kill(args: list[str], log: Path, *, after: float) -> None:
    """Start a run, and kill it some seconds after it has written a checkpoint of its own."""
    before, deadline = newest(log), time.monotonic() + SECONDS
    with subprocess.Popen(args, stdout=subprocess.DEVNULL) as process:
        while newest(log) <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(after)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert newest(log) > before


# make test has the campaign's kills of a stand-in; these are of the real thing
@pytest.mark.slow
@pytest.mark.parametrize(("algo", "kills"), [("cpo", 1), ("cmbpo", 3)])
def test_a_killed_run_goes_on_to_the_bit(algo: str, kills: int, tmp_path):
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    start = train(algo, broken)
    seconds = [random.uniform(0.0, 0.5) for _ in range(kills)]
    kill(start, broken, after=seconds[0])
    resume = [*CMBPO, "--resume", str(run_folder(broken))]
    for after in seconds[1:]:
        kill(resume, broken, after=after)

    end = int(tables(broken)[0][-1]["TotalEnvSteps"]) + 600
    unbroken = train(algo, whole, total_steps=end)
    for args in ([*resume, "--total-steps", str(end)], unbroken):
        subprocess.run(args, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
    assert tables(broken) == tables(whole), f"killed after {seconds} s"


IN_A_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from cmbpo import cli
cli.main()
"""


def test_a_run_whose_terminal_is_closed_saves_and_ends(tmp_path):
    """The system tells it by SIGHUP, and the shell may do so as well."""
    terminal, inside = pty.openpty()
    args = train("cpo", tmp_path, "--checkpoint-every", "1000000")
    args[1:3] = ["-c", IN_A_TERMINAL]
    with subprocess.Popen(
        args,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    ) as process:
        os.close(inside)
        while b"update" not in os.read(terminal, 100_000):
            pass
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        process.wait(SECONDS)
    assert process.returncode == 129
    assert newest(tmp_path) == len(tables(tmp_path)[0]) > 0


@pytest.mark.slow
def test_under_nohup_a_run_goes_on_without_its_terminal(tmp_path):
    args = train("cpo", tmp_path)
    deadline = time.monotonic() + SECONDS
    with subprocess.Popen(["nohup", *args], stdout=subprocess.DEVNULL) as process:
        while not newest(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGHUP)
        reached = newest(tmp_path)
        while newest(tmp_path) < reached + 3 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL


MEMORY = """
import os, sys
from cmbpo import cli
from cmbpo.training import loop

PAGE = os.sysconf("SC_PAGE_SIZE")

def resident(moment):
    with open("/proc/self/statm") as file:
        print("resident", moment.row["Train/Epoch"], int(file.read().split()[1]) * PAGE, flush=True)

run = loop.run
loop.run = lambda settings: run(settings, callbacks=[resident])
cli.train(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_flat_over_hundreds_of_updates(tmp_path):
    updates, settled = 400, 50
    args = train("cmbpo", tmp_path, total_steps=steps(updates))[len(CMBPO) :]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *args],
        check=True,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    found = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("resident")]
    resident = [int(x) / 2**20 for x in found]
    assert len(resident) == updates
    grown = sum(resident[-20:]) / 20 - sum(resident[settled : settled + 20]) / 20
    assert grown < 10.0, f"{grown:.1f} MiB in {updates - settled} updates"
