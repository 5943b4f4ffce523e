"""Run folders and archives of somebody who means harm, given to every command that reads them."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from chaos import (
    hostile_checkpoints,
    hostile_files,
    hostile_links,
    hostile_members,
    specimen,
)
from chaos.command import Ended, clean, cmbpo, ended, noting
from chaos.trial import Family, Trial, Verdict, require

CANARY = "canary_of_chaos"
"""A module that must not be imported: it leaves a file where it is."""

TRIALS = [
    (harm, command)
    for harm in (
        *hostile_checkpoints.ALL,
        *hostile_members.ALL,
        *hostile_files.ALL,
        *hostile_links.ALL,
    )
    for command in harm.commands
]


@contextlib.contextmanager
def canary(place: Path) -> Iterator[Path]:
    """A folder on the path of modules, and the file that appears if something is executed."""
    nest, sung = place / "modules", place / "sung"
    nest.mkdir()
    (nest / f"{CANARY}.py").write_text(f"open({str(sung)!r}, 'w').close()\n")
    before = os.environ.get("CHAOS_CANARY")
    os.environ["CHAOS_CANARY"] = str(sung)
    sys.path.insert(0, str(nest))
    sys.modules.pop(CANARY, None)
    try:
        yield sung
    finally:
        sys.path.remove(str(nest))
        if before is None:
            del os.environ["CHAOS_CANARY"]
        else:
            os.environ["CHAOS_CANARY"] = before


def try_one(trial: Trial) -> Verdict:
    """Give one hostile folder to one command."""
    harm, command = TRIALS[trial.index % len(TRIALS)]
    folder = specimen.copied("cpo", trial.place)
    treasure = trial.place / "treasure.txt"
    treasure.write_text("untouched")
    with noting(f"{harm.name}: {command}"), canary(trial.place) as sung:
        given = harm.do(folder, trial.random) or folder
        there = set(_outside(trial.place, folder))
        end = clean(_asked(command, given, trial.place))
        require(not sung.exists(), "it was executed")
        require(treasure.read_text() == "untouched", "a file outside was changed")
        new = set(_outside(trial.place, folder)) - there
        require(not new, f"files appeared outside: {', '.join(sorted(new))}")
        _require_harmless_page(trial.place / "out")
        refused = command not in harm.refused_by or end.status == 1
        require(refused, f"status {end.status}: {end.words}")
    return Verdict(f"{harm.name}: {command}", "refused" if end.status else "read, harmless")


def _asked(command: str, given: Path, place: Path) -> Ended:
    if command == "evaluate":
        return cmbpo("evaluate", given, "--episodes", 1)
    if command == "export":
        return cmbpo("export", given, place / "out" / "policy.npz")
    if command == "best":
        return cmbpo("export", given, place / "out" / "policy.npz", "--best")
    if command == "report":
        return cmbpo("report", given, "--out", place / "out")
    if command == "verify":
        return cmbpo("verify", given)
    if command == "load":
        return ended(lambda: _loaded(given))
    return cmbpo("train", "--resume", given, "--total-steps", specimen.LONGER)


def _loaded(folder: Path) -> None:
    import cmbpo

    try:
        cmbpo.load(folder)
    except ValueError as error:
        raise SystemExit(f"load: {error}") from None


def _outside(place: Path, folder: Path) -> Iterator[str]:
    """All there is beside the run folder and what a command is asked to write."""
    # no os.walk: it calls itself for each folder in another, and some trials are very deep
    ahead = [str(place)]
    while ahead:
        for entry in os.scandir(ahead.pop()):
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path
            elif not entry.name.startswith("__") and Path(entry.path) not in (
                folder,
                place / "out",
            ):
                ahead.append(entry.path)


def _require_harmless_page(out: Path) -> None:
    page = out / "report.html"
    if page.exists():
        text = page.read_text(encoding="utf-8")
        require(hostile_files.SCRIPT not in text, "the report holds a script that a run brought")


FAMILIES = (
    Family(
        name="hostile files",
        promise="nothing is executed or changed outside, memory stays below 2 GB, a sentence",
        count=len(TRIALS),
        try_one=try_one,
        seconds=90.0,
    ),
)
