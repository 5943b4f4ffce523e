"""That a run folder holds its own files, before they are written to."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from cmbpo.runs.errors import RunError


def require_own_files(folder: Path) -> None:
    """Refuse a run folder in which something leads elsewhere: training would write through it."""
    for place, folders, files in os.walk(folder):
        for path in sorted(Path(place) / name for name in (*folders, *files)):
            with suppress(FileNotFoundError):  # whoever trains there now removed it
                _require_own(path)


def _require_own(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise RunError(
            f"{path} is a symbolic link to {path.readlink()}, which training would write to; if"
            " you trust this run, say so with --trust"
        )
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise RunError(f"{path} is neither a file nor a folder; in a run nothing else is allowed")
