"""One run as a process of its own, which lives no longer than the process that started it."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cmbpo import columns, interruption
from cmbpo.experiments import machine, progress
from cmbpo.experiments.plan import Job
from cmbpo.runs.files import LOCK, try_lock
from cmbpo.settings.trust import ASKING

LAST_SECONDS = 60.0
"""A run whose starter is gone has this long to write its last checkpoint."""


class Worker:
    """The starter's side: what `python -m cmbpo.experiments.worker` prints goes to console.txt."""

    def __init__(
        self, job: Job, folder: Path, *, cores: int, command: list[str], env: Mapping[str, str]
    ):
        """Start the run, or go on with it, in `folder`."""
        self.job, self.folder = job, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._console = folder / "console.txt"
        self._printed_before = self._console.stat().st_size if self._console.exists() else 0
        with self._console.open("ab") as console:
            # The run is born with SIGINT blocked, and lets it in once it can take note of it.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "cmbpo.experiments.worker"],
                    stdin=subprocess.PIPE,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    env=os.environ | dict(env),
                    start_new_session=True,
                    text=True,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        task = {
            "folder": str(folder),
            "arm": job.arm,
            "settings": dataclasses.asdict(job.settings),
            "grid": job.varied,
            "until": job.until,
            "cores": cores,
            "command": command,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def progress(self) -> progress.Progress | None:
        """How far the run is."""
        return progress.read(self.folder)

    def failure(self) -> str | None:
        """After its end: why the run did not take the steps it was to take; None if it did."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if progress.finished(self.folder, self.job.end):
            return None
        status = self._process.returncode
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        with self._console.open("rb") as console:
            console.seek(self._printed_before)
            lines = console.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return said if status and said else "ended before its last step"

    def interrupt(self) -> None:
        """Ask for a checkpoint and the end."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once; the newest checkpoint stays."""
        self._process.kill()


def main() -> None:
    """The run's side: its task is a line of standard input, which then stays open."""
    try:
        with interruption.noted(second_raises=True) as interrupted:
            # A worker of Ray hands down SIGTERM blocked, too.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
            task = json.loads(sys.stdin.readline())
            threading.Thread(target=_stop_with_starter, daemon=True).start()
            machine.hold_cores(task["cores"])
            sys.argv = task["command"]
            work(Path(task["folder"]), task, interrupted)
    except (ValueError, FileNotFoundError) as mistake:
        sys.exit(str(mistake))
    except KeyboardInterrupt:
        sys.exit("interrupted")


def work(folder: Path, task: Mapping[str, Any], interrupted: Sequence[int]) -> None:
    """Train in `folder`: go on from its newest checkpoint, or begin."""
    _wait_for(folder, interrupted)
    from cmbpo.envs.find import find_task
    from cmbpo.runs import config
    from cmbpo.training import device, loop

    if interrupted:
        raise KeyboardInterrupt
    asked = config.settings_from_json(task, where="the experiment", trusted=True)
    if not (folder / "config.json").exists():
        backend = device.use(asked.device)
        found = find_task(asked, trusted=True)
        asked = loop.with_limits(asked, found)
        extra = {"backend": backend, "horizon": found.horizon, "arm": task["arm"]}
        extra |= {"grid": task["grid"]} if task["grid"] else {}
        unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".config-"))
        config.write_config(unfinished, asked, extra)
        (unfinished / "config.json").replace(folder / "config.json")
        shutil.rmtree(unfinished)
    (folder / "checkpoints").mkdir(exist_ok=True)
    held = config.settings_from_json(config.read_config(folder), where=str(folder))
    as_asked = all(getattr(held, name) == getattr(asked, name) for name in ASKING)
    until = task["until"]
    rung = [lambda moment: int(moment.row[columns.ENV_STEPS]) < until] if until else []
    loop.resume(folder, asked.total_steps, rung, trusted=as_asked)


def _stop_with_starter() -> None:
    """Standard input ends with the process at its other end, however that one ends."""
    while sys.stdin.read(1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(LAST_SECONDS)
    os._exit(1)


def _wait_for(folder: Path, interrupted: Sequence[int]) -> None:
    """Give an earlier process, whose starter is gone, the time to leave the folder."""
    end = time.monotonic() + 1.5 * LAST_SECONDS
    with (folder / LOCK).open("a") as file:
        while time.monotonic() < end and not interrupted and not try_lock(file):
            time.sleep(0.2)


if __name__ == "__main__":
    main()
