"""The tiny runs that trials are made on: made once for a campaign, copied for each trial."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tiny import tiny

from chaos import records
from cmbpo.settings.schema import TrainSettings

STEPS = {"cpo": 600, "cmbpo": 600}
"""Real steps of a specimen: a warm-up and four updates."""
LONGER = 900
"""Steps to which trials go on: three updates more."""


def settings(algo: str, log_dir: Path | str, **changes: Any) -> TrainSettings:
    """A tiny run with many short episodes, and a checkpoint after every update."""
    small: dict[str, Any] = {
        "num_envs": 2,
        "first_episode": 10,
        "seed": 3,
        "total_steps": STEPS[algo],
    }
    if algo == "cpo":
        small["batch_size"] = 100
    return tiny(algo, log_dir, **small | changes)


def workshop() -> Path:
    """The campaign's folder, which all its processes know."""
    return Path(os.environ["CHAOS_WORKSHOP"])


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first process to ask for it makes."""
    folder = workshop() / "specimens" / name
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_name(f".{name}")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder


def run(algo: str, *, total_steps: int | None = None, seed: int = 3) -> Path:
    """The folder of a whole run."""
    total_steps = total_steps or STEPS[algo]

    def make(folder: Path) -> None:
        from cmbpo.training import loop

        made, _ = loop.run(settings(algo, folder, total_steps=total_steps, seed=seed))
        made.rename(folder / "run")

    return made_once(f"{algo}-{total_steps}-{seed}", make) / "run"


def unbroken(algo: str, *, total_steps: int = LONGER) -> records.Cells:
    """The records of a run that nothing happened to."""
    return records.cells(run(algo, total_steps=total_steps))


def copied(algo: str, place: Path, *, seed: int = 3) -> Path:
    """A copy of the specimen to do harm to."""
    return Path(shutil.copytree(run(algo, seed=seed), place / f"run-{seed}"))
