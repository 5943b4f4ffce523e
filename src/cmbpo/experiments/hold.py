"""A run belongs to one process at a time: to the experiment that started it, or to its trainer."""

import os
from pathlib import Path
from typing import IO

from cmbpo.runs.files import LOCK, try_lock

HOLDER = ".driver"
"""File in a run folder, locked by the experiment that has the run."""


class TakenError(Exception):
    """Another process has the run."""


def take(folder: Path) -> IO[str]:
    """Hold a run until the file is closed; the system lets go of it however the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / HOLDER).open("a+")
    try:
        _lock(file, "has it")
        if (folder / LOCK).exists():
            with (folder / LOCK).open("a+") as trainer:
                _lock(trainer, "trains in it")
    except TakenError:
        file.close()
        raise
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _lock(file: IO[str], how: str) -> None:
    if not try_lock(file):
        file.seek(0)
        raise TakenError(f"process {file.read().strip()} {how}")
