"""A run folder is held by one process at a time."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from cmbpo.experiments.hold import TakenError, take


def test_a_run_that_is_held_names_who_has_it(tmp_path):
    with take(tmp_path / "run"):
        with pytest.raises(TakenError, match=f"process {os.getpid()} has it"):
            take(tmp_path / "run")
        take(tmp_path / "other").close()
    take(tmp_path / "run").close()


def test_a_run_in_which_somebody_trains_is_taken(tmp_path):
    with (tmp_path / ".lock").open("w") as lock:
        lock.write("4242\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TakenError, match="process 4242 trains in it"):
            take(tmp_path)
    take(tmp_path).close()
    assert (tmp_path / ".lock").read_text() == "4242\n"


def test_who_is_killed_holds_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from cmbpo.experiments.hold import take\n"
        "held = take(Path(sys.argv[1])); print('held', flush=True); input()"
    )
    line = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TakenError, match=f"process {other.pid} has it"):
            take(tmp_path)
        other.send_signal(signal.SIGKILL)
        other.wait()
    take(tmp_path).close()
