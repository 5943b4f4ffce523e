"""What the commands say of a sound run, so that anything else can be told from it."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from chaos import specimen
from chaos.command import Ended, cmbpo
from chaos.trial import require

EPISODES = 1


def ask(which: str, folder: Path, place: Path) -> Ended:
    """Give a run folder to one of the commands that read it, or to `train --resume`."""
    if which == "evaluate":
        return cmbpo("evaluate", folder, "--episodes", EPISODES)
    if which == "export":
        return cmbpo("export", folder, place / "exported" / "policy.npz")
    if which == "report":
        return cmbpo("report", folder, "--out", place / "report")
    if which == "verify":
        return cmbpo("verify", folder)
    return cmbpo("train", "--resume", folder, "--total-steps", specimen.LONGER)


def numbers(text: str, folder: Path) -> str:
    """What was said, apart from where."""
    return re.sub(r"\s+", " ", text.replace(str(folder), "RUN"))


@dataclass(frozen=True)
class Known:
    """What a sound folder with so many of its checkpoints gives."""

    evaluated: str
    exported: dict[str, np.ndarray]


@cache
def known(algo: str, seed: int = 3) -> dict[str, Known]:
    """What each checkpoint of the specimen leads to, by its file's name, newest first."""
    import shutil
    import tempfile

    found = {}
    with tempfile.TemporaryDirectory(dir=specimen.workshop()) as name:
        folder = specimen.copied(algo, Path(name), seed=seed)
        paths = sorted((folder / "checkpoints").glob("*.npz"), key=lambda p: -int(p.stem))
        for path in paths:
            place = Path(name) / path.stem
            said = ask("evaluate", folder, place)
            require(said.status == 0, f"a sound run is not evaluated: {said.words}")
            out = ask("export", folder, place)
            require(out.status == 0, f"a sound run is not exported: {out.words}")
            found[path.name] = Known(numbers(said.out, folder), exported(place))
            path.unlink()
        shutil.rmtree(folder)
    return found


def exported(place: Path) -> dict[str, np.ndarray]:
    """What was exported."""
    return arrays(place / "exported" / "policy.npz")


def arrays(path: Path) -> dict[str, np.ndarray]:
    """What an .npz holds."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Whether two policies are one."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
