"""An experiment whose driver or whose runs are killed; two drivers on one folder."""

import os
import signal
from pathlib import Path

from tests.tiny import assignments

from chaos import records, specimen
from chaos.command import noting
from chaos.processes import Process, children, moment
from chaos.trial import Family, Trial, Verdict, require

ATTEMPTS = 6
"""Times that the same command is given before it has to have come to its end."""
VICTIMS = (
    *("driver SIGINT", "driver SIGTERM", "driver SIGHUP", "driver SIGKILL", "driver SIGKILL"),
    *("run SIGKILL", "run SIGKILL", "run SIGTERM", "run SIGINT"),
)


def command(log: Path) -> list[object]:
    """Two runs of CPO at once."""
    settings = assignments("cpo", num_envs=2, batch_size=100, first_episode=10, checkpoint_every=1)
    return [
        *("experiment", "figure2", "--envs", "PointCircle", "--algos", "cpo", "--seeds", 2),
        *("--total-steps", 1500, "--jobs", 2, "--device", "cpu", "--log-dir", log),
        *("--set", *settings),
    ]


def _cells(log: Path) -> dict[str, records.Cells]:
    folders = sorted(path.parent for path in log.glob("**/config.json"))
    return {str(folder.relative_to(log)): records.cells(folder) for folder in folders}


def unbroken() -> dict[str, records.Cells]:
    """The records of an experiment that nothing happens to."""

    def make(folder: Path) -> None:
        process = Process(*command(folder), said=folder / "said.txt")
        require(process.status() == 0, f"the unbroken experiment failed: {process.words}")

    return _cells(specimen.made_once("unbroken-experiment", make))


def _require_same(log: Path) -> None:
    found, wanted = _cells(log), unbroken()
    require(found.keys() == wanted.keys(), f"runs {list(found)} where {list(wanted)} belong")
    for name, cells in wanted.items():
        with noting(name):
            records.require_same(found[name], cells)


def _completed(log: Path, said: Path) -> None:
    """Give the command until it comes to its end."""
    attempts = (Process(*command(log), said=said).status() for _ in range(ATTEMPTS))
    require(0 in attempts, f"not through after {ATTEMPTS} attempts: {said.read_text()}")


def try_one(trial: Trial) -> Verdict:
    """Kill the driver or one of its runs, then give the command again until it is through."""
    random, log, said = trial.random, trial.place / "runs", trial.place / "said.txt"
    unbroken()
    process = Process(*command(log), said=said)
    when = moment(process, log, random)
    whom, name = random.choice(VICTIMS).split()
    what = f"{whom} {name} {when}"
    with noting(what):
        targets = [process.process.pid] if whom == "driver" else children(process.process.pid)
        if targets:
            os.kill(random.choice(targets), signal.Signals[name])
        process.status()
        _completed(log, said)
        _require_same(log)
    return Verdict(what, "gone on with, identical")


def two_at_once(trial: Trial) -> Verdict:
    """The same command in two terminals."""
    log = trial.place / "runs"
    unbroken()
    both = [Process(*command(log), said=trial.place / f"said-{i}.txt") for i in range(2)]
    for process in both:
        status = process.status()
        require(status == 0, f"one of two ended with {status}: {process.words}")
    _require_same(log)
    return Verdict("two drivers", "both through, identical")


FAMILIES = (
    Family(
        name="an experiment's driver or run killed",
        promise="the same command goes on to identical records",
        count=14,
        try_one=try_one,
        seconds=600.0,
    ),
    Family(
        name="two experiments on one folder",
        promise="both come to their end, identical records",
        count=2,
        try_one=two_at_once,
        seconds=300.0,
    ),
)
