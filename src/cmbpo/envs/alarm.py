"""A limit on how long a call may take, kept by a timer in the main thread."""

import signal
import threading
from typing import Any

TICKS = 10
"""Parts of the limit that are counted: while the whole process is stopped, none passes."""


class TimeUp(BaseException):
    """Raised inside the call that took too long; code that catches exceptions lets it through."""


class Alarm:
    """Interrupts what runs inside after so many seconds, with `TimeUp`.

    Outside the main thread, and where the system has no such timer, it lets everything take its
    time, as with None. Compiled code that does not come back to Python cannot be interrupted.
    """

    def __init__(self, seconds: float | None):
        """For calls one after the other."""
        self.seconds = seconds if hasattr(signal, "setitimer") else None
        self._armed = False
        self._ticks = 0
        self._before: Any = None

    def __enter__(self) -> None:
        """Let the time run."""
        self._armed = self.seconds is not None and _in_main_thread()
        if self._armed:
            assert self.seconds is not None
            self._ticks = 0
            self._before = signal.signal(signal.SIGALRM, self._tick)
            signal.setitimer(signal.ITIMER_REAL, self.seconds / TICKS, self.seconds / TICKS)

    def __exit__(self, *error: object) -> None:
        """Stop the time."""
        if self._armed:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)

    def _tick(self, number: int, frame: Any) -> None:
        del number, frame
        self._ticks += 1
        # Again with every tick: what was raised while an object was deleted is lost.
        if self._armed and self._ticks >= TICKS:
            raise TimeUp


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
