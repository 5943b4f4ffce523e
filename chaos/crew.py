"""Two processes that make the trials side by side; one that dies or hangs is a verdict too."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random

from chaos.command import resident_memory
from chaos.processes import patience
from chaos.trial import Family, Trial, Verdict, tried_once

GROWN = 1_200_000_000
"""Bytes at which a process that has compiled many programs is replaced by a new one."""


@dataclass(frozen=True)
class Task:
    """One trial to be made, named by its family's place in the list and its own in the family."""

    family: int
    index: int


class Member:
    """A process that makes one trial after the other, warm from those before."""

    def __init__(self, families: Sequence[Family], seed: str, workshop: Path):
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        names = [family.name for family in families]
        self._process = context.Process(target=_work, args=(theirs, names, seed, workshop))
        self._process.start()
        theirs.close()
        self.task: Task | None = None
        self._deadline = float("inf")

    @property
    def connection(self) -> Connection:
        """What can be waited for."""
        return self._connection

    def give(self, task: Task, seconds: float) -> None:
        """Let it make a trial."""
        self.task, self._deadline = task, time.monotonic() + patience(seconds)
        self._connection.send(task)

    def take(self) -> Verdict:
        """What it found; where it died over it, that."""
        try:
            verdict, resident = self._connection.recv()
            if resident > GROWN:
                self.end()
        except (EOFError, ConnectionResetError):
            self._process.join()
            verdict = Verdict("", "died", f"the process died with {self._process.exitcode}")
        self.task = None
        return verdict

    @property
    def hangs(self) -> bool:
        """Whether its trial takes too long."""
        return self.task is not None and time.monotonic() > self._deadline

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return not self._process.is_alive()

    def end(self) -> None:
        """End it and all it started."""
        try:
            os.killpg(self._process.pid or 0, 9)
        except ProcessLookupError:
            self._process.kill()
        self._process.join()


def trials(
    families: Sequence[Family], counts: Sequence[int], *, seed: str, jobs: int, workshop: Path
) -> Iterator[tuple[Family, int, Verdict]]:
    """Make all trials; the verdicts as they come, with the number of the trial."""
    todo = deque(Task(f, i) for f, count in enumerate(counts) for i in range(count))
    crew = [Member(families, seed, workshop) for _ in range(min(jobs, len(todo)))]
    try:
        while todo or any(member.task for member in crew):
            for place, member in enumerate(crew):
                if member.task is None and todo:
                    if member.gone:
                        member = crew[place] = Member(families, seed, workshop)
                    task = todo.popleft()
                    # the first trial of a process compiles, too
                    member.give(task, families[task.family].seconds + 120.0)
            busy = [member for member in crew if member.task is not None]
            ready = wait([member.connection for member in busy], timeout=1.0)
            for member in busy:
                task = member.task
                assert task is not None
                if member.connection in ready:
                    verdict = member.take()
                elif member.hangs:
                    member.end()
                    member.take()
                    verdict = Verdict("", "hung", "it took too long and was ended")
                else:
                    continue
                yield families[task.family], task.index, verdict
    finally:
        for member in crew:
            member.end()


def folder_of(workshop: Path, family: Family, index: int) -> Path:
    """Where a trial takes place."""
    return workshop / "trials" / f"{family.name.replace(' ', '-')}-{index}"


def random_of(seed: str, family: Family, index: int) -> Random:
    """The random numbers of a trial, which make it repeatable."""
    return Random(f"{seed}/{family.name}/{index}")


def remove(folder: Path) -> None:
    """This folder with all in it, however deep: `shutil.rmtree` calls itself for each level."""
    subprocess.run(["rm", "-rf", str(folder)], check=False)


def make(family: Family, index: int, *, seed: str, workshop: Path) -> Verdict:
    """One trial in a folder of its own, which goes if the verdict is good."""
    place = folder_of(workshop, family, index)
    remove(place)
    place.mkdir(parents=True)
    verdict = tried_once(family, Trial(index, random_of(seed, family, index), place))
    if verdict.clean:
        remove(place)
    return verdict


def _work(connection: Connection, names: Sequence[str], seed: str, workshop: Path) -> None:
    # what the trials start ends with this process, and what they print is none of the table's
    os.setsid()
    said = os.open(workshop / f"said-{os.getpid()}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(said, stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    from chaos import families

    by_name = {family.name: family for family in families.ALL}
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        family = by_name[names[task.family]]
        verdict = make(family, task.index, seed=seed, workshop=workshop)
        connection.send((verdict, resident_memory()))
