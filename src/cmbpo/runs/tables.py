"""The tables that a run writes as it goes: comma-separated values, a row at a time."""

import csv
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from cmbpo.columns import CHECK, is_time
from cmbpo.runs.errors import DamagedError, RunError
from cmbpo.runs.files import read_bytes, set_aside, whole_file

Value = float | int | str | np.generic | np.ndarray | jax.Array
Row = Mapping[str, Value]

MOST_UNPACKED = 2**25
"""Bytes that a compressed table may unpack to: thirty times what the longest run so far has."""
MOST_MEMORY = 2**27
"""Bytes that the decompressor may take: what the strongest presets need."""
MOST_DAMAGED = 1000
"""Damaged lines, and columns, up to which a file still is a table."""


class Line(NamedTuple):
    """A line below the header, by its number in the file."""

    number: int
    cells: list[str]
    raw: bytes
    whole: bool
    """As many cells as there are columns, and those that were written."""
    follows: bool
    """Nothing is missing or repeated between it and the line before."""


class Table(NamedTuple):
    """What a CSV file holds, and the lines of it that are not as they were written."""

    columns: dict[str, np.ndarray]
    """The rows that are whole: numbers where all of a column are; blank cells are NaN."""
    damaged: list[int]
    gaps: list[int]
    """Lines before which rows are missing or repeated."""
    checked: bool
    """Whether its rows carry what damage is seen by; those of older versions do not."""
    checks: tuple[str, ...] = ()
    """Of the whole rows, if they do."""


class CsvTable:
    """A CSV file that grows by rows. Its columns are those of its first row, times last.

    The very last is the row's check: see `check`. Nothing is read before it is asked for.
    """

    def __init__(self, path: Path):
        """The table at `path`, which need not exist yet."""
        self.path = path
        self._found: _Found | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without the check's; none before the first row."""
        return [name for name in self._end.columns if name != CHECK]

    @property
    def rows(self) -> int:
        """Rows below the header."""
        return self._end.rows

    @property
    def _end(self) -> "_Found":
        if self._found is None:
            self._found = _find(read_bytes(self.path) if self.path.exists() else b"")
        return self._found

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows: a column that a row lacks stays blank, as does a new one in the rows before."""
        if not rows:
            return
        named = dict.fromkeys(name for row in rows for name in row)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._end.columns:
            columns = _ordered(named)
            writer.writerow(columns)
            self._found = self._end._replace(columns=columns)
        if missing := [n for n in (*named, CHECK) if n not in self._end.columns]:
            self._widen(missing)
        columns, before, last = self._end
        for row in rows:
            cells = [_text(row[name]) if name in row else "" for name in columns]
            last = cells[columns.index(CHECK)] = check(columns, cells, after=last)
            writer.writerow(cells)
        data = text.getvalue().encode()
        try:
            # unbuffered: a row is on its way to the disk when this returns, or the error is here
            with self.path.open("ab", buffering=0) as file:
                while data:
                    data = data[file.write(data) :]
        except OSError as error:
            raise RunError(f"could not write {self.path}: {error.strerror or error}") from error
        self._found = _Found(columns, before + len(rows), last)

    def _widen(self, names: Sequence[str]) -> None:
        """Add columns, blank in the rows so far: a run may go on with a version that logs more."""
        header, lines = _parsed(read_bytes(self.path))
        columns = _ordered([*header, *names])
        place = {name: i for i, name in enumerate(header)}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for line in lines:
            if line.whole:
                writer.writerow([line.cells[place[n]] if n in place else "" for n in columns])
            else:
                text.write(line.raw.decode(errors="surrogateescape") + "\n")
        with whole_file(self.path) as file:
            file.write(text.getvalue().encode(errors="surrogateescape"))
        self._found = self._end._replace(columns=columns)

    def mark(self) -> dict[str, Any]:
        """Where the table ends now, for `rewind`."""
        return {"rows": self.rows, "check": self._end.last}

    def sync(self) -> None:
        """Wait until all rows are safely on the disk."""
        if not self.path.exists():
            return
        try:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"could not write {self.path}: {error.strerror or error}") from error

    def rewind(self, mark: Mapping[str, Any]) -> str | None:
        """Cut the table back to an earlier end; in a sentence, what of it is lost, if anything is.

        A damaged file is set aside, and what is whole of it kept.
        """
        rows, last = mark["rows"], str(mark.get("check") or "")
        data = read_bytes(self.path) if self.path.exists() else b""
        header, lines = _parsed(data[: data.rfind(b"\n") + 1])
        # Where checks were noted, a table without them has lost its first line.
        kept = _up_to(lines, rows, last) if not last or CHECK in header else []
        sentence = None
        if len(kept) == rows and all(line.whole for line in kept):
            size = sum(len(raw) + 1 for raw in data.split(b"\n")[: kept[-1].number]) if kept else 0
            if self.path.exists():
                os.truncate(self.path, size)
        else:
            kept = [line for line in kept if line.whole]
            sentence = f"{self.path} is lost with its {rows} rows; training goes on without them"
            if self.path.exists():
                aside = set_aside(self.path, "damaged")
                sentence = (
                    f"{self.path} has {len(kept)} whole rows where the checkpoint noted {rows};"
                    f" training goes on with these, and the file as it was is {aside.name}"
                )
                with whole_file(self.path) as file:
                    file.write(data[: data.find(b"\n") + 1] if kept else b"")
                    file.writelines(line.raw + b"\n" for line in kept)
        self._found = _Found(header if kept else [], len(kept), last)
        return sentence


def check(columns: Sequence[str], cells: Sequence[str], *, after: str) -> str:
    """A row's last cell: a checksum of its names and values, and one of all rows up to it.

    The first tells a changed row, the second one that is missing, repeated or moved. Blank cells do
    not count, so that a table may be widened. `after` is the check of the row before, if any.
    """
    filled = zip(columns, cells, strict=True)
    text = "\n".join(f"{name}={cell}" for name, cell in filled if cell and name != CHECK)
    own = f"{zlib.crc32(text.encode(errors='surrogateescape')):08x}"
    chain = zlib.crc32(f"{after.rpartition('-')[2]}{own}".encode())
    return f"{own}-{chain:08x}"


def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of the rows that are whole in a CSV file; see `examine`."""
    return examine(path).columns


def examine(path: Path) -> Table:
    """Read a CSV file, line by line.

    A file whose name ends in `.gz` or `.xz` is decompressed on the way. A torn last line, as a run
    leaves that is killed while it writes, is left out without a word.
    """
    data = _unpacked(path)
    header, lines = _parsed(data)
    finished = data.count(b"\n")
    rows, damaged, gaps = [], [], []
    for line in lines:
        if line.whole:
            rows.append(line.cells)
            gaps += [] if line.follows else [line.number]
        elif line.number <= finished:
            damaged.append(line.number)
        if max(len(header), len(damaged)) > MOST_DAMAGED:
            raise DamagedError(f"{path} is damaged: it is no table")
    columns = {
        name: _column([row[i] for row in rows]) for i, name in enumerate(header) if name != CHECK
    }
    if CHECK not in header:
        return Table(columns, damaged, gaps, checked=False)
    checks = tuple(row[header.index(CHECK)] for row in rows)
    return Table(columns, damaged, gaps, checked=True, checks=checks)


def _unpacked(path: Path) -> bytes:
    data = read_bytes(path)
    if path.suffix not in (".gz", ".xz"):
        return data
    if path.suffix == ".gz":
        decompressor, failures = zlib.decompressobj(wbits=31), zlib.error
    else:
        import lzma  # here, because some builds of Python lack it

        decompressor = lzma.LZMADecompressor(memlimit=MOST_MEMORY)
        failures = lzma.LZMAError
    try:
        unpacked = decompressor.decompress(data, MOST_UNPACKED + 1)
    except failures as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
    if len(unpacked) > MOST_UNPACKED:
        raise RunError(f"{path} unpacks to more than {MOST_UNPACKED >> 20} MB: unpack it first")
    if not decompressor.eof:
        raise DamagedError(f"{path} is damaged: it ends too early")
    return unpacked


def _parsed(data: bytes) -> tuple[list[str], Iterator[Line]]:
    """The names of the columns, and the lines below them that are not blank."""
    raw = io.BytesIO(data)
    header = _cells(raw.readline())
    return header, _lines(header, raw)


def _lines(header: list[str], raw: Iterable[bytes]) -> Iterator[Line]:
    place = header.index(CHECK) if CHECK in header else None
    last: str | None = ""  # unknown after a line that is damaged
    for number, text in enumerate(raw, start=2):
        if not text.strip():
            continue
        text = text.removesuffix(b"\n")
        cells = _cells(text)
        whole, follows = len(cells) == len(header), True
        if whole and place is not None and cells[place]:
            own, _, chain = check(header, cells, after=last or "").partition("-")
            noted, _, noted_chain = cells[place].partition("-")
            whole, follows = own == noted, last is None or chain == noted_chain
            last = cells[place]
        if not whole:
            last = None
        yield Line(number, cells, text, whole, follows)


def _cells(text: bytes) -> list[str]:
    try:
        return next(csv.reader([text.decode(errors="surrogateescape")]), [])
    except csv.Error:  # a cell of absurd length
        return []


def _up_to(lines: Iterable[Line], rows: int, last: str) -> list[Line]:
    """The lines up to the row with the check `last`.

    Unless it is there, those up to the first that is not sound: none of another run's table, whose
    lines all are. In a table without checks, so many rows.
    """
    kept: list[Line] = []
    for line in lines:
        if len(kept) == rows and not last:
            break
        kept.append(line)
        if last and line.cells[-1:] == [last]:
            return kept
    if not last:
        return kept[:rows]
    sound = list(takewhile(lambda line: line.whole and line.follows, kept))
    return sound if len(sound) < rows else []


class _Found(NamedTuple):
    """The end of a table: its columns, its rows, and the check of the last of them."""

    columns: list[str]
    rows: int
    last: str


def _find(data: bytes) -> _Found:
    header = _cells(data[: max(data.find(b"\n"), 0)])
    final = _cells(data.rstrip(b"\n").rpartition(b"\n")[2])
    last = final[-1] if header[-1:] == [CHECK] and len(final) == len(header) else ""
    return _Found(header, max(data.count(b"\n") - 1, 0), "" if last == CHECK else last)


def _ordered(names: Iterable[str]) -> list[str]:
    """Quantities first, then times, and the check last."""
    return [*sorted((name for name in names if name != CHECK), key=is_time), CHECK]


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
