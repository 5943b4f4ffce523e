"""A limit on how long a call may take, kept by a timer in the main thread."""

import atexit
import signal
import threading
from typing import Any

TICKS = 10
"""Parts of the limit that are counted: while the whole process is stopped, at most one passes."""


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
        self.ticks = 0
        self._outer: Alarm | None = None
        self._set = False

    def __enter__(self) -> None:
        """Let the time run."""
        self._set = self.seconds is not None and _in_main_thread()
        if self._set:
            self.ticks = 0
            self._outer, _clock.alarm = _clock.alarm, self
            _clock.run(self.seconds / TICKS)  # pyright: ignore[reportOptionalOperand]

    def __exit__(self, *error: object) -> None:
        """Stop the time."""
        if self._set:
            _clock.alarm = self._outer


class _Clock:
    """Ticks while alarms are set, and stops by itself at the first tick at which none is.

    To start and stop it for every call would cost more than the call of a fast environment.
    """

    def __init__(self) -> None:
        self.alarm: Alarm | None = None
        self._interval = 0.0
        self._before: Any = None

    def run(self, interval: float) -> None:
        if self._interval != interval:
            if not self._interval:
                self._before = signal.signal(signal.SIGALRM, self._tick)
                signal.siginterrupt(signal.SIGALRM, False)
            self._interval = interval
            signal.setitimer(signal.ITIMER_REAL, interval, interval)

    def _tick(self, number: int, frame: Any) -> None:
        del number, frame
        if self.alarm is None:
            self.stop()
            return
        self.alarm.ticks += 1
        # The first may come at once. Later ones raise again, should one be swallowed.
        if self.alarm.ticks > TICKS:
            raise TimeUp

    def stop(self) -> None:
        if self._interval:
            self._interval = 0.0
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)


_clock = _Clock()
# Python gives up its handlers before it tidies up: a tick after that would end it by a signal.
atexit.register(_clock.stop)


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
