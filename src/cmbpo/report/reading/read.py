"""Run folders as they lie on the disk: found and read, and what has to be said about them."""

import csv
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cmbpo import columns
from cmbpo.evaluation import evaluated
from cmbpo.evaluation.evaluated import Evaluated
from cmbpo.report.arms import ArmRuns, arms
from cmbpo.report.reading import packed, soundness
from cmbpo.report.reading.recorded import Recorded
from cmbpo.runs.config import read_config
from cmbpo.runs.tables import examine
from cmbpo.settings.registry import TASKS

SET_ASIDE = "tuning"
"""Name of folders and archives whose runs served to choose settings: only read where named."""

DEEPEST = 32
"""Folders within one another that are looked into."""
LARGEST_FILE = 32_000_000
"""Bytes that a file of a run may have."""

_PROGRESS = (columns.ENV_STEPS, columns.CUMULATIVE_COST)


@dataclass
class Collection:
    """All that was found where the user pointed."""

    arms: list[ArmRuns] = field(default_factory=list)
    runs: list[Recorded] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """What a reader has to know about these folders, in sentences."""
    left_out: list[str] = field(default_factory=list)
    """What could not be read, and why, in sentences."""

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


def collect(
    places: Sequence[Path], watch: Callable[[float], None] = lambda share: None
) -> Collection:
    """Read every run in the places: run folders, or folders or archives that hold them.

    `watch` is told which share of them is read. What cannot be read is named and left out, unless
    it is all that was asked for.
    """
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
    for number, place in enumerate(places):
        try:
            with _opened(place, base) as (root, start):
                for share in _collect_into(shown, place, root, start, seen):
                    watch((number + share) / len(places))
        except packed.UnreadableError as error:
            if len(places) == 1:
                raise
            shown.left_out.append(f"{error}.")
    shown.arms = arms(shown.runs)
    _note_doubles(shown)
    return shown


def _collect_into(
    shown: Collection, place: Path, root: Path, start: Path, seen: set[Path]
) -> Iterator[float]:
    """Read the runs of a place, and tell which share of them is read."""
    found = _Found()
    folders = []
    for folder in _run_folders(root, found):
        if (real := folder.resolve()) not in seen:
            seen.add(real)
            folders.append(folder)
    if not folders and not found.aside:
        shown.notices.append(f"{place} holds no run: no folder in it has a config.json.")
    shown.left_out.extend(f"{_short(path, start)} {why}." for path, why in found.passed)
    shown.notices.extend(_set_aside(path, _short(path, start)) for path in found.aside)
    for number, folder in enumerate(folders, start=1):
        _read_into(shown, folder, _short(folder, start))
        yield number / len(folders)


@contextmanager
def _opened(place: Path, base: Path) -> Iterator[tuple[Path, Path]]:
    """Where the runs of a place lie, and the folder from which they are named."""
    if place.is_dir():
        yield place.resolve(), base
    else:
        with packed.unpacked(place) as root:
            yield root, root


@dataclass
class _Found:
    """What is met on the way to the run folders of a place."""

    aside: list[Path] = field(default_factory=list)
    """Folders and archives named `SET_ASIDE`."""
    passed: list[tuple[Path, str]] = field(default_factory=list)
    """What was not looked into, and why."""


def _run_folders(place: Path, found: _Found, depth: int = 0) -> Iterator[Path]:
    """The run folders in a place in order. Links are followed to run folders only."""
    try:
        if (place / "config.json").exists():
            yield place
            return
        children = sorted(place.iterdir())
        folders = {child for child in children if child.is_dir()}
        archives = {child for child in children if packed.is_packed(child)}
    except OSError as error:
        found.passed.append((place, f"cannot be looked into: {error.strerror or error}"))
        return
    if depth == DEEPEST and folders:
        found.passed.append((place, f"lies {DEEPEST} folders deep; what is in it is left out"))
        return
    for child in children:
        named_so = child.name.split(".")[0] == SET_ASIDE
        if named_so and (child in archives or (child in folders and child.name == SET_ASIDE)):
            found.aside.append(child)
        elif child in folders and child.is_symlink() and not (child / "config.json").exists():
            found.passed.append((child, "is a link to a folder; name that to see its runs"))
        elif child in folders and not child.name.startswith("."):
            yield from _run_folders(child, found, depth + 1)


def _set_aside(path: Path, name: str) -> str:
    kind = "folder" if path.is_dir() else "archive"
    try:
        there = _run_folders(path, _Found())
        count = sum(1 for _ in there) if path.is_dir() else packed.count(path)
    except ValueError as error:
        return f"Left out: {name}. {str(error).replace(str(path), 'It')}."
    return (
        f"Left out: {_count(count, 'run')} in {name}, which served to choose settings. "
        f"Name that {kind} to see them."
    )


def _read_into(shown: Collection, folder: Path, name: str) -> None:
    damage: list[str] = []
    try:
        _require_file(folder / "config.json")
        config = read_config(folder)
        if not isinstance(config.get("settings"), dict):
            raise ValueError("its config.json holds no settings")
        episodes = _known(folder, "episodes", columns.EPISODES, "episode", damage)
        progress = _known(folder, "progress", _PROGRESS, "update", damage)
        last = float(progress[columns.ENV_STEPS][-1])
        run = Recorded(name, config, episodes, progress, _evaluated(folder, config, last, damage))
        soundness.require(run)
    except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
        shown.left_out.append(not_shown(name, str(error).replace(str(folder), name)))
        return
    except RecursionError:
        shown.left_out.append(not_shown(name, "its config.json is nested too deeply"))
        return
    shown.runs.append(run)
    shown.left_out.extend(f"{name}: {sentence}" for sentence in damage)


def _evaluated(
    folder: Path, config: Mapping[str, Any], last: float, damage: list[str]
) -> Evaluated | None:
    """The episodes that its policy was evaluated in; where they are not to be had, that is said."""
    path = folder / evaluated.FILE
    if not path.exists():
        return None
    try:
        _require_file(path)
        found = evaluated.read(path)
        if found.run != str(config.get("id", "")):
            raise ValueError(f"{path} is of another run")
        if found.best:
            raise ValueError(f"{path} is of the best policy within the limit, not of the last")
        if found.env_steps < last:
            raise ValueError(
                f"{path} is of the policy after {found.env_steps:,} of {last:,.0f} steps"
            )
        return found
    except ValueError as error:
        damage.append(f"{error}.".replace(str(path), path.name))
        return None


def not_shown(name: str, reason: str) -> str:
    """The sentence about a run that is left out."""
    return f"{name} cannot be shown: {reason}."


def _known(
    folder: Path, kind: str, names: Sequence[str], what: str, damage: list[str]
) -> dict[str, np.ndarray]:
    """The rows of a table that can be used; what is to be said of the others goes to `damage`."""
    table = _table(folder, kind, damage)
    if not table or not len(next(iter(table.values()))):
        raise ValueError(f"it has no finished {what} yet")
    for name in names:
        if name not in table:
            raise ValueError(f"its {what}s have no column {name!r}")
    costs = [name for name in table if name.startswith(columns.episode_cost(""))]
    rows, unknown = soundness.known_rows(table, [*names, *costs])
    if not len(rows[names[0]]):
        raise ValueError(f"it has no {what} in which every number is finite")
    if unknown:
        lacking = f"{_count(unknown, what)} left out: a number is missing there"
        damage.append(f"{lacking}, or is not finite.")
    return rows


def _require_file(path: Path) -> None:
    """Refuse what is no file, and what is too large to be one of a run."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{path} is no file")
    if facts.st_size > LARGEST_FILE:
        raise ValueError(f"{path} has {facts.st_size:,} bytes; allowed: {LARGEST_FILE:,}")


def _table(folder: Path, name: str, damage: list[str]) -> dict[str, np.ndarray]:
    """A table of a run, compressed or not, without rows whose first column is torn; or nothing."""
    paths = [folder / f"{name}.csv{packed}" for packed in ("", ".gz", ".xz")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return {}
    _require_file(path)
    found = examine(path)
    if rows := len(found.damaged):
        lost = f"{_count(rows, 'row')} of {path.name} {'is' if rows == 1 else 'are'} damaged"
        damage.append(f"{lost} and left out; cmbpo verify names the lines.")
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
                shown.notices.append(
                    f"{arm.label} on {shown.title(task)} has seed {', '.join(twice)} more than "
                    "once: these runs count as different seeds below."
                )


def _bare(task: str) -> str:
    return re.sub(r"^.*[:/]|-v\d+$", "", task)


def _short(folder: Path, base: Path) -> str:
    return folder.name if folder == base else str(folder.relative_to(base))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
