"""One line per run while an experiment goes on: drawn anew in a terminal, printed anywhere else."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cmbpo.experiments.progress import Progress

STYLES = {"waiting": "dim", "running": "cyan", "finished": "green", "failed": "bold red"}
"""States of a run; `stopped` is one more, `lost` to better arms, and `elsewhere`: with another
process."""
HEADER = ("done", "steps", "return", "cost", "left")
BAR = 8
"""Characters of a progress bar, at least."""


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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """The table as it is now: names are shortened, and the bars left out, for want of room."""
        order = ["running", "failed", "stopped", "elsewhere", "waiting", "finished", "lost"]
        lines = sorted(self._lines, key=lambda line: order.index(line.state))
        cells = [_cells(line) for line in lines]
        needed = sum(max(map(len, column)) + 1 for column in zip(HEADER, *cells, strict=True))
        room = options.max_width - needed
        title, names = _told_apart([line.name for line in lines], max(room, 9))
        longest = max(map(len, names))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        table.add_column(title, no_wrap=True)
        bars = room - longest - 1 >= BAR
        if bars:
            table.add_column("", width=min(room - longest - 1, 5 * BAR))
        for name in HEADER:
            table.add_column(name, justify="right", no_wrap=True)
        for line, run, (*words, cost, left) in zip(lines, names, cells, strict=True):
            now = line.progress
            over = now is not None and now.cost > now.limit
            table.add_row(
                shortened(run, max(room, 9)),
                *([ProgressBar(total=1.0, completed=line.share)] if bars else []),
                *words,
                Text(cost, "red" if over else ""),
                Text(left, STYLES.get(line.state, "yellow")),
            )
        yield table


def _told_apart(names: Sequence[str], width: int) -> tuple[str, list[str]]:
    """The names, and what stands above them: the folder that all are in, where room is short."""
    common = os.path.commonpath(names)
    if max(map(len, names)) <= width or common in ("", *names):
        return "run", list(names)
    return shortened(f"{common}/", width), [name[len(common) + 1 :] for name in names]


def _cells(line: Line) -> tuple[str, ...]:
    """A line of the table below `HEADER`."""
    words, now = line.words(), line.progress
    steps = f"{short(now.steps if now else 0)} of {short(line.total_steps)}"
    rest = (words.get("return", ""), words.get("cost", ""), words.get("left", line.state))
    return (f"{math.floor(100 * line.share)} %", steps, *rest)


def short(count: int) -> str:
    """A count in at most four digits and a letter, rounded down: 9,999, 12k, 1.2M."""
    if count < 10_000:
        return f"{count:,}"
    if count < 1_000_000:
        return f"{count // 1_000}k"
    tenths = count // 100_000
    return f"{tenths / 10:g}M" if tenths < 100 else f"{tenths // 10}M"


def shortened(name: str, width: int) -> str:
    """The name in at most `width` characters, without its middle where it is longer."""
    if len(name) <= width:
        return name
    end = width // 2
    return f"{name[: width - end - 1]}…{name[-end:]}"


def summary(lines: Sequence[Line]) -> str:
    """How many runs are in which state."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.state] = counts.get(line.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def update(lines: Mapping[str, Line], now: Mapping[str, Progress | None]) -> None:
    """Take over how far the runs are that go on."""
    for name, progress in now.items():
        lines[name].state, lines[name].progress = "running", progress


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
