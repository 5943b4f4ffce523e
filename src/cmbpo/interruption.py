"""Requests to stop: Ctrl-C, a polite kill, a closed terminal."""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)
"""A closed terminal; None where the system has no such signal."""
_lists: list[list[int]] = []
"""What has come since the outermost `noted` was entered, while it is."""


@contextmanager
def noted(*, second_raises: bool) -> Iterator[list[int]]:
    """The signals to stop that have come so far; the second one may stop at once.

    A closed terminal is a first one, but no second one: shell and system may both tell of it. Where
    it is to be ignored, as under nohup, it is. Outside the main thread no signal comes. Inside
    another `noted` the outer one goes on to decide, and its list is the one that is given.
    """
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        del frame
        if number == HANGUP:
            _leave_terminal()
            if came:
                return
        elif second_raises and set(came) - {HANGUP}:
            raise KeyboardInterrupt
        came.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    if _lists:
        yield _lists[0]
        return
    heeded = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        heeded.append(HANGUP)
    before = {number: signal.signal(number, note) for number in heeded}
    _lists.append(came)
    try:
        yield came
    finally:
        _lists.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """What is still said goes nowhere, unless to a file: to write to a closed terminal fails."""
    with open(os.devnull, "wb") as nowhere, suppress(OSError):
        for stream in (1, 2):
            if not stat.S_ISREG(os.fstat(stream).st_mode):
                os.dup2(nowhere.fileno(), stream)
