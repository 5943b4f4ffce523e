"""Standard output and standard error that take whatever is printed, or say why they cannot."""

import codecs
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeGuard

PLAIN = {
    **{"…": "...", "–": "-", "−": "-", "×": "x", "·": ".", "≤": "<=", "→": "->"},
    **{"α": "alpha", "γ": "gamma", "λ": "lambda", "π": "pi", "σ": "sigma", "δ": "delta"},
    **{"₀": "0", "₁": "1"},
}
"""What stands for a character where an output has no sign for it; `?` for any other."""

OUTPUT = "standard output"
"""The file name of an OSError that comes of printing."""


def prepare() -> None:
    """Let every character be printed, to outputs that may be ASCII's or closed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Or the next file that is opened would be the one that errors are printed to.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")
    if _is_descriptor(sys.stdout, 1):
        sys.stdout.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(1, "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors="plain",
            line_buffering=sys.stdout.line_buffering,
        )


class _Output(io.FileIO):
    """Standard output whose troubles are told apart from those of other files."""

    def write(self, data: Any, /) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT
            raise


def _is_descriptor(stream: object, number: int) -> TypeGuard[io.TextIOWrapper]:
    with suppress(OSError):
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == number
    return False


def printable(text: str, encoding: str) -> str:
    """The text with what an output of this encoding can show."""
    return text.encode(encoding, "plain").decode(encoding)


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    unknown = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in unknown), error.end


codecs.register_error("plain", _plain)


def go_silent(*streams: int) -> None:
    """What is still said goes nowhere; what waits to be written as well."""
    with open(os.devnull, "wb") as nowhere, suppress(OSError):
        for stream in streams:
            os.dup2(nowhere.fileno(), stream)


def leave_terminal() -> None:
    """What is still said goes nowhere, unless to a file: to write to a closed terminal fails."""
    with suppress(OSError):
        go_silent(*(n for n in (1, 2) if not stat.S_ISREG(os.fstat(n).st_mode)))


@contextmanager
def bars(*names: str) -> Iterator[Callable[[str, float], None]]:
    """Takes which of these is done by how much, and shows it with the time left, until all are.

    On standard error, where that is a terminal; nowhere else.
    """
    from rich.console import Console  # here, because help is to be instant
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks = {name: progress.add_task(name, total=1.0) for name in names}
        yield lambda name, share: progress.update(tasks[name], completed=share)
