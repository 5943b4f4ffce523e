"""One line per run while an experiment goes on: drawn anew in a terminal, printed anywhere else."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cmbpo.experiments.progress import Progress

STYLES = {"waiting": "dim", "running": "cyan", "finished": "green", "failed": "bold red"}
"""States of a run; `stopped` is the fifth."""


@dataclass
class Line:
    """What is known of a run."""

    name: str
    total_steps: int
    state: str = "waiting"
    progress: Progress | None = None
    reason: str | None = None

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return min(self.progress.steps / self.total_steps, 1.0) if self.progress else 0.0

    @property
    def left(self) -> float:
        """Seconds to its end at its present speed, or not a number."""
        if self.progress is None:
            return math.nan
        return max(self.total_steps - self.progress.steps, 0) * self.progress.seconds_per_step

    def words(self) -> dict[str, str]:
        """The quantities of the line."""
        if self.progress is None:
            return {"steps": f"0 of {self.total_steps:,}"}
        now = self.progress
        words = {
            "steps": f"{now.steps:,} of {self.total_steps:,}",
            "return": _number(now.ret, 0),
            "cost": f"{_number(now.cost, 1)} of {now.limit:g}",
        }
        return words | ({"left": duration(self.left)} if self.state == "running" else {})


def view(lines: Sequence[Line], console: Console | None = None) -> "LiveLines | PlainLines":
    """The view of these lines that suits `console`, by default standard output."""
    console = console or Console()
    return (LiveLines if console.is_terminal else PlainLines)(console, lines)


class PlainLines:
    """A line when a run begins or ends, and now and then while it goes on."""

    def __init__(self, console: Console, lines: Sequence[Line], *, every: float = 30.0):
        """At most a line every so many seconds for a run that goes on."""
        self._console, self._lines, self._every = console, lines, every
        self._states: dict[str, str] = {}
        self._printed: dict[str, float] = {}

    def __enter__(self) -> "PlainLines":
        """Nothing to begin with."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end with."""

    def show(self) -> None:
        """Print what is new."""
        for line in self._lines:
            was, now = self._states.get(line.name, "waiting"), time.monotonic()
            due = line.state == "running" and now - self._printed.get(line.name, now) > self._every
            if line.state != was or due:
                words = [f"{name} {value}" for name, value in line.words().items()]
                words += [line.reason] if line.reason else []
                self.say(" | ".join([f"{line.name} {line.state} {line.share:.0%}", *words]))
                self._states[line.name], self._printed[line.name] = line.state, now

    def say(self, message: str) -> None:
        """Print a line of its own."""
        print(message, file=self._console.file, flush=True)


class LiveLines:
    """A table of all runs, those that go on first."""

    def __init__(self, console: Console, lines: Sequence[Line]):
        """A table on `console`."""
        self._lines = lines
        self._live = Live(self, console=console, refresh_per_second=2)

    def __enter__(self) -> "LiveLines":
        """Draw it."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the whole table standing, however long."""
        self._live.vertical_overflow = "visible"
        self._live.stop()

    def show(self) -> None:
        """The table draws itself."""

    def say(self, message: str) -> None:
        """Print a line above the table."""
        self._live.console.print(message, highlight=False, markup=False)

    def __rich__(self) -> Table:
        """The table as it is now."""
        table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
        table.add_column("run", no_wrap=True)
        table.add_column("", min_width=8, ratio=1)
        for name in ("steps", "return", "cost", "left"):
            table.add_column(name, justify="right", no_wrap=True)
        order = ["running", "failed", "stopped", "waiting", "finished"]
        for line in sorted(self._lines, key=lambda line: order.index(line.state)):
            words = line.words()
            now = line.progress
            over = now is not None and now.cost > now.limit
            style = STYLES.get(line.state, "yellow")
            table.add_row(
                line.name,
                ProgressBar(total=1.0, completed=line.share),
                words["steps"],
                words.get("return", ""),
                Text(words.get("cost", ""), "red" if over else ""),
                Text(words.get("left", line.state), style),
            )
        return table


def summary(lines: Sequence[Line]) -> str:
    """How many runs are in which state."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.state] = counts.get(line.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def update(lines: Mapping[str, Line], now: Mapping[str, Progress | None]) -> None:
    """Take over how far the runs are that go on."""
    for name, found in now.items():
        lines[name].state, lines[name].progress = "running", found


def duration(seconds: float) -> str:
    """Seconds in the two largest units."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _number(x: float, digits: int) -> str:
    return f"{x:,.{digits}f}" if math.isfinite(x) else "–"
