"""What this machine can run at once: its cores, its GPUs, and NVIDIA's MPS to share one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import IO

from cmbpo.runs.files import try_lock

RUNS_PER_GPU = 4
MPS = "nvidia-cuda-mps-control"
# With Triton's matrix kernels a step compiles in 46 s instead of 3 s.
XLA_FLAGS = "--xla_gpu_enable_triton_gemm=false"


def cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def gpus(device: str) -> tuple[str, ...]:
    """The GPUs that runs may use, by CUDA's names; none where they are to run on the CPU."""
    if device == "cpu" or shutil.which("nvidia-smi") is None:
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # As CUDA reads it: what stands behind a number that no GPU has is not seen.
        return tuple(takewhile(lambda gpu: gpu not in ("", "-1"), visible.split(",")))
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False)
    return tuple(listed.stdout.split()) if listed.returncode == 0 else ()


def runs_at_once(gpus: int) -> int:
    """Runs that share this machine well: one a core, or a few on each GPU with two cores each."""
    if not gpus:
        return len(cores())
    return max(min(RUNS_PER_GPU * gpus, len(cores()) // 2), 1)


def gpu_environment(gpu: str | None = None) -> dict[str, str]:
    """What a process that shares a GPU needs in its environment."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_enable_triton_gemm" not in flags:
        flags = f"{flags} {XLA_FLAGS}".strip()
    needed = {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return needed if gpu is None else needed | {"CUDA_VISIBLE_DEVICES": gpu}


@contextmanager
def shared_gpus() -> Iterator[dict[str, str]]:
    """The environment in which processes compute on a GPU side by side, not in turns.

    Starts MPS for as long as the context lasts, where it is installed and does not run already.
    """
    if shutil.which(MPS) is None or _mps("get_server_list", os.environ):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="cmbpo-mps-", ignore_cleanup_errors=True) as folder:
        here = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        }
        for path in here.values():
            Path(path).mkdir()
        # The daemon sees every GPU; which one a run uses is the run's own choice.
        env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | here
        started = subprocess.run([MPS, "-d"], env=env, capture_output=True, check=False)
        if started.returncode:
            yield {}
            return
        try:
            yield here
        finally:
            _mps("quit", env)


def _mps(command: str, env: Mapping[str, str]) -> bool:
    """Whether the MPS daemon of this environment took a command."""
    done = subprocess.run(
        [MPS], input=f"{command}\n", env=env, capture_output=True, text=True, check=False
    )
    return done.returncode == 0


_held: list[IO[str]] = []


def hold_cores(count: int) -> None:
    """Run on `count` cores that no other run on this machine holds, until this process ends.

    Threads of XLA and of the simulator follow. Where no core is free, on all.
    """
    mine, free = cores(), []
    if count >= len(mine) or not hasattr(os, "sched_setaffinity"):
        return
    folder = Path(tempfile.gettempdir()) / f"cmbpo-cores-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for core in mine:
        file = (folder / str(core)).open("w")
        if not try_lock(file):
            file.close()
            continue
        _held.append(file)
        free.append(core)
        if len(free) == count:
            break
    if free:
        os.sched_setaffinity(0, free)
