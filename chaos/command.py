"""`cmbpo …` within this process: what it said, its status, and what it took of memory."""

import contextlib
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from chaos.trial import require

MOST_MEMORY = 2 * 2**30
"""Bytes that no command on tiny runs may take."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str
    traceback: str | None
    memory: int
    """Most bytes that the process held during it."""

    @property
    def words(self) -> str:
        """All it said."""
        return self.out + self.err


def cmbpo(*args: object, cwd: Path | None = None) -> Ended:
    """Run a command as a user types it."""

    def main() -> None:
        from cmbpo import cli

        with mock.patch.object(sys, "argv", ["cmbpo", *map(str, args)]):
            cli.main()

    return ended(main, cwd=cwd)


def ended(main: Callable[[], Any], *, cwd: Path | None = None) -> Ended:
    """How a program ends that is this function."""
    out, err, trace, status = io.StringIO(), io.StringIO(), None, 0
    before = os.getcwd()
    if cwd is not None:
        os.chdir(cwd)
    forget_peak()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            err.write(f"{end.code}\n")
    except BaseException as error:
        status, trace = 1, "".join(traceback.format_exception(error))
    finally:
        os.chdir(before)
    return Ended(status, _text(out), _text(err), trace, peak())


def _text(stream: io.StringIO) -> str:
    # cli.main closes what is no longer read
    return "" if stream.closed else stream.getvalue()


def clean(end: Ended, *, naming: tuple[str, ...] = ()) -> Ended:
    """No traceback, little memory, and a failure is a sentence with one of these words in it."""
    require(end.traceback is None, f"traceback:\n{end.traceback}")
    require("Traceback (most recent" not in end.words, f"a traceback was printed:\n{end.words}")
    require(end.memory < MOST_MEMORY, f"it took {end.memory / 2**30:.1f} GB of memory")
    if end.status:
        said = end.words.strip()
        require(len(said.split()) > 2, f"status {end.status}, and all it said is {said!r}")
        if naming:
            plain = re.sub(r"\s+", "", said)
            require(
                any(re.sub(r"\s+", "", word) in plain for word in naming),
                f"the message names none of {', '.join(naming)}: {said}",
            )
    return end


def forget_peak() -> None:
    """Let the system measure the most memory anew."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """The most bytes that this process held since."""
    return _measured("VmHWM")


def resident_memory() -> int:
    """The bytes that this process holds now."""
    return _measured("VmRSS")


def _measured(name: str) -> int:
    with open("/proc/self/status") as status:
        sizes = [line.split()[1] for line in status if line.startswith(name)]
    return int(sizes[0]) * 1024


@contextlib.contextmanager
def noting(words: str) -> Iterator[None]:
    """Say with a broken promise what was tried."""
    try:
        yield
    except Exception as broken:
        broken.add_note(words)
        raise
