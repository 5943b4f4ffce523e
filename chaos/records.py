"""What a run wrote down, apart from what no two runs share, and whether nothing of it is lost."""

import csv
import hashlib
import io
from pathlib import Path

from chaos import disk
from chaos.trial import require
from cmbpo import columns

TABLES = ("progress.csv", "episodes.csv")
Cells = dict[str, list[dict[str, str]]]


def cells(folder: Path) -> Cells:
    """The cells of both tables but times."""
    return {name: _rows(folder / name) for name in TABLES}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    rows = csv.DictReader(io.StringIO(path.read_text(), newline=""))
    return [{k: v for k, v in row.items() if not _own(k)} for row in rows]


def _own(column: str | None) -> bool:
    """Whether a column is each run's own: a time, or the check of a row with times in it."""
    return column is not None and (columns.is_time(column) or column == columns.CHECK)


def require_same(found: Cells, wanted: Cells) -> None:
    """Both tables, cell by cell."""
    for name, rows in wanted.items():
        mine = found[name]
        for i, (a, b) in enumerate(zip(mine, rows, strict=False)):
            for column in a.keys() | b.keys():
                require(
                    a.get(column) == b.get(column),
                    f"{name}, row {i + 1}, {column}: {a.get(column)} where the unbroken run has"
                    f" {b.get(column)}",
                )
        require(len(mine) == len(rows), f"{name} has {len(mine)} rows, the unbroken {len(rows)}")


def contents(folder: Path) -> dict[str, str]:
    """Each file with a hash of its bytes, but for what holds no data."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(disk.read(path)).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    }


def require_nothing_lost(before: dict[str, str], folder: Path) -> None:
    """Every file's bytes are still there, be it under another name."""
    after = set(contents(folder).values())
    for name, digest in before.items():
        require(digest in after, f"the bytes of {name} are gone")
