"""The tables that a run writes as it goes: comma-separated values, a row at a time."""

import csv
import gzip
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from cmbpo.columns import is_time
from cmbpo.runs.errors import RunError

Value = float | int | str | np.generic | np.ndarray | jax.Array
Row = Mapping[str, Value]


class CsvTable:
    """A CSV file that grows by rows. Its columns are those of its first row, times last."""

    def __init__(self, path: Path):
        """The table at `path`, which need not exist yet."""
        self.path = path
        self.columns = _first_line(path)
        self.rows = count_rows(path)

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows: a column that a row lacks stays blank, as does a new one in the rows before."""
        if not rows:
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        named = dict.fromkeys(name for row in rows for name in row)
        if not self.columns:
            self.columns = sorted(named, key=is_time)
            writer.writerow(self.columns)
        if missing := [name for name in named if name not in self.columns]:
            self._widen(missing)
        for row in rows:
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

    def _widen(self, names: Sequence[str]) -> None:
        """Add columns, blank in the rows so far: a run may go on with a version that logs more."""
        with self.path.open(newline="") as file:
            lines = list(csv.reader(file))
        columns = sorted([*self.columns, *names], key=is_time)
        place = {name: i for i, name in enumerate(lines[0])}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for line in lines[1:]:
            writer.writerow([line[place[name]] if name in place else "" for name in columns])
        unfinished = self.path.with_name(f".{self.path.name}.tmp")
        try:
            unfinished.write_text(text.getvalue(), encoding="utf-8")
            unfinished.replace(self.path)
        except OSError as error:
            raise RunError(f"could not write {self.path}: {error.strerror or error}") from error
        self.columns = columns

    def position(self) -> dict[str, int]:
        """Where the table ends now, once that is safely on the disk."""
        if not self.path.exists():
            return {"bytes": 0, "rows": 0}
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return {"bytes": os.fstat(file.fileno()).st_size, "rows": self.rows}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Cut the table back to an earlier end."""
        rows = count_rows(self.path)
        if rows < position["rows"]:
            raise RunError(
                f"{self.path} has {rows} rows, but had {position['rows']} "
                "when the checkpoint was saved"
            )
        if self.path.exists():
            os.truncate(self.path, _end_of(self.path, position["rows"]))
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


def _end_of(path: Path, rows: int) -> int:
    """Bytes up to the end of that many rows and the header; with no row, not even that."""
    if not rows:
        return 0
    with path.open("rb") as file:
        return sum(len(next(file)) for _ in range(rows + 1))


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
