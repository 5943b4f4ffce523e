"""Files that are written whole or not at all, read only if they are files, and never erased."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cmbpo.runs.errors import RunError

LOCK = ".lock"
"""In a run folder: held by the process that trains there."""


def read_bytes(path: Path) -> bytes:
    """What a file holds. What cannot be read is not damaged for that: the error says why."""
    try:
        # without waiting: a pipe that nobody writes to would hold its reader for ever
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RunError(f"could not read {path}: it is no file")
            return file.read()
    except OSError as error:
        raise RunError(f"could not read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise RunError(f"could not read {path}: there is not enough memory") from error


def try_lock(file: IO[Any]) -> bool:
    """Whether the file is held from here on until it is closed: nobody else holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that appears at `path` when it is complete and safely on the disk."""
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        unfinished.unlink(missing_ok=True)
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # The file's bytes first, then its name: a power cut leaves the old name or the new file.
        unfinished.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise RunError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def set_aside(path: Path, ending: str) -> Path:
    """Rename a file to a free name with this ending, as in `8.npz.damaged`, and keep it."""
    count = 1
    while (aside := path.with_name(f"{path.name}.{ending}" + f"-{count}" * (count > 1))).exists():
        count += 1
    try:
        path.rename(aside)
        _sync(path.parent)
    except OSError as error:
        raise RunError(f"could not rename {path}: {error.strerror or error}") from error
    return aside


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
