"""Run folders with links and other things in place of files, and with a best policy that harms."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from chaos import hostile_checkpoints as checkpoints
from chaos.harm import Harm

READERS = ("report", "evaluate", "verify", "train")


def _replaced(name: str, by: str, put: Callable[[Path], object], *commands: str) -> Harm:
    """A file or folder of the run is something else."""

    def do(folder: Path, random: Random) -> None:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        put(path)

    return Harm(f"{name} {by}", do, commands or READERS)


def _linked(name: str, target: str, *commands: str) -> Harm:
    return _replaced(
        name,
        f"linked to {target}",
        lambda path: path.symlink_to(path.name if target == "itself" else target),
        *commands,
    )


def _to_treasure(name: str) -> Harm:
    """Whoever writes to the file writes to one outside."""
    outside = "../treasure.txt" if "/" not in name else "../../treasure.txt"
    return _linked(name, outside)


def _piped(name: str, *commands: str) -> Harm:
    return _replaced(name, "as a pipe", os.mkfifo, *commands)


FILES = (
    *(_linked(f, t) for f in ("config.json", "progress.csv") for t in ("/dev/zero", "itself")),
    *(_piped(f) for f in ("config.json", "progress.csv", "episodes.csv", ".lock")),
    *(_to_treasure(f) for f in ("progress.csv", "episodes.csv", ".lock", "config.json")),
    _linked("checkpoints", "/etc"),
    _linked("checkpoints", "itself"),
    _replaced("checkpoints", "as a file", lambda path: path.write_bytes(b"x" * 99)),
    _replaced("config.json", "as a folder", Path.mkdir),
    _replaced("progress.csv", "as a folder", Path.mkdir),
)
BEST = ("best", "verify", "train")


def _best(name: str, do: Callable[[Path, Random], object]) -> Harm:
    """What would be done to the newest checkpoint is done to the best policy."""

    def done(folder: Path, random: Random) -> None:
        apart = folder.parent / "apart"
        (apart / "checkpoints").mkdir(parents=True)
        shutil.copy(checkpoints.newest(folder), apart / "checkpoints" / "1.npz")
        do(apart, random)
        shutil.move(apart / "checkpoints" / "1.npz", folder / "best.npz")
        shutil.rmtree(apart)

    return Harm(f"best.npz that is {name}", done, BEST, refused_by=("best",))


BEST_POLICIES = (
    _best("a pickle", checkpoints.a_pickle),
    _best("a bomb", checkpoints.a_bomb),
    _best("a claim", checkpoints.a_claim),
    _best("an array of objects", checkpoints.an_array_of_objects),
    _best("another update", lambda folder, random: None),
    _linked("best.npz", "/dev/zero", *BEST),
    _piped("best.npz", *BEST),
)
ALL = (*FILES, *BEST_POLICIES)
