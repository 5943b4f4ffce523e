"""A run folder: its settings, its records, its checkpoints, and going on where it stopped."""

import fcntl
import importlib
import os
import time
import typing
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from cmbpo import columns
from cmbpo.runs.checkpoint import Checkpoint, load, save, to_arrays, write_whole
from cmbpo.runs.config import read_config, rewrite_config, settings_from_json, write_config
from cmbpo.runs.errors import DamagedError, RunError
from cmbpo.runs.events import Events
from cmbpo.runs.tables import CsvTable, Row, read_table
from cmbpo.settings.registry import short_name
from cmbpo.settings.schema import TrainSettings

KEPT = 2
"""Checkpoints that a run keeps: the newest, and one more should that be damaged."""


class Run:
    """One run and its folder.

    `create` and `resume` hold the folder for training until `close`, so that no two processes train
    in it; `open` only reads.
    """

    def __init__(self, folder: Path, *, train: bool):
        """Use `create`, `resume` or `open`."""
        self.folder = folder
        self.config = read_config(folder)
        self.settings = settings_from_json(self.config, where=str(folder / "config.json"))
        self.progress = CsvTable(folder / "progress.csv")
        self.episodes = CsvTable(folder / "episodes.csv")
        self._events: Events | None = None
        self._wandb: Any = None
        self._lock = _lock(folder) if train else None

    @classmethod
    def create(cls, settings: TrainSettings, extra: Mapping[str, Any] | None = None) -> "Run":
        """Make `log_dir/<algo>-<task>/seed-<seed>-<time>/`; `extra` is added to its config.json."""
        wandb = _import_wandb() if settings.wandb else None
        folder = _new_folder(settings)
        try:
            (folder / "checkpoints").mkdir()
            write_config(folder, settings, extra or {})
        except OSError as error:
            raise RunError(f"could not write {folder}: {error.strerror}") from error
        run = cls(folder, train=True)
        run._connect(wandb)
        return run

    @classmethod
    def resume(cls, folder: str | Path) -> "Run":
        """Take over a folder to go on training in it. `restore` then says from where."""
        run = cls(Path(folder), train=True)
        for unfinished in run.folder.glob("**/.*.tmp"):
            unfinished.unlink()
        run._connect(_import_wandb() if run.settings.wandb else None)
        return run

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Read a folder."""
        return cls(Path(folder), train=False)

    def extend(self, total_steps: int) -> TrainSettings:
        """Let the run end after another number of steps; config.json says so from now on."""
        self._require_training()
        if total_steps < self._last_step():
            raise RunError(
                f"total_steps is {total_steps}; allowed here: at least {self._last_step()}, the"
                f" steps that {self.folder} has taken"
            )
        self.settings = replace(self.settings, total_steps=total_steps)
        self.config["settings"]["total_steps"] = total_steps
        rewrite_config(self.folder, self.config)
        return self.settings

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
            self._events = Events(self.folder, after=self._last_step())
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

    def save(self, state: Any, update: int) -> Path:
        """Write a checkpoint of a pytree, then drop all but the newest ones."""
        self._require_training()
        path = self.folder / "checkpoints" / f"{update}.npz"
        tables = {t.path.name: t.position() for t in (self.progress, self.episodes)}
        save(path, state, notes={"update": update, "tables": tables})
        # Only after the new one is safely there.
        for old in self.checkpoints()[KEPT:]:
            old.unlink()
        return path

    def checkpoints(self) -> list[Path]:
        """The checkpoints, newest first."""
        paths = (self.folder / "checkpoints").glob("[0-9]*.npz")
        return sorted(paths, key=lambda path: int(path.stem), reverse=True)

    def load(self, template: Any, *, under: str = "") -> Any:
        """The state of the newest checkpoint that is not damaged; see `checkpoint.load`."""
        _, checkpoint = self._newest(template, under=under)
        if checkpoint is None:
            raise RunError(f"{self.folder} has no checkpoint yet")
        return checkpoint.state

    def load_best(self, template: Any) -> Any:
        """The policy that earned most within the limit."""
        path = self.folder / "best.npz"
        if not path.exists():
            raise RunError(f"{self.folder} has no best policy: none was within the limit yet")
        return load(path, template, under="policy").state

    def restore(self, template: Any) -> Any | None:
        """The state to go on from, or None to start anew; the records are cut back to it."""
        self._require_training()
        path, checkpoint = self._newest(template)
        start = {"bytes": 0, "rows": 0}
        tables = {} if checkpoint is None else checkpoint.notes["tables"]
        for table in (self.progress, self.episodes):
            table.rewind(tables.get(table.path.name, start))
        for newer in self.checkpoints():
            if newer == path:
                break
            newer.unlink()
        return None if checkpoint is None else checkpoint.state

    def save_offending(self, batch: Any, update: int) -> Path:
        """Write the batch that made a quantity non-finite to `nonfinite-<update>.npz`."""
        path = self.folder / f"nonfinite-{update}.npz"
        write_whole(path, {f"batch/{n}": x for n, x in to_arrays(batch)[0].items()})
        return path

    def _newest(self, template: Any, *, under: str = "") -> tuple[Path | None, Checkpoint | None]:
        paths = self.checkpoints()
        for path in paths:
            try:
                return path, load(path, template, under=under)
            except DamagedError as error:
                warnings.warn(f"{error}; taking the one before it", stacklevel=4)
        if paths:
            raise RunError(f"every checkpoint in {self.folder / 'checkpoints'} is damaged")
        return None, None

    def _last_step(self) -> int:
        if not self.progress.rows:
            return -1
        return int(read_table(self.progress.path)[columns.ENV_STEPS][-1])

    def _require_training(self) -> None:
        if self._lock is None:
            raise RunError(f"{self.folder} was opened to be read, not to train in")

    def _connect(self, wandb: Any) -> None:
        if wandb is not None:
            name = f"{self.folder.parent.name}-{self.folder.name}"
            self._wandb = wandb.init(
                project="cmbpo", id=name, resume="allow", dir=self.folder, config=self.config
            )


def _new_folder(settings: TrainSettings) -> Path:
    parent = Path(settings.log_dir) / f"{settings.algo}-{short_name(settings.env_id)}"
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
    file = (folder / ".lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise RunError(f"process {holder} is already training in {folder}") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _import_wandb() -> Any:
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise RunError("wandb is not installed: pip install wandb, the extra `wandb`") from None
