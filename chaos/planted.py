"""Bugs planted on purpose, each of which the campaign has to find."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any
from unittest import mock

from chaos import (
    damage,
    environments,
    file_operations,
    full_disk,
    hostile,
    knowledge,
    rivals,
    specimen,
)
from chaos.trial import Family, Trial, Verdict, tried_once

MOST = 60
"""Trials within which a bug has to be found."""


class _Otherwise:
    """A module that does some things in another way."""

    def __init__(self, module: Any, **others: Any):
        self._module = module
        self.__dict__ |= others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Agreeable(bytes):
    """A checksum that is like any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Done in place of what ought to be done."""


def _patched(target: str, replacement: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch(target, replacement)


@contextlib.contextmanager
def _straight(path: Path) -> Iterator[IO[bytes]]:
    """A file that is written where it belongs, in two steps."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    shutil.copyfile(path, path.with_name(f".{path.name}.second"))
    os.replace(path.with_name(f".{path.name}.second"), path)


@contextlib.contextmanager
def _rows_twice() -> Iterator[None]:
    from cmbpo.runs.tables import CsvTable

    append = CsvTable.append

    def twice(self: CsvTable, rows: Any) -> None:
        append(self, rows)
        if self.path.name == "progress.csv" and self.rows == 3:
            append(self, rows)

    with mock.patch.object(CsvTable, "append", twice):
        yield


@contextlib.contextmanager
def _unchecked_rows() -> Iterator[None]:
    from cmbpo.columns import CHECK
    from cmbpo.runs import tables

    check = tables.check

    def believing(columns: Any, cells: Any, *, after: str) -> str:
        return cells[list(columns).index(CHECK)] or check(columns, cells, after=after)

    with mock.patch.object(tables, "check", believing):
        yield


@contextlib.contextmanager
def _swallowed_rows() -> Iterator[None]:
    from cmbpo.runs.tables import CsvTable

    append = CsvTable.append

    def silent(self: CsvTable, rows: Any) -> None:
        with contextlib.suppress(ValueError):
            append(self, rows)

    with mock.patch.object(CsvTable, "append", silent):
        yield


@contextlib.contextmanager
def _old_ones_dropped_first() -> Iterator[None]:
    from cmbpo.runs.run_folder import Run

    save = Run.save

    def hasty(self: Run, *args: Any, **kwargs: Any) -> Any:
        for path in self.checkpoints():
            path.unlink()
        return save(self, *args, **kwargs)

    with mock.patch.object(Run, "save", hasty):
        yield


@contextlib.contextmanager
def _trusting() -> Iterator[None]:
    from cmbpo.envs import find
    from cmbpo.evaluation import evaluate

    def trusted(settings: Any, env: Any = None, **_: Any) -> Any:
        return find.find_task(settings, env, trusted=True)

    with mock.patch.object(evaluate, "find_task", trusted):
        yield


@contextlib.contextmanager
def _failures_are_ends() -> Iterator[None]:
    from cmbpo.envs.adapter import EnvAdapter

    step = EnvAdapter.step

    def swallowing(self: EnvAdapter, action: Any) -> Any:
        import numpy as np

        try:
            return step(self, action)
        except ValueError:
            shape = self.observation_space.shape or (0,)
            return np.zeros(shape), 0.0, True, False, {"cost": np.zeros(len(self.cost_key))}

    with mock.patch.object(EnvAdapter, "step", swallowing):
        yield


@dataclass(frozen=True)
class Planted:
    """A bug, and the trials that have to find it."""

    name: str
    plant: Callable[[], AbstractContextManager[Any]]
    try_one: Callable[[Trial], Verdict]
    numbers: tuple[int, ...] = tuple(range(MOST))
    """The trials of the family that it is looked for in, by their number."""


def _of_file(name: str) -> tuple[int, ...]:
    """The trials that damage this file."""
    place = [file for file, _ in damage.FILES].index(name)
    return tuple(range(place, MOST * len(damage.FILES), len(damage.FILES)))[:MOST]


def _hostile(words: str, command: str) -> tuple[int, ...]:
    return tuple(i for i, (h, c) in enumerate(hostile.TRIALS) if words in h.name and c == command)


def _environment(*wanted: object) -> tuple[int, ...]:
    return (environments.TRIALS.index(wanted),)  # type: ignore[arg-type]


CUT = file_operations.cut_off
PLANTED = (
    Planted(
        "a checkpoint written in two steps",
        _patched("cmbpo.runs.array_file.whole_file", _straight),
        CUT,
    ),
    Planted("a row written twice", _rows_twice, CUT),
    Planted(
        "files not synced", _patched("cmbpo.runs.files.os", _Otherwise(os, fsync=_nothing)), CUT
    ),
    Planted("folders not synced", _patched("cmbpo.runs.files._sync", _nothing), CUT),
    Planted("records not synced", _patched("cmbpo.runs.tables.CsvTable.sync", _nothing), CUT),
    Planted(
        "records not cut back",
        _patched("cmbpo.runs.tables.os", _Otherwise(os, truncate=_nothing)),
        CUT,
    ),
    Planted("old checkpoints dropped before the new one is there", _old_ones_dropped_first, CUT),
    Planted(
        "an account that is not restored",
        _patched("cmbpo.data.ledger.Ledger.restore", _nothing),
        CUT,
    ),
    Planted("a full disk swallowed", _swallowed_rows, full_disk.try_one),
    Planted(
        "a folder that is not held",
        _patched(
            "cmbpo.runs.run_folder.fcntl", _Otherwise(os, flock=_nothing, LOCK_EX=0, LOCK_NB=0)
        ),
        rivals.folder_in_use,
    ),
    Planted(
        "damaged checkpoints erased",
        _patched("cmbpo.runs.run_folder.set_aside", lambda path, ending: path.unlink() or path),
        damage.try_one,
        _of_file("newest"),
    ),
    Planted(
        "a checksum that is not compared",
        _patched("cmbpo.runs.checkpoint._checksum", lambda *_: _Agreeable(b"any")),
        damage.try_one,
        _of_file("newest"),
    ),
    Planted(
        "checkpoints of other runs taken",
        _patched("cmbpo.runs.identity.require", _nothing),
        damage.try_one,
        _of_file("newest"),
    ),
    Planted(
        "rows whose check is not compared",
        _unchecked_rows,
        damage.try_one,
        _of_file("progress.csv"),
    ),
    Planted(
        "a stranger's module imported",
        _trusting,
        hostile.try_one,
        _hostile("a module and a limit", "evaluate"),
    ),
    Planted(
        "an environment's exception swallowed",
        _failures_are_ends,
        environments.try_one,
        _environment("raises_in_step", 25, "inline", "cpo"),
    ),
)


def try_one(trial: Trial) -> Verdict:
    """Plant one bug, and look for it with the trials of a family until it is found."""
    bug = PLANTED[trial.index]
    for algo in ("cpo", "cmbpo"):
        specimen.unbroken(algo)
        specimen.run(algo, seed=4)
        knowledge.known(algo)
    for number, index in enumerate(bug.numbers):
        again = Again(bug, index, trial.place / str(number))
        with bug.plant():
            found = again.tried()
        if not found.clean:
            sound = again.tried()
            what = f"{bug.name}, trial {number + 1}: {found.problem}"
            if sound.clean:
                return Verdict(what, "found")
            return Verdict(what, "unclean", f"unclean without the bug, too: {sound.problem}")
    return Verdict(bug.name, "overlooked", f"not found in {len(bug.numbers)} trials")


@dataclass(frozen=True)
class Again:
    """One trial that is made with and without a bug."""

    bug: Planted
    index: int
    place: Path

    def tried(self) -> Verdict:
        """The same trial as before, in a clean folder."""
        file_operations.start.cache_clear()
        self.place.mkdir(parents=True)
        family = Family(name=self.bug.name, promise="", count=0, try_one=self.bug.try_one)
        try:
            random = Random(f"{self.bug.name}/{self.index}")
            return tried_once(family, Trial(self.index, random, self.place))
        finally:
            shutil.rmtree(self.place, ignore_errors=True)
            file_operations.start.cache_clear()


FAMILIES = (
    Family(
        name="bugs planted on purpose",
        promise="each is found",
        count=len(PLANTED),
        try_one=try_one,
        seconds=400.0,
    ),
)
