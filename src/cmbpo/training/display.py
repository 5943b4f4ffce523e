"""The view of a run while it runs: a live table in a terminal, plain lines anywhere else."""

import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cmbpo import columns, streams
from cmbpo.runs.tables import Row
from cmbpo.training.pace import Pace, WaitPace
from cmbpo.training.protocol import Wait

RESULTS: dict[str, str] = {
    "return": columns.RETURN,
    "cost": columns.COST,
    "cost estimate": columns.COST_ESTIMATE,
    "cost so far": columns.CUMULATIVE_COST,
    "episode length": columns.LENGTH,
}
LEARNING: dict[str, str] = {
    "case": columns.CASE,
    "KL": columns.KL,
    "multiplier": columns.MULTIPLIER,
    "α": columns.ALPHA,
    "rollout length": columns.ROLLOUT_LENGTH,
    "model error": columns.HOLDOUT_ERROR,
    "imagined cost": columns.IMAGINED_COST,
}
AGAINST_LIMIT = ("cost", "cost estimate", "imagined cost")
BARS = "▁▂▃▄▅▆▇█"
WHOLE = 0.9
"""Share of the horizon from which on the cost of an episode is compared with its limit in peace."""


def view(
    title: str,
    *,
    total_steps: int,
    horizon: int | None = None,
    so_far: Sequence[Row] = (),
    console: Console | None = None,
    quiet: bool = False,
) -> "LiveDisplay | PlainDisplay":
    """The view that suits `console`, by default standard output; a context that takes rows.

    Episodes much shorter than `horizon` are told; `so_far` are the rows of a run that goes on. A
    `quiet` one prints nothing, and warns of what goes wrong.
    """
    console = console or Console()
    drawn = console.is_terminal and console.encoding.startswith("utf")
    kind = QuietDisplay if quiet else LiveDisplay if drawn else PlainDisplay
    return kind(console, title, total_steps=total_steps, horizon=horizon, so_far=so_far)


def rows(table: Mapping[str, np.ndarray]) -> list[Row]:
    """The rows of progress.csv, as they were shown; a blank cell is none."""
    lines = zip(*table.values(), strict=True)
    return [
        {n: x for n, x in zip(table, line, strict=True) if x == x and x != ""} for line in lines
    ]


class PlainDisplay:
    """A line per update, at most one every two seconds, and always the first and the last."""

    def __init__(
        self,
        console: Console,
        title: str,
        *,
        total_steps: int,
        horizon: int | None = None,
        so_far: Sequence[Row] = (),
        every: float = 2.0,
    ):
        """Lines to `console`, at least `every` seconds apart."""
        self._console, self._title, self._every = console, title, every
        self._pace, self._horizon, self._so_far = Pace(total_steps, so_far), horizon, so_far
        self._printed = -np.inf
        self._waiting, self._waits_for = "", ""

    def __enter__(self) -> "PlainDisplay":
        """Say what runs, and from where it goes on."""
        self.say(self._title)
        if self._so_far:
            self.say(f"going on from {self._line(self._so_far[-1])}")
        return self

    def __exit__(self, *_: object) -> None:
        """Print the last row, if it has waited."""
        if self._waiting:
            self.say(self._waiting)

    def show(self, row: Row) -> None:
        """Take the row of one update."""
        self._pace.note(row)
        self._waiting = self._line(row)
        if time.monotonic() - self._printed >= self._every:
            self._printed = time.monotonic()
            self.say(self._waiting)
            self._waiting = ""

    def wait(self, wait: Wait) -> None:
        """Say what is waited for, once."""
        if wait.what != self._waits_for:
            self._waits_for = wait.what
            self.say(f"{wait.what}: {wait.total:,} {wait.unit} …")

    def say(self, message: str) -> None:
        """Print a line of its own. Where it cannot be, the run goes on: it is in its folder."""
        try:
            text = streams.printable(message, self._console.encoding)
            print(text, file=self._console.file, flush=True)
        except OSError as error:
            streams.go_silent(1)
            with suppress(OSError):
                why = f"standard output cannot be written ({error.strerror})"
                print(f"{why}; training goes on without it", file=sys.stderr, flush=True)

    def warn(self, message: str) -> None:
        """Say what went wrong."""
        self.say(message)

    def _line(self, row: Row) -> str:
        parts = [f"update {_number(row.get(columns.UPDATE))}", f"steps {self._pace.done:,}"]
        for label, key in (RESULTS | LEARNING).items():
            if label == "episode length" and not _is_short(row, self._horizon):
                continue
            if label not in ("cost estimate", "imagined cost"):
                cells = _cells(row, label, key, self._horizon)
                parts += [f"{cell.name} {_text(label, cell)}" for cell in cells]
        if (cut := _cut_at(row, self._horizon)) is not None:
            parts.append(f"cut at {cut} steps by training")
        return " | ".join([*parts, f"left {_clock(self._pace.left())}"])


class QuietDisplay(PlainDisplay):
    """No line at all."""

    def say(self, message: str) -> None:
        """Nothing."""

    def warn(self, message: str) -> None:
        """A warning of Python's."""
        warnings.warn(message, stacklevel=2)


class LiveDisplay:
    """A table that is drawn anew with each update, and a bar with the time left."""

    def __init__(
        self,
        console: Console,
        title: str,
        *,
        total_steps: int,
        horizon: int | None = None,
        so_far: Sequence[Row] = (),
    ):
        """A table on `console`."""
        self._title = title
        self._pace, self._horizon = Pace(total_steps, so_far), horizon
        self._wait: WaitPace | None = None
        self._row: Row = {}
        self._past: dict[str, list[float]] = {}
        for row in so_far:
            self._take(row)
        self._live = Live(self, console=console, refresh_per_second=2)

    def __enter__(self) -> "LiveDisplay":
        """Draw the table, empty or as the run left it."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last table standing."""
        self._live.stop()

    def show(self, row: Row) -> None:
        """Take the row of one update."""
        self._pace.note(row)
        self._take(row)
        self._wait = None

    def wait(self, wait: Wait) -> None:
        """Take how far something is that comes before the first update."""
        if self._wait is None or self._wait.wait.what != wait.what:
            self._wait = WaitPace(wait)
        else:
            self._wait.note(wait)

    def _take(self, row: Row) -> None:
        for label in ("return", "cost"):
            for cell in _cells(row, label, RESULTS[label]):
                if np.isfinite(number := float(cell.value)):
                    self._past.setdefault(cell.name, []).append(number)
        self._row = row

    def say(self, message: str) -> None:
        """Print a line above the table, or below once it is left; never broken, to be copied."""
        self._live.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Say what went wrong."""
        self.say(message)

    def __rich__(self) -> Panel:
        """The table as it is now."""
        phases = [
            (column.rpartition("/")[2].lower(), f"{float(self._row[column]):.2f} s")
            for column in columns.PHASES
            if column in self._row
        ]
        groups = [_pairs(x) for x in (self._lines(RESULTS), self._lines(LEARNING), phases)]
        update = (
            f"update {_number(self._row[columns.UPDATE])}" if columns.UPDATE in self._row else ""
        )
        body: list[RenderableType] = [self._bar()]
        if self._wait is not None:
            body.append(_wait_bar(self._wait))
        if self._row:
            # beside one another where there is room, else below: numbers are never cut
            body += [
                Text(),
                Columns([g for g in groups if g.row_count], padding=(0, 2), expand=True),
            ]
        if (cut := _cut_at(self._row, self._horizon)) is not None:
            words = f"training cuts episodes at {cut} steps: what whole ones cost is not known"
            body += [Text(), Text(words, "yellow")]
        if self._past:
            body += [Text(), self._history()]
        return Panel(
            Group(*body),
            title=self._title,
            subtitle=update,
            title_align="left",
            subtitle_align="right",
            border_style="dim",
            padding=(0, 1),
            # A terminal writes ^C after the last line: no room for it there moves them all.
            width=self._live.console.width - 2,
        )

    def _lines(self, quantities: dict[str, str]) -> Iterable[tuple[str, str | Text]]:
        short = _is_short(self._row, self._horizon)
        for label, key in quantities.items():
            for cell in _cells(self._row, label, key, self._horizon):
                text = _text(label, cell)
                if label in AGAINST_LIMIT and np.isfinite(float(cell.value)):
                    within = "yellow" if short else "green"
                    style = within if float(cell.value) <= cell.limit else "bold red"
                    yield cell.name, Text(text, style)
                elif label == "episode length" and short:
                    yield cell.name, Text(text, "yellow")
                else:
                    yield cell.name, text

    def _bar(self) -> Table:
        pace = self._pace
        line = Table.grid(expand=True, padding=(0, 2))
        line.add_column(ratio=1)
        for _ in range(3):
            line.add_column(justify="right", no_wrap=True)
        line.add_row(
            ProgressBar(total=pace.total, completed=min(pace.done, pace.total)),
            f"{min(pace.done / pace.total, 1.0):.0%}",
            f"{pace.done:,} of {pace.total:,} steps",
            f"{_clock(pace.elapsed())}, {_clock(pace.left())} left",
        )
        return line

    def _history(self) -> Table:
        table = Table.grid(expand=True, padding=(0, 3))
        width = max((self._live.console.width - 30) // len(self._past), 8)
        cells = []
        for label, values in self._past.items():
            table.add_column(ratio=1)
            cells.append(Text(f"{label}  ", "dim").append(_spark(values, width), "cyan"))
        table.add_row(*cells)
        return table


def _pairs(lines: Iterable[tuple[str, str | Text]]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for label, value in lines:
        table.add_row(label, value)
    return table


class _Cell(NamedTuple):
    name: str
    value: Any
    limit: float


def _is_short(row: Row, horizon: int | None) -> bool:
    """Whether episodes end long before their time: what one costs then says little of a whole."""
    if horizon is None:
        return False
    length = float(row.get(columns.LENGTH, np.inf))
    return length < WHOLE * horizon or _cut_at(row, horizon) is not None


def _cut_at(row: Row, horizon: int | None) -> str | None:
    """At which of how many steps training ends episodes, where it is long before their time."""
    steps = float(row.get(columns.EPISODE_STEPS, np.inf))
    if horizon is None or not steps < WHOLE * horizon:
        return None
    return f"{_number(int(steps))} of {_number(horizon)}"


def _wait_bar(pace: WaitPace) -> Group:
    """What is waited for, how far it is, and how long it takes at most."""
    wait = pace.wait
    line = Table.grid(expand=True, padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    for _ in range(2):
        line.add_column(justify="right", no_wrap=True)
    left = "" if pace.left() is None else f"{_clock(pace.left())} left"
    far = f"{wait.done:,} of {wait.total:,} {wait.unit}"
    line.add_row(wait.what, ProgressBar(total=wait.total, completed=wait.done), far, left)
    return Group(line, *([Text(wait.note, "dim", justify="right")] if wait.note else []))


def _cells(row: Row, label: str, key: str, horizon: int | None = None) -> Iterator[_Cell]:
    """What the row holds under `key`; of several costs, each by its name."""
    for name, value in columns.each(row, key).items():
        cost = name.removeprefix(key)
        limit = float(row.get(columns.LIMIT + cost, np.inf))
        if key == columns.LENGTH:
            limit = np.inf if horizon is None else horizon
        yield _Cell(f"{label} {cost[1:]}".strip(), value, limit)


def _text(label: str, cell: _Cell) -> str:
    if label == "cost" or (label == "episode length" and np.isfinite(cell.limit)):
        return f"{_number(cell.value)} of {_number(cell.limit)}"
    return cell.value if isinstance(cell.value, str) else _number(cell.value)


def _number(value: object) -> str:
    if value is None or not np.isfinite(x := float(value)):  # type: ignore[arg-type]
        return "–"
    if x == round(x) or abs(x) >= 1000:
        return f"{x:,.0f}"
    return f"{x:.1f}" if abs(x) >= 10 else f"{x:.3g}"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def _spark(values: Sequence[float], width: int) -> str:
    """A line of bars from the first value to the last, each the mean of its share of them."""
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    span = np.ptp(means)
    heights = (means - means.min()) / span if span > 0 else np.zeros(len(means))
    return "".join(BARS[round(h * (len(BARS) - 1))] for h in heights)
