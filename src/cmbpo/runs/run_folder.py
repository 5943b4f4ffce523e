"""A run folder: its settings, its records, its checkpoints, and going on where it stopped."""

import importlib
import os
import re
import time
import typing
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from cmbpo import columns
from cmbpo.runs import identity
from cmbpo.runs.array_file import write_whole
from cmbpo.runs.checkpoint import Checkpoint, load, read_notes, save, to_arrays
from cmbpo.runs.config import (
    read_config,
    require_no_file,
    rewrite_config,
    settings_from_json,
    write_config,
)
from cmbpo.runs.errors import DamagedError, RunError
from cmbpo.runs.events import Events
from cmbpo.runs.files import LOCK, set_aside, try_lock
from cmbpo.runs.tables import CsvTable, Row, read_table
from cmbpo.settings.registry import short_algorithm, short_name
from cmbpo.settings.schema import TrainSettings

KEPT = 2
"""Checkpoints that a run keeps: the newest good ones, should the last be damaged."""
BEST = "best.npz"
"""File of the best policy within the limits."""
FACTS = {"update": int, "env_steps": int, "return": float, "cost": list}
"""What is noted of it: the update that it acted in, and what its newest episodes earned and cost
(per horizon, each of the costs)."""


class Run:
    """One run and its folder.

    `create` and `resume` hold the folder for training until `close`, so that no two processes train
    in it; `open` only reads.
    """

    def __init__(
        self,
        folder: Path,
        *,
        train: bool,
        trusted: bool = False,
        lock: IO[str] | None = None,
    ):
        """Use `create`, `resume` or `open`; `lock` where the folder is held already."""
        self.folder = folder
        require_no_file(folder)
        self.config = read_config(folder)
        self.settings = settings_from_json(
            self.config, where=str(folder / "config.json"), trusted=trusted, to_train=train
        )
        self.progress = CsvTable(folder / "progress.csv")
        self.episodes = CsvTable(folder / "episodes.csv")
        self._good: list[int] = []
        self._extended = False
        self._events: Events | None = None
        self._wandb: Any = None
        self._lock = lock or (_lock(folder) if train else None)

    @classmethod
    def create(cls, settings: TrainSettings, extra: Mapping[str, Any] | None = None) -> "Run":
        """Make `log_dir/<algo>-<task>/seed-<seed>-<time>/`; `extra` is added to its config.json."""
        wandb = _import_wandb() if settings.wandb else None
        folder = _new_folder(settings)
        try:
            (folder / "checkpoints").mkdir()
            # Before it is a run folder: nobody goes on with what has not begun.
            lock = _lock(folder)
            write_config(folder, settings, extra or {})
        except OSError as error:
            raise RunError(f"could not write {folder}: {error.strerror}") from error
        run = cls(folder, train=True, lock=lock)
        run._connect(wandb)
        return run

    @classmethod
    def resume(cls, folder: str | Path) -> "Run":
        """Take over a folder to go on training in it. `restore` then says from where."""
        run = cls(Path(folder), train=True)
        for table in (run.progress, run.episodes):
            if table.path.is_symlink():
                run.close()
                raise RunError(f"{table.path} is a link; a run goes on in files of its own")
        for place in (run.folder, run.folder / "checkpoints"):
            for unfinished in place.glob(".*.tmp"):
                unfinished.unlink()
        run._connect(_import_wandb() if run.settings.wandb else None)
        return run

    @classmethod
    def open(cls, folder: str | Path, *, trusted: bool = False) -> "Run":
        """Read a folder; the module of its algorithm is imported only where it is `trusted`."""
        if not isinstance(folder, str | Path):
            raise RunError(f"{folder!r} is no run folder; allowed: a path")
        return cls(Path(os.path.expanduser(folder)), train=False, trusted=trusted)

    def extend(self, total_steps: int) -> TrainSettings:
        """Let the run end after another number of steps; config.json says so once it goes on."""
        self._require_training()
        if total_steps < self.last_step():
            raise RunError(
                f"total_steps is {total_steps}; allowed here: at least {self.last_step()}, the"
                f" steps that {self.folder} has taken"
            )
        self.settings = replace(self.settings, total_steps=total_steps)
        self.config["settings"]["total_steps"] = total_steps
        self._extended = True
        return self.settings

    @property
    def id(self) -> str:
        """What tells it from every other run; "" for those of before there were any."""
        return str(self.config.get("id", ""))

    def close(self) -> None:
        """Close the files and let others train in the folder."""
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._wandb is not None:
            self._wandb.finish()
            self._wandb = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "Run":
        """The run itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def record(self, row: Row) -> None:
        """Write the row of one update to progress.csv, TensorBoard and, if asked for, W&B."""
        self._require_training()
        step = int(typing.cast(int, row[columns.ENV_STEPS]))
        if self._events is None:
            self._events = Events(self.folder, after=self.last_step())
        self.progress.append([row])
        self._events.append(row, step)
        if self._wandb is not None:
            self._wandb.log(dict(row), step=step)

    def record_episodes(self, rows: Sequence[Row]) -> None:
        """Add finished training episodes to episodes.csv.

        A row has `env_steps`, `return`, `cost`, `length`, `terminated`, and `cost_<name>` for each
        of several costs.
        """
        self._require_training()
        self.episodes.append(rows)

    def marks(self) -> dict[str, Any]:
        """Where the records end now, for a checkpoint that is saved later."""
        return {table.path.name: table.mark() for table in (self.progress, self.episodes)}

    def save(self, state: Any, update: int, marks: Mapping[str, Any] | None = None) -> Path:
        """Write a checkpoint of a pytree, then drop all but the newest good ones.

        `marks` say where the records ended at that update, unless it is now.
        """
        self._require_training()
        path = self.folder / "checkpoints" / f"{update}.npz"
        for table in (self.progress, self.episodes):
            table.sync()
        save(path, state, notes=self._notes(update=update, tables=marks or self.marks()))
        # Only after the new one is safely there.
        self._good.append(update)
        if len(self._good) >= KEPT:
            oldest = sorted(self._good)[-KEPT]
            for old in self.checkpoints():
                # a folder of that name is nobody's checkpoint
                if int(old.stem) < oldest and not old.is_dir():
                    old.unlink()
        return path

    def checkpoints(self) -> list[Path]:
        """The checkpoints, newest first."""
        return checkpoint_files(self.folder)

    def load(self, template: Any, *, under: str = "") -> Any:
        """The state of the newest checkpoint that is not damaged; see `checkpoint.load`."""
        damaged: list[DamagedError] = []
        found = self._newest(template, damaged, under=under)
        for error in damaged:
            warnings.warn(f"{error}; taking the one before it", stacklevel=3)
        if found is None:
            raise RunError(f"{self.folder} has no checkpoint yet")
        return found.state

    def restore(self, template: Any, *, start_anew: bool = False) -> Any | None:
        """The state to go on from, or None to start anew; the records are cut back to it.

        Nothing is erased: checkpoints and records that are damaged, or that a new start leaves
        behind, are renamed, and a run that has lost its checkpoints has to be told to start anew.
        """
        self._require_training()
        damaged: list[DamagedError] = []
        found = None if start_anew else self._newest(template, damaged)
        if found is None:
            self._set_records_aside(start_anew=start_anew)
            self._note_extension()
            return None
        update, tables = found.notes["update"], found.notes["tables"]
        for error, path in zip(damaged, self.checkpoints(), strict=False):
            warnings.warn(f"{error}; it is now {set_aside(path, 'damaged').name}", stacklevel=2)
        self._good = [update]
        lost = [table.rewind(tables[table.path.name]) for table in (self.progress, self.episodes)]
        for sentence in filter(None, lost):
            warnings.warn(sentence, stacklevel=2)
        if any(lost):  # the next time, the records are to be cut where they end now
            self.save(found.state, update)
        self._note_extension()
        return found.state

    def _note_extension(self) -> None:
        """Only now that the run goes on: one that is refused keeps its settings."""
        if self._extended:
            rewrite_config(self.folder, self.config)

    def _set_records_aside(self, *, start_anew: bool) -> None:
        """Make room for a run from its first step."""
        if self.progress.rows and not start_anew:
            raise RunError(
                f"{self.folder} has {self.progress.rows} updates in progress.csv, but no checkpoint"
                " to go on from; --start-anew trains it from the start and sets the old records"
                " aside"
            )
        tables = (self.progress, self.episodes)
        for path in (*self.checkpoints(), self.folder / BEST, *(table.path for table in tables)):
            if path.exists() and path.stat().st_size:
                set_aside(path, "old")
        for table in tables:
            table.rewind({"rows": 0})
        try:
            (self.folder / "checkpoints").mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"could not write {self.folder}: {error.strerror}") from error

    def save_best(self, policy: Any, facts: Mapping[str, Any]) -> Path:
        """Write the best policy within the limits, and what is known of it, to best.npz."""
        self._require_training()
        path = self.folder / BEST
        if path.is_dir():
            set_aside(path, "damaged")
        save(path, {"learner": {"policy": policy}}, notes=self._notes(**facts))
        return path

    def load_best(self, template: Any) -> Checkpoint:
        """The best policy within the limits, and in its notes what was known of it."""
        path = self.folder / BEST
        if not path.exists():
            raise RunError(f"{self.folder} has no {BEST}: no update has kept the limits so far")
        found = load(path, template, under="learner/policy")
        self._require_best(found.notes)
        return found

    def notes_of(self, checkpoint: Path) -> dict[str, Any]:
        """The notes of a checkpoint, once it is found whole and this run's own."""
        notes = read_notes(checkpoint)
        self._require_ours(notes, checkpoint)
        return notes

    def notes_of_best(self) -> dict[str, Any]:
        """The notes of the best policy, once it is found whole and this run's own."""
        notes = read_notes(self.folder / BEST)
        self._require_best(notes)
        return notes

    def _require_best(self, notes: Mapping[str, Any]) -> None:
        path = self.folder / BEST
        identity.require(notes, self.config, self.settings, path)
        if not all(isinstance(notes.get(n), kind) for n, kind in FACTS.items()):
            raise DamagedError(f"{path} is no best policy of a run: its notes do not say how good")

    def save_offending(self, batch: Any, update: int) -> Path:
        """Write the batch that made a quantity non-finite to `nonfinite-<update>.npz`."""
        path = self.folder / f"nonfinite-{update}.npz"
        write_whole(path, {f"batch/{n}": x for n, x in to_arrays(batch)[0].items()})
        return path

    def _newest(
        self, template: Any, damaged: list[DamagedError], *, under: str = ""
    ) -> Checkpoint | None:
        """The newest checkpoint that is whole; what is wrong with newer ones goes to `damaged`."""
        paths = self.checkpoints()
        for path in paths:
            try:
                found = load(path, template, under=under)
                self._require_ours(found.notes, path)
                return found
            except DamagedError as error:
                damaged.append(error)
        if damaged:
            raise RunError(
                f"every checkpoint in {self.folder / 'checkpoints'} is damaged: {damaged[0]}"
            )
        return None

    def _notes(self, **more: Any) -> dict[str, Any]:
        return {**identity.of_run(self.config, self.settings), **more}

    def _require_ours(self, notes: Mapping[str, Any], path: Path) -> None:
        identity.require(notes, self.config, self.settings, path)
        if str(notes.get("update")) != path.stem:
            raise RunError(
                f"{path} is the checkpoint of update {notes.get('update')}: give it back its name"
            )
        tables = notes.get("tables")
        for table in (self.progress, self.episodes):
            mark = tables.get(table.path.name) if isinstance(tables, dict) else None
            if not isinstance(mark, dict) or not isinstance(mark.get("rows"), int):
                raise DamagedError(
                    f"{path} is no checkpoint of a run: it does not say where the records end"
                )

    def last_step(self) -> int:
        """The real steps after the newest update in progress.csv; −1 where there is none."""
        if not self.progress.rows:
            return -1
        try:
            steps = read_table(self.progress.path).get(columns.ENV_STEPS, np.zeros(0))
        except DamagedError:
            return -1
        known = steps[np.isfinite(steps)] if steps.dtype == float else []
        return int(known[-1]) if len(known) else -1

    def _require_training(self) -> None:
        if self._lock is None:
            raise RunError(f"{self.folder} was opened to be read, not to train in")

    def _connect(self, wandb: Any) -> None:
        if wandb is not None:
            name = f"{self.folder.parent.name}-{self.folder.name}"
            self._wandb = wandb.init(
                project="cmbpo", id=name, resume="allow", dir=self.folder, config=self.config
            )


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints in a run folder, newest first; what has another name than one is none."""
    paths = (folder / "checkpoints").glob("*.npz")
    named = [path for path in paths if re.fullmatch(r"0|[1-9][0-9]{0,17}", path.stem)]
    return sorted(named, key=lambda path: int(path.stem), reverse=True)


def _new_folder(settings: TrainSettings) -> Path:
    algo = short_algorithm(settings.algo)
    parent = Path(settings.log_dir) / f"{algo}-{short_name(settings.env_id)}"
    name = f"seed-{settings.seed:03d}-{time.strftime('%Y-%m-%d-%H-%M-%S')}"
    count = 1
    while True:
        folder = parent / (name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            count += 1
        except OSError as error:
            raise RunError(f"could not make {folder}: {error.strerror}") from error


def _lock(folder: Path) -> IO[str]:
    """Hold the folder. The system lets go of it when the process ends, however it ends."""
    try:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        file = os.fdopen(os.open(folder / LOCK, flags, 0o666), "a+")
    except OSError as error:
        raise RunError(f"could not write {folder / LOCK}: {error.strerror}") from error
    if not try_lock(file):
        file.seek(0)
        holder = file.read().strip()
        file.close()
        who = "this process" if holder == str(os.getpid()) else f"process {holder}"
        raise RunError(f"{who} is already training in {folder}")
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _import_wandb() -> Any:
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise RunError("wandb is not installed: pip install wandb, the extra `wandb`") from None
