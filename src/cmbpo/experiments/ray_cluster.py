"""Runs as tasks of a Ray cluster, started again elsewhere when a worker or a node dies."""

import importlib
import io
import os
import socket
import tarfile
import tempfile
import time
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from cmbpo.experiments import machine
from cmbpo.experiments.plan import Job
from cmbpo.experiments.progress import Progress
from cmbpo.experiments.worker import Worker
from cmbpo.runs.run_folder import checkpoint_files

RETRIES = 10
"""Deaths of its worker or node that a run survives."""
GPU_SHARE = 1 / machine.RUNS_PER_GPU


class Board:
    """Where the tasks report how far they are, and learn that they are to stop."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._now: dict[str, Progress | None] = {}
        self._stop = False

    def note(self, name: str, now: Progress | None) -> bool:
        """Take a report; whether to stop."""
        self._now[name] = now
        return self._stop

    def reports(self) -> dict[str, Progress | None]:
        """The newest report of each run that has begun."""
        return self._now

    def stop(self) -> None:
        """From now on every run is to stop."""
        self._stop = True


class Cluster:
    """As many runs at once as the cluster has room for."""

    def __init__(
        self, address: str, *, log_dir: Path, cpus: float, gpus: float | None, command: list[str]
    ):
        """Join the cluster; a run takes `cpus` and `gpus` of it, by default a quarter of a GPU."""
        self._ray = _import_ray()
        _require_answer(address)
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="error")
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ValueError(f"no Ray cluster answers at {address!r}: {reason}") from None
        nodes = [n for n in self._ray.nodes() if n["Alive"]]
        _require_room(nodes, "CPU", cpus)
        if gpus is None:
            gpus = GPU_SHARE if any("GPU" in n["Resources"] for n in nodes) else 0.0
        _require_room(nodes, "GPU", gpus)
        self._cores = max(int(cpus), 1)
        self._env = machine.gpu_environment() if gpus else {}
        self._command = command
        self._task = self._ray.remote(train).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES
        )
        here = self._at(self._ray.get_runtime_context().get_node_id())
        self._board = (
            self._ray.remote(Board)
            .options(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)
            .remote()
        )
        self._refs: dict[Any, Job] = {}
        self._marker = log_dir.absolute() / f".shared-{uuid.uuid4().hex}"
        self._marker.touch()
        self._shared = all(self._ray.get([self._sees_marker(n["NodeID"]) for n in nodes]))

    def _at(self, node: str) -> Any:
        """On this node, or elsewhere if it is gone."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        return strategies.NodeAffinitySchedulingStrategy(node, soft=True)

    def _sees_marker(self, node: str) -> Any:
        task = self._ray.remote(os.path.exists).options(
            num_cpus=0, scheduling_strategy=self._at(node)
        )
        return task.remote(str(self._marker))

    def room(self) -> bool:
        """Ray keeps the queue."""
        return True

    def start(self, job: Job) -> None:
        """Queue a run; where nodes do not see our folders, with what it has so far."""
        begun = job.folder.exists() and not self._shared
        ref = self._task.remote(
            job,
            packed(job.folder) if begun else None,
            self._board,
            marker=str(self._marker),
            cores=self._cores,
            command=self._command,
            env=self._env,
        )
        self._refs[ref] = job

    def progress(self) -> dict[str, Progress | None]:
        """How far each run is that runs now."""
        now = self._ray.get(self._board.reports.remote())
        return {job.name: now[job.name] for job in self._refs.values() if job.name in now}

    def ended(self) -> list[tuple[Job, str | None]]:
        """The runs that ended since the last call, with the reason where it was before time."""
        if not self._refs:
            return []
        done, _ = self._ray.wait(list(self._refs), num_returns=len(self._refs), timeout=0)
        return [self._take(ref, self._refs.pop(ref)) for ref in done]

    def _take(self, ref: Any, job: Job) -> tuple[Job, str | None]:
        try:
            failure, files = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return job, str(error).strip().split("\n")[0]
        if files is not None:
            unpack(files, job.folder)
        return job, failure

    def interrupt(self) -> None:
        """Ask each run for a checkpoint and its end."""
        self._board.stop.remote()

    def kill(self) -> None:
        """End each run at once."""
        for ref in self._refs:
            self._ray.cancel(ref, force=True)

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._marker.unlink(missing_ok=True)
        self._ray.shutdown()


def train(
    job: Job,
    files: bytes | None,
    board: Any,
    *,
    marker: str,
    cores: int,
    command: list[str],
    env: dict[str, str],
) -> tuple[str | None, bytes | None]:
    """A run on a node of the cluster: why it failed, if it did, and its folder if not shared."""
    ray = _import_ray()
    with ExitStack() as stack:
        shared = Path(marker).exists()
        folder = job.folder
        if not shared:
            here = tempfile.TemporaryDirectory(prefix="cmbpo-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(here))
            if files is not None:
                unpack(files, folder)
        if ray.get(board.note.remote(job.name, None)):
            return "interrupted", None
        worker = Worker(job, folder, cores=cores, command=command, env=env)
        stopping = False
        while not worker.ended:
            stop = ray.get(board.note.remote(job.name, worker.progress()))
            if stop and not stopping:
                worker.interrupt()
                stopping = True
            time.sleep(0.5)
        return worker.failure(), None if shared else packed(folder)


def packed(folder: Path) -> bytes:
    """A run folder as one string of bytes, with its newest checkpoint only."""
    old = set(checkpoint_files(folder)[1:])
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path not in old and not path.name.startswith("."):
                tar.add(path, path.relative_to(folder))
    return data.getvalue()


def unpack(files: bytes, folder: Path) -> None:
    """What `packed` packed, in `folder`; checkpoints that were there go."""
    folder.mkdir(parents=True, exist_ok=True)
    before = set((folder / "checkpoints").glob("*.npz"))
    with tarfile.open(fileobj=io.BytesIO(files)) as tar:
        names = {folder / name for name in tar.getnames()}
        tar.extractall(folder, filter="data")
    for path in before - names:
        with suppress(FileNotFoundError):
            path.unlink()


def _require_answer(address: str) -> None:
    """Ray itself waits for minutes where nothing listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise ValueError(f"no Ray cluster answers at {address!r}: {error}") from None


def _require_room(nodes: list[dict[str, Any]], kind: str, wanted: float) -> None:
    most = max((n["Resources"].get(kind, 0.0) for n in nodes), default=0.0)
    if wanted > most:
        raise ValueError(
            f"a run asks for {wanted:g} {kind}; no node of the Ray cluster has more than {most:g}"
        )


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ValueError('Ray is not installed: pip install "cmbpo[ray]"') from None
