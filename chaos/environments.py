"""Bad environments, in line and in processes, under CPO and under CMBPO."""

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tests.envs.bad_environments import BAD, LATE
from tests.tiny import flags

from chaos import late_environments
from chaos.command import clean, cmbpo, noting
from chaos.trial import Family, Trial, Verdict, require

TIMEOUT, LONG = 1.0, 60.0
"""Seconds after which a copy counts as hanging: where one does, and where none is to be named."""


def _all() -> Iterator[tuple[str, int, str, str]]:
    for name, steps, copies, algo in product(
        BAD, late_environments.STEPS, ("inline", "processes"), ("cpo", "cmbpo")
    ):
        depends = BAD[name].make.late is not BAD["raises_in_close"].make.late or "late" in name
        if (copies == "processes" or BAD[name].inline) and (steps == LATE or depends):
            yield name, steps, copies, algo


TRIALS = sorted(_all(), key=lambda trial: (trial[1] != LATE, trial))


def try_one(trial: Trial) -> Verdict:
    """The next one of the list."""
    return tried(*TRIALS[trial.index], trial.place)


def tried(name: str, steps: int, copies: str, algo: str, place: Path) -> Verdict:
    """Train on a bad environment, with checkpoints only at the end, or where it fails."""
    bad = BAD[name]
    small = {"num_envs": 2, "initial_steps": 40, "real_share.min_real": 20}
    small |= {"real_share.max_real": 20, "ensemble.fit_every": 20, "critic.batch_size": 20}
    small |= {"batch_size": 20 if algo == "cpo" else 60, "ensemble.batch_size": 16}
    timeout = TIMEOUT if name.startswith("hangs") else LONG
    what = f"{name} after {steps} steps, {copies}, {algo}"
    with noting(what):
        end = clean(
            cmbpo(
                *("train", "--algo", algo, "--env-id", late_environments.env_id(name, steps)),
                *("--env.copies", copies, "--env.timeout", timeout, "--cost-limit", 5),
                *("--log-dir", place, "--device", "cpu", "--total-steps", 160),
                *("--checkpoint-every", 1_000_000, *flags(algo, **small)),
            )
        )
        _require_saved(place)
        if bad.then == "goes on" or (bad.then == "restarts" and end.status == 0):
            require(end.status == 0, f"it ended with {end.status}: {end.err}")
            return Verdict(what, "went on")
        require(end.status == 1, f"it ended with {end.status}: {end.words}")
        said = " ".join(end.err.split())
        require(bad.words in said, f"nothing is said of {bad.words!r}: {said}")
    return Verdict(what, "stopped, named")


def _require_saved(log: Path) -> None:
    """Every row that was written is in a checkpoint."""
    for folder in log.glob("*/seed-*"):
        path = folder / "progress.csv"
        if path.exists():
            with path.open() as file:
                updates = len(list(csv.DictReader(file)))
            saved = [int(p.stem) for p in (folder / "checkpoints").glob("[0-9]*.npz")]
            require(
                not updates or updates in saved,
                f"{updates} updates were made, the checkpoints are of {saved}",
            )


FAMILIES = (
    Family(
        name="bad environments",
        promise="named by cause, copy, step and action, or restarted; the last update is saved",
        count=len(TRIALS),
        try_one=try_one,
        seconds=240.0,
    ),
)
