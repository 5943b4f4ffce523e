"""Signals to real processes at random moments, start-up and resuming included."""

import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.tiny import flags

from chaos import memoryless, records, specimen
from chaos.command import noting
from chaos.processes import Process, moment
from chaos.trial import Family, Trial, Verdict, require

STEPS = {"cpo": 2600, "cmbpo": 1400, "processes": 700}
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGINT SIGINT", "SIGTERM SIGKILL", "all")
GRACE = 20.0
"""Seconds after which nothing that a run has started may be there any more."""
STATUS = {"SIGINT": 130, "SIGTERM": 143}
"""What a run returns that was asked to stop, once it takes note of it."""


def arguments(kind: str, log: Path) -> list[object]:
    """A tiny run as a user types it: on a task, or on an environment of one's own in processes."""
    algo = "cpo" if kind == "cpo" else "cmbpo"
    changes: dict[str, Any] = {"num_envs": 2} | ({"batch_size": 100} if algo == "cpo" else {})
    env: list[object] = ["--env-id", "PointCircle-v0", "--first-episode", 10]
    if kind == "processes":
        env = ["--env-id", memoryless.ENV_ID, "--env.copies", "processes", "--cost-limit", 0.5]
    return [
        *("train", "--algo", algo, "--seed", 3, "--device", "cpu", "--log-dir", log),
        *("--total-steps", STEPS[kind], "--checkpoint-every", 1, *env),
        *flags(algo, **changes),
    ]


def unbroken(kind: str) -> records.Cells:
    """The records of the same run, which nothing happens to."""

    def make(folder: Path) -> None:
        process = Process(*arguments(kind, folder), said=folder / "said.txt")
        require(process.status() == 0, f"the unbroken run failed: {process.words}")

    (folder,) = specimen.made_once(f"unbroken-{kind}", make).glob("*/seed-*")
    return records.cells(folder)


def send(process: Process, name: str, random: Random) -> None:
    """One signal, or one after the other, or the same to all that it has started."""
    if name == "all":
        process.end()
        return
    for word in name.split():
        process.process.send_signal(signal.Signals[word])
        time.sleep(random.uniform(0.0, 0.5) if " " in name else 0.0)


def try_one(trial: Trial) -> Verdict:
    """Interrupt a run once or twice, and bring it to its end."""
    random, log = trial.random, trial.place / "runs"
    log.mkdir()
    kind = ("cpo", "cmbpo", "processes")[trial.index % 3]
    wanted = unbroken(kind)
    tried = [kind]
    command = arguments(kind, log)
    said = trial.place / "said.txt"
    for _ in range(random.choice([1, 1, 2])):
        process = Process(*command, said=said)
        when = moment(process, log, random)
        name = random.choice(SIGNALS)
        took_note = "run folder" in process.words and not process.over
        send(process, name, random)
        tried.append(f"{name} {when}")
        with noting("; ".join(tried)):
            status = process.status()
            if took_note and name in STATUS and "interrupted" in process.words:
                require(status == STATUS[name], f"{name} gave status {status}: {process.words}")
        folders = list(log.glob("*/seed-*"))
        if folders and (folders[0] / "config.json").exists():
            command = [
                "train",
                "--resume",
                folders[0],
                *(["--trust"] if kind == "processes" else []),
            ]
    with noting("; ".join(tried)):
        process = Process(*command, said=said)
        status = process.status()
        if status and "--start-anew" in process.words:
            process = Process(*command, "--start-anew", said=said)
            status = process.status()
        require(status == 0, f"going on failed with {status}: {process.words}")
        folders = [f for f in log.glob("*/seed-*") if (f / "config.json").exists()]
        records.require_same(records.cells(folders[-1]), wanted)
        require(_are_gone(trial.place), f"left behind: {_left_behind(trial.place)}")
    return Verdict("; ".join(tried), "resumed, identical")


def _are_gone(place: Path) -> bool:
    """Whether all processes of a trial end, if not at once."""
    end = time.monotonic() + GRACE
    while _left_behind(place) and time.monotonic() < end:
        time.sleep(0.1)
    return not _left_behind(place)


def _left_behind(place: Path) -> list[int]:
    """Processes that still hold a file of the trial."""
    holding = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if any(file.startswith(str(place)) for file in files):
            holding.append(int(pid))
    return holding


FAMILIES = (
    Family(
        name="signals to running processes",
        promise="CPO, CMBPO and CMBPO with copies in processes resume to identical records",
        count=48,
        try_one=try_one,
        seconds=600.0,
    ),
)
