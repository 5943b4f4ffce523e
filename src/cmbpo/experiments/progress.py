"""How far a run is, read from the end of its progress.csv while another process writes it."""

import csv
from pathlib import Path
from typing import NamedTuple

from cmbpo import columns

TAIL = 64 * 1024
"""Bytes at the end of progress.csv that are looked at: some tens of updates."""


class Progress(NamedTuple):
    """The newest update of a run."""

    update: int
    steps: int
    ret: float
    cost: float
    limit: float
    seconds_per_step: float


def read(folder: Path) -> Progress | None:
    """The newest update in the folder; None before the first, and where it cannot be read."""
    try:
        return newest(folder)
    except (OSError, ValueError):
        return None


def newest(folder: Path) -> Progress | None:
    """The newest update in the folder, or None before the first; ValueError where damaged."""
    path = folder / "progress.csv"
    try:
        rows = _tail(path)
        return _progress(rows[0], rows[-1]) if rows else None
    except FileNotFoundError:
        return None
    except KeyError as missing:
        raise ValueError(f"{path} has no column {missing.args[0]}") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is not readable: {error}") from None


def _progress(first: dict[str, str], last: dict[str, str]) -> Progress:
    steps = int(last[columns.ENV_STEPS]) - int(first[columns.ENV_STEPS])
    seconds = float(last[columns.TOTAL_SECONDS]) - float(first[columns.TOTAL_SECONDS])
    return Progress(
        update=int(last[columns.UPDATE]),
        steps=int(last[columns.ENV_STEPS]),
        ret=_number(last, columns.RETURN),
        cost=_number(last, columns.COST),
        limit=_number(last, columns.LIMIT),
        seconds_per_step=seconds / steps if steps > 0 else float("nan"),
    )


def finished(folder: Path, total_steps: int) -> bool:
    """Whether the run took its steps, and a policy of then or later is kept."""
    if read(folder) is None:
        return False
    there = [row for row in _tail(folder / "progress.csv") if _steps(row) >= total_steps]
    kept = (folder / "checkpoints" / f"{row[columns.UPDATE]}.npz" for row in reversed(there))
    return any(path.exists() for path in kept)


def _steps(row: dict[str, str]) -> int:
    return int(row[columns.ENV_STEPS])


def _number(row: dict[str, str], name: str) -> float:
    """A cell; with several costs, the first of them."""
    cells = list(columns.each(row, name).values())
    return float(cells[0]) if cells and cells[0] else float("nan")


def _tail(path: Path) -> list[dict[str, str]]:
    """The last complete rows, with the names of their columns."""
    with path.open("rb") as file:
        header = file.readline()
        start, end = file.tell(), file.seek(0, 2)
        file.seek(max(start, end - TAIL))
        text = file.read()
    if end - start > TAIL:
        text = text[text.find(b"\n") + 1 :]
    lines = text[: text.rfind(b"\n") + 1].decode().splitlines()
    (names,) = csv.reader([header.decode()]) if header.endswith(b"\n") else [[]]
    rows = [row for row in csv.reader(lines) if len(row) == len(names)]
    return [dict(zip(names, row, strict=True)) for row in rows]
