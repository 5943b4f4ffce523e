"""What a run writes down as it goes: tables of comma-separated values and TensorBoard's events."""

import csv
import gzip
import io
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore

from cmbpo.checkpoint import RunError

Value = float | int | str | np.generic | np.ndarray | jax.Array
Row = Mapping[str, Value]


class Table:
    """A CSV file that grows by rows. Its columns are those of its first row, `Time/…` last."""

    def __init__(self, path: Path):
        """The table at `path`, which need not exist yet."""
        self.path = path
        self.columns = _first_line(path)
        self.rows = count_rows(path)

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows: a column that a row lacks stays blank, one that the table lacks is an error."""
        if not rows:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self.columns:
            self.columns = sorted(rows[0], key=lambda name: name.startswith("Time/"))
            writer.writerow(self.columns)
        for row in rows:
            unknown = [name for name in row if name not in self.columns]
            if unknown:
                raise RunError(f"{self.path.name} has no column {unknown[0]!r}")
            writer.writerow([_text(row[name]) if name in row else "" for name in self.columns])
        data = text.getvalue().encode()
        try:
            # unbuffered: a row is on its way to the disk when this returns, or the error is here
            with self.path.open("ab", buffering=0) as file:
                while data:
                    data = data[file.write(data) :]
        except OSError as error:
            raise RunError(f"could not write {self.path}: {error.strerror or error}") from error
        self.rows += len(rows)

    def position(self) -> dict[str, int]:
        """Where the table ends now, once that is safely on the disk."""
        if not self.path.exists():
            return {"bytes": 0, "rows": 0}
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return {"bytes": os.fstat(file.fileno()).st_size, "rows": self.rows}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Cut the table back to an earlier end."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < position["bytes"]:
            raise RunError(
                f"{self.path} has {size} bytes, but had {position['bytes']} "
                "when the checkpoint was saved"
            )
        if size:
            os.truncate(self.path, position["bytes"])
        self.columns = _first_line(self.path)
        self.rows = position["rows"]


def _unpacked(path: Path) -> str:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    if path.suffix != ".xz":
        return path.read_text()
    import lzma  # here, because some builds of Python lack it

    try:
        return lzma.decompress(path.read_bytes()).decode()
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error


def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV file, as numbers where all their values are; blank cells are NaN.

    A file whose name ends in `.gz` or `.xz` is decompressed on the way.
    """
    header, *rows = [*csv.reader(io.StringIO(_unpacked(path), newline=""))] or [[]]
    # a run killed while it wrote may leave a torn last row
    rows = [row for row in rows if len(row) == len(header)]
    return {name: _column([row[i] for row in rows]) for i, name in enumerate(header)}


class Events:
    """The numbers of the rows as TensorBoard's events, over environment steps."""

    def __init__(self, folder: Path, *, after: int):
        """A new events file. TensorBoard forgets what older ones say beyond the step `after`."""
        count = len(list(folder.glob("events.out.tfevents.*")))
        suffix = f".{count}" if count else ""
        self._writer = EventsWriter(str(folder / "events"), suffix)
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=after + 1, session_log=start))

    def append(self, row: Row, step: int) -> None:
        """Add one row."""
        numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
        values = [Summary.Value(tag=n, simple_value=float(x)) for n, x in numbers.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, event: Event) -> None:
        try:
            self._writer.write_event(event)
            self._writer.flush()
        except OSError as error:
            raise RunError(f"could not write TensorBoard's events: {error.strerror}") from error


def _first_line(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def count_rows(path: Path) -> int:
    """Rows below the header."""
    if not path.exists():
        return 0
    return max(path.read_bytes().count(b"\n") - 1, 0)


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    number = np.asarray(value)[()]
    return str(int(number)) if isinstance(number, np.bool_) else str(number)


def _column(cells: list[str]) -> np.ndarray:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.array(cells)
