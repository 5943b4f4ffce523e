"""Requests to stop: Ctrl-C, a polite kill, a closed terminal."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from cmbpo import streams

HANGUP = getattr(signal, "SIGHUP", None)
"""A closed terminal; None where the system has no such signal."""
SAID = "finishing this update; again to stop at once"
"""What is said of the first request where a second one stops at once."""
PATIENCE = 1.0
"""Seconds that a process which is to end at once may take to do so by itself."""
_lists: list[list[int]] = []
"""What has come since the outermost `noted` was entered, while it is."""


def status(number: int) -> int:
    """The exit status of a command that a signal ended."""
    return 128 + number


@contextmanager
def noted(*, second_raises: bool, ends_process: bool = False) -> Iterator[list[int]]:
    """The signals to stop that have come so far; the second one may stop at once.

    With `second_raises` the first is answered on standard error as soon as it comes, and the second
    is a KeyboardInterrupt. Python raises one when compiled code returns; with `ends_process` the
    process does not wait for that.

    A closed terminal is a first one, but no second one: shell and system may both tell of it. Where
    it is to be ignored, as under nohup, it is. Outside the main thread no signal comes. Inside
    another `noted` the outer one goes on to decide, and its list is the one that is given.
    """
    came: list[int] = []
    heard: list[int] = []
    left = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        if number == HANGUP:
            streams.leave_terminal()
            if came:
                return
        elif second_raises and set(came) - {HANGUP}:
            raise KeyboardInterrupt
        came.append(number)

    def answer(number: int) -> None:
        # Others come, too: the clock of an environment's time limit is one.
        if number not in (signal.SIGINT, signal.SIGTERM) or not second_raises:
            return
        heard.append(number)
        if len(heard) == 1:
            with suppress(OSError, ValueError):
                print(SAID, file=sys.stderr, flush=True)
        elif ends_process and not left.wait(PATIENCE):
            _end(heard[0])

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    if _lists:
        yield _lists[0]
        return
    heeded = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        heeded.append(HANGUP)
    with _watched(answer):
        _lists.append(came)
        try:
            with _handled(note, *heeded):
                yield came
        finally:
            left.set()
            _lists.clear()


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """Ctrl-C ends a command that has nothing to save, with its status and without a traceback."""
    came: list[int] = []
    left = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        while frame is not None:
            # Half a module is nothing to tidy up with.
            if frame.f_globals.get("__name__") == "importlib._bootstrap":
                _end(number)
            frame = frame.f_back
        raise KeyboardInterrupt

    def answer(number: int) -> None:
        if number == signal.SIGINT and not left.wait(PATIENCE):
            _end(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _watched(answer):
        try:
            with _handled(stop, signal.SIGINT):
                yield
        except BaseException:
            # Whatever it is, it comes of the interruption.
            if came:
                sys.exit(status(came[0]))
            raise
        finally:
            left.set()


def leave(code: int) -> NoReturn:
    """End with this status, as Python does but for its last step.

    There it takes itself down, and compiled code that is still at work with it: a crash.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _end(number: int) -> None:
    """End the process now; where it drew to a terminal, with its cursor."""
    with suppress(OSError):
        if os.isatty(1):
            os.write(1, b"\x1b[?25h\n")
    os._exit(status(number))


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _watched(answer: Callable[[int], None]) -> Iterator[None]:
    """Tell of each signal as it comes, from a thread of its own.

    Python's own handlers wait until compiled code returns: in training, some minutes.
    """
    out, into = os.pipe()
    os.set_blocking(into, False)
    earlier = signal.set_wakeup_fd(into, warn_on_full_buffer=False)

    def watch() -> None:
        while (number := os.read(out, 1)[0]) != 0:
            answer(number)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier)
        os.write(into, b"\0")
        thread.join(PATIENCE)
        os.close(into)
        os.close(out)
