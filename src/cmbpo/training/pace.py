"""How far a run is, how long the rest will take, and how long it was expected to take."""

import math
import time
from collections import deque
from collections.abc import Sequence

from cmbpo import columns
from cmbpo.runs.tables import Row
from cmbpo.settings.schema import TrainSettings
from cmbpo.training.protocol import Wait


class Pace:
    """How far a run is, and how long the rest will take at the speed of the last updates."""

    def __init__(self, total: int, so_far: Sequence[Row]):
        """`total` real steps, and the updates that were made before."""
        self.total = total
        self.done = int(so_far[-1][columns.ENV_STEPS]) if so_far else 0
        self._began = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)

    def note(self, row: Row) -> None:
        """Take the row of one update."""
        self.done = int(row[columns.ENV_STEPS])
        self._recent.append((time.monotonic(), self.done))

    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    def left(self) -> float | None:
        """Seconds, or None while nothing is known."""
        if len(self._recent) < 2:
            return None
        (t0, n0), (t1, n1) = self._recent[0], self._recent[-1]
        if n1 <= n0:
            return None
        seconds = (self.total - n1) * (t1 - t0) / (n1 - n0)
        return max(seconds - (time.monotonic() - t1), 0.0)


class WaitPace:
    """How long a wait still takes, from its first report on: what was compiled before is not it."""

    def __init__(self, wait: Wait):
        """Its first report."""
        self.wait = wait
        self._first = wait, time.monotonic()
        self._last = time.monotonic()

    def note(self, wait: Wait) -> None:
        """A later report of the same."""
        self.wait, self._last = wait, time.monotonic()
        if self._first[0].done == 0 and wait.done > 0:
            self._first = wait, self._last

    def seconds_each(self) -> float | None:
        """Seconds of one of its units; None while nothing is known."""
        first, began = self._first
        if self.wait.done <= first.done:
            return None
        return (self._last - began) / (self.wait.done - first.done)

    def left(self) -> float | None:
        """Seconds, or None while nothing is known."""
        each = self.seconds_each()
        if each is None:
            return None
        ahead = each * (self.wait.total - self.wait.done)
        return max(ahead - (time.monotonic() - self._last), 0.0)


class Forecast:
    """What a run will take, from its first fit and its second update: the first one compiles.

    A fit takes as long as the archive has rows, which grow; all else is the same in every update.
    """

    def __init__(self, settings: TrainSettings):
        """Nothing is known yet."""
        self._settings = settings
        self._fit: WaitPace | None = None
        self._epoch: float | None = None
        self._steps = 0
        self._updates = 0

    def wait(self, wait: Wait) -> None:
        """Take a report of the first fit, in whose first second or more all networks learn."""
        if self._fit is None or self._fit.wait.what != wait.what:
            self._fit, self._epoch = WaitPace(wait), None
            return
        settled = self._epoch is not None and wait.done > 10
        self._fit.note(wait)
        self._epoch = self._epoch if settled else self._fit.seconds_each()

    def sentence(self, row: Row) -> str | None:
        """After the second update: how long the others will take."""
        before, self._steps = self._steps, int(row[columns.ENV_STEPS])
        self._updates += 1
        total = self._settings.total_steps
        known = columns.UPDATE_SECONDS in row and before < self._steps < total
        if self._updates != 2 or not known:
            return None
        updates = math.ceil((total - self._steps) / (self._steps - before))
        others = float(row[columns.UPDATE_SECONDS]) - float(row.get(columns.MODEL, 0.0))
        seconds = updates * others + self._fits()
        each = f"{seconds / updates:.2g} s" if seconds < 60 * updates else words(seconds / updates)
        return f"about {words(seconds)} to go on this machine ({updates:,} updates of {each})"

    def _fits(self) -> float:
        """Seconds of all fits that are to come."""
        settings = self._settings
        if self._epoch is None:
            return 0.0
        each = self._epoch * settings.ensemble.epochs / settings.initial_steps
        places = range(self._steps, settings.total_steps, settings.ensemble.fit_every)
        return each * sum(min(place, settings.archive_size) for place in places)


def words(seconds: float) -> str:
    """A duration that is known roughly, as in 25 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours >= 9.5 else f"{hours:.1f} h"
