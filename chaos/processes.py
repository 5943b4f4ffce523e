"""Commands as processes of their own, and signals to them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from chaos.trial import require

CMBPO = (sys.executable, "-m", "cmbpo")
SECONDS = 150.0
"""No tiny command takes longer on cores of its own."""
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def patience(seconds: float) -> float:
    """What takes so long on cores of its own may take longer where others want them, too."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """`cmbpo …` in a process of its own."""

    def __init__(self, *args: object, said: Path):
        """Start it; what it prints is added to the file `said`."""
        self.said = said
        self._before = said.stat().st_size if said.exists() else 0
        with said.open("ab") as file:
            self.process = subprocess.Popen(
                [*CMBPO, *map(str, args)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    @property
    def words(self) -> str:
        """All it has printed so far."""
        return self.said.read_bytes()[self._before :].decode(errors="replace")

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def status(self) -> int:
        """Wait for its end; negative where a signal ended it."""
        seconds = patience(SECONDS)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            require(False, f"it did not end within {seconds:.0f} s: {self.words[-2000:]}")
            raise
        require("Traceback (most recent" not in self.words, f"a traceback:\n{self.words}")
        return status

    def end(self) -> None:
        """Kill it and what it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()


def newest(log: Path) -> int:
    """The number of the newest checkpoint below a folder, 0 if there is none yet."""
    return max((int(path.stem) for path in log.glob("**/checkpoints/[0-9]*.npz")), default=0)


def wait_for_checkpoint(process: Process, log: Path, number: int) -> None:
    """Until a checkpoint with at least this number is there, or the process has ended."""
    deadline = time.monotonic() + patience(SECONDS)
    while newest(log) < number and not process.over and time.monotonic() < deadline:
        time.sleep(0.005)


def moment(process: Process, log: Path, random: Random) -> str:
    """Wait for a moment at random: while it starts, or in the middle of its updates."""
    if random.random() < 0.3:
        seconds = random.uniform(0.0, 4.0)
        time.sleep(seconds)
        return f"after {seconds:.2f} s"
    number = newest(log) + random.choice([1, 1, 2, 5])
    wait_for_checkpoint(process, log, number)
    seconds = random.uniform(0.0, 0.15)
    time.sleep(seconds)
    return f"{seconds:.3f} s after checkpoint {number}"


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    try:
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
