"""Run folders as they lie on the disk: found and read, and what has to be said about them."""

import csv
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cmbpo import columns
from cmbpo.report import packed
from cmbpo.report.arms import ArmRuns, arms
from cmbpo.report.recorded import Recorded
from cmbpo.runs.config import read_config
from cmbpo.runs.tables import examine
from cmbpo.settings.registry import TASKS

SET_ASIDE = "tuning"
"""Name of folders and archives whose runs served to choose settings: only read where named."""

_PROGRESS = (columns.ENV_STEPS, columns.CUMULATIVE_COST)


@dataclass
class Collection:
    """All that was found where the user pointed."""

    arms: list[ArmRuns] = field(default_factory=list)
    runs: list[Recorded] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """What a reader has to know about these folders, in sentences."""

    @property
    def tasks(self) -> list[str]:
        """The tasks: those of the paper first, in its order."""
        present = {run.task for run in self.runs}
        known = [task for task in TASKS if task in present]
        return known + sorted(present - set(known))

    def title(self, task: str) -> str:
        """A task as readers call it: without module and version, where no other is called so."""
        same = [other for other in self.tasks if _bare(other) == _bare(task)]
        return _bare(task) if len(same) == 1 else task

    @property
    def unfinished(self) -> list[Recorded]:
        """The runs with fewer environment steps than were asked for."""
        return [run for run in self.runs if run.steps[-1] < run.total_steps]


def collect(places: Sequence[Path]) -> Collection:
    """Read every run in the places: run folders, or folders or archives that hold them."""
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place} does not exist")
        if not place.is_dir() and not packed.is_packed(place):
            raise ValueError(
                f"{place} is a file; a run folder, a folder of them, "
                f"or an archive ({', '.join(packed.ENDINGS)}) is needed"
            )
    shown = Collection()
    base = Path(os.path.commonpath([place.resolve() for place in places]))
    seen: set[Path] = set()
    for place in places:
        with _opened(place, base) as (root, start):
            aside: list[Path] = []
            folders = [f for f in _run_folders(root, aside) if f not in seen]
            seen.update(folders)
            if not folders and not aside:
                shown.notices.append(f"{place} holds no run: no folder in it has a config.json.")
            shown.notices.extend(_left_out(path, _short(path, start)) for path in aside)
            for folder in folders:
                _read_into(shown, folder, _short(folder, start))
    shown.arms = arms(shown.runs)
    _note_doubles(shown)
    return shown


@contextmanager
def _opened(place: Path, base: Path) -> Iterator[tuple[Path, Path]]:
    """Where the runs of a place lie, and the folder from which they are named."""
    if place.is_dir():
        yield place.resolve(), base
    else:
        with packed.unpacked(place) as root:
            yield root, root


def _run_folders(place: Path, aside: list[Path]) -> Iterator[Path]:
    """The run folders in a place in order; what is named `SET_ASIDE` is put aside."""
    if (place / "config.json").exists():
        yield place
        return
    for child in sorted(place.iterdir()):
        if child.is_dir() and child.name == SET_ASIDE:
            aside.append(child)
        elif child.is_dir() and not child.name.startswith("."):
            yield from _run_folders(child, aside)
        elif packed.is_packed(child) and child.name.startswith(f"{SET_ASIDE}."):
            aside.append(child)


def _left_out(path: Path, name: str) -> str:
    kind = "folder" if path.is_dir() else "archive"
    try:
        count = sum(1 for _ in _run_folders(path, [])) if path.is_dir() else packed.count(path)
    except ValueError as error:
        return f"Left out: {name}. {str(error).replace(str(path), 'It')}."
    return (
        f"Left out: {_count(count, 'run')} in {name}, which served to choose settings. "
        f"Name that {kind} to see them."
    )


def _read_into(shown: Collection, folder: Path, name: str) -> None:
    damage: list[str] = []
    try:
        config = read_config(folder)
        if not isinstance(config.get("settings"), dict):
            raise ValueError("its config.json holds no settings")
        run = Recorded(name, config, *_tables(folder, damage))
        _require(run.progress, _PROGRESS, "update")
        _require(run.episodes, columns.EPISODES, "episode")
    except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
        reason = str(error).replace(str(folder), name)
        shown.notices.append(f"{name} cannot be shown: {reason}.")
        return
    shown.runs.append(run)
    shown.notices.extend(f"{name}: {sentence}" for sentence in damage)


def _require(table: dict[str, np.ndarray], names: Sequence[str], what: str) -> None:
    if not table or not len(next(iter(table.values()))):
        raise ValueError(f"it has no finished {what} yet")
    for name in names:
        if name not in table:
            raise ValueError(f"its {what}s have no column {name!r}")


def _tables(folder: Path, damage: list[str]) -> Iterator[dict[str, np.ndarray]]:
    yield _table(folder, "episodes", damage)
    yield _table(folder, "progress", damage)


def _table(folder: Path, name: str, damage: list[str]) -> dict[str, np.ndarray]:
    """A table of a run, compressed or not, without rows whose first column is torn; or nothing."""
    paths = [folder / f"{name}.csv{packed}" for packed in ("", ".gz", ".xz")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return {}
    found = examine(path)
    if rows := len(found.damaged):
        left_out = f"{_count(rows, 'row')} of {path.name} {'is' if rows == 1 else 'are'} damaged"
        damage.append(f"{left_out} and left out; cmbpo verify names the lines.")
    if found.gaps:
        damage.append(f"rows of {path.name} are missing, repeated or moved; see cmbpo verify.")
    numbers = {n: x if x.dtype == float else _numbers(x) for n, x in found.columns.items()}
    if not numbers:
        return {}
    whole = np.isfinite(next(iter(numbers.values())))
    return {n: x[whole] for n, x in numbers.items()}


def _numbers(cells: np.ndarray) -> np.ndarray:
    def number(cell: str) -> float:
        try:
            return float(cell)
        except ValueError:
            return np.nan

    return np.array([number(cell) for cell in cells])


def _note_doubles(shown: Collection) -> None:
    for arm in shown.arms:
        for task, runs in arm.runs.items():
            seeds = [run.seed for run in runs]
            twice = sorted({str(s) for s in seeds if seeds.count(s) > 1})
            if twice:
                where = f"{arm.label} on {shown.title(task)}"
                shown.notices.append(
                    f"{where} has seed {', '.join(twice)} more than once: "
                    "these runs count as different seeds below."
                )


def _bare(task: str) -> str:
    return re.sub(r"^.*[:/]|-v\d+$", "", task)


def _short(folder: Path, base: Path) -> str:
    return folder.name if folder == base else str(folder.relative_to(base))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
