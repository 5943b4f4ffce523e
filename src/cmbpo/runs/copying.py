"""What is taken from a run: a copy that is a run of its own, or what another run begins with."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cmbpo.runs.errors import RunError, UnlikeError
from cmbpo.runs.files import set_aside
from cmbpo.runs.run_folder import BEST, Run, checkpoint_files
from cmbpo.settings.lending import require_fit
from cmbpo.settings.schema import TrainSettings

RECORDS = ("progress.csv", "episodes.csv", "curves.png", BEST)
"""What is copied beside config.json and the newest checkpoint, where it is there."""


def copy_run(folder: Path, to: Path) -> Path:
    """Copy a run as its newest checkpoint has it; the copy appears at `to` whole or not at all.

    An earlier copy of the same run is replaced. Anything else that is there is renamed, not lost.
    """
    newest, *_ = checkpoint_files(folder) or [None]
    if newest is None:
        raise RunError(f"{folder} has no checkpoint yet: there is nothing to save")
    to = to.absolute()
    if to.exists() and (to.samefile(folder) or to in folder.absolute().parents):
        raise RunError(f"{to} holds the run itself; allowed: another place")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-"))
        try:
            (unfinished / "checkpoints").mkdir()
            shutil.copyfile(newest, unfinished / "checkpoints" / newest.name)
            # The config last but one: what has none is no run folder.
            for name in (*RECORDS, "config.json"):
                if (folder / name).is_file():
                    shutil.copyfile(folder / name, unfinished / name)
            unfinished.chmod(0o777 & ~_umask())
            _make_room(to, folder)
            unfinished.replace(to)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise RunError(f"could not write {to}: {error.strerror or error}") from error
    return to


def _make_room(to: Path, folder: Path) -> None:
    """Erase an earlier copy of the run in `folder`, and only that."""
    if not to.exists() and not to.is_symlink():
        return
    if _is_earlier(to, folder):
        shutil.rmtree(to)
    else:
        set_aside(to, "old")


def _is_earlier(copy: Path, folder: Path) -> bool:
    """Whether this is a copy of the run, and no further than the run is now."""
    if copy.is_symlink() or not (copy / "config.json").is_file():
        return False
    try:
        theirs, ours = Run.open(copy), Run.open(folder)
    except ValueError:
        return False
    updates = [int(run.checkpoints()[0].stem) for run in (theirs, ours) if run.checkpoints()]
    same = theirs.config.get("id") == ours.config.get("id")
    return same and len(updates) == 2 and updates[0] <= updates[1]


def _umask() -> int:
    """The system tells it only to who sets it."""
    now = os.umask(0)
    os.umask(now)
    return now


def lender(settings: TrainSettings) -> Run:
    """The run that `init_from` names, once it is found to be one that can lend to these."""
    try:
        other = Run.open(str(settings.init_from))
    except RunError as error:
        raise RunError(
            f"init_from is {settings.init_from!r}; allowed: a run folder ({error})"
        ) from error
    require_fit(settings, other.settings, str(other.folder))
    if not other.checkpoints():
        raise RunError(f"init_from is {settings.init_from!r}, which has no checkpoint yet")
    return other


def lent(other: Run, template: Any, settings: TrainSettings, *, under: str) -> Any:
    """That part of what another run has saved, as `template` is."""
    try:
        return other.load(template, under=under)
    except UnlikeError as error:
        raise RunError(
            f"init_from is {str(other.folder)!r}, a run on {other.settings.env_id}; allowed for"
            f" {settings.env_id}: a run with as many observations, actions and costs ({error})"
        ) from error
