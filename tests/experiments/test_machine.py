"""Cores and GPUs are shared out, and MPS is started and stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmbpo.experiments import machine

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
    for none in ("-1", "", "-1,0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert machine.gpus("auto") == ()


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
