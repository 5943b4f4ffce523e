"""From a command to finished runs: skip, start, watch, stop, and say what became of each."""

import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from cmbpo import interruption
from cmbpo.experiments import halving, hold, live, machine, standing
from cmbpo.experiments.local import Local
from cmbpo.experiments.plan import Job, conflict, damage
from cmbpo.experiments.progress import Progress, finished, read
from cmbpo.experiments.ray_cluster import Cluster

PAUSE = 0.5
"""Seconds between two looks at the runs."""


@runtime_checkable
class Engine(Protocol):
    """What runs the runs: this machine, or a cluster."""

    def room(self) -> bool:
        """Whether another run may start."""
        ...

    def start(self, job: Job) -> None:
        """Start a run, or go on with it."""
        ...

    def progress(self) -> dict[str, Progress | None]:
        """How far each run is that runs now."""
        ...

    def ended(self) -> list[tuple[Job, str | None]]:
        """The runs that ended since the last call, with the reason where it was before time."""
        ...

    def interrupt(self) -> None:
        """Ask each run for a checkpoint and its end."""
        ...

    def kill(self) -> None:
        """End each run at once."""
        ...


def main(
    jobs: Sequence[Job],
    *,
    device: str,
    at_once: int | None = None,
    ray: str | None = None,
    cpus: float = 2,
    gpus: float | None = None,
    stop_losers: bool = False,
) -> int:
    """Bring all runs to their end; the exit status of the command."""
    # All of them before the first starts: half an experiment helps nobody.
    for job in jobs:
        problem = conflict(job)
        if problem is not None:
            raise ValueError(problem)
    rungs = halving.rungs(jobs) if stop_losers else []
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    log_dir = Path(jobs[0].settings.log_dir)
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"could not make {log_dir}: {error.strerror}") from None
    lines = _lines(jobs)
    before = sum(line.state == "finished" for line in lines.values())
    print(f"{len(jobs)} runs in {log_dir}, {before} of them finished before")
    with ExitStack() as stack:

        @cache
        def begun() -> tuple[Engine, live.LiveLines | live.PlainLines]:
            engine: Engine
            if ray is not None:
                engine = Cluster(ray, log_dir=log_dir, cpus=cpus, gpus=gpus, command=command)
                stack.callback(engine.close)
            else:
                todo = sum(line.state == "waiting" for line in lines.values())
                engine = stack.enter_context(_this_machine(device, at_once, todo, command))
            return engine, stack.enter_context(live.view(list(lines.values())))

        def run(todo: Sequence[Job]) -> bool:
            return drive(todo, *begun(), lines) if todo else False

        interrupted = race(jobs, rungs, lines, run)
    return _report(jobs, lines, log_dir, interrupted=interrupted, command=command)


def _lines(jobs: Sequence[Job]) -> dict[str, live.Line]:
    """What is known of each run before any starts."""
    lines = {job.name: live.Line(job.name, job.settings.total_steps) for job in jobs}
    for job in jobs:
        line = lines[job.name]
        line.reason = damage(job)
        if line.reason is not None:
            line.state = "failed"
        elif finished(job.folder, job.end):
            line.state, line.progress = "finished", read(job.folder)
    return lines


def race(
    jobs: Sequence[Job],
    rungs: Sequence[int],
    lines: dict[str, live.Line],
    run: Callable[[Sequence[Job]], bool],
) -> bool:
    """Run the jobs from rung to rung, each time without those that lost; whether it was stopped.

    Who lost follows from the records of the runs alone: the same command again comes to the same.
    """
    racing = list(jobs)
    for halvings in [*rungs, 0]:
        now = [job._replace(until=halving.at(job, halvings) or None) for job in racing]
        todo = [job for job in now if lines[job.name].state == "waiting"]
        if run([job for job in todo if not finished(job.folder, job.end)]):
            return True
        lost = halving.losers(racing, halvings) if halvings else {}
        for job in [job for job in racing if job.family in lost]:
            line = lines[job.name]
            if line.state == "waiting":
                line.state, line.reason = "lost", lost[job.family]
                line.progress = read(job.folder)
        racing = [job for job in racing if job.family not in lost]
    return False


@contextmanager
def _this_machine(
    device: str, at_once: int | None, count: int, command: list[str]
) -> Iterator[Local]:
    gpus = machine.gpus(device)
    at_once = min(at_once or machine.runs_at_once(len(gpus)), count)
    with ExitStack() as stack:
        env: dict[str, str] = {}
        if gpus and at_once > len(gpus):
            env = stack.enter_context(machine.shared_gpus())
        place = f"{len(gpus)} GPU" + ("s" if len(gpus) > 1 else "") if gpus else "the CPU"
        print(f"{at_once} at once on {place}{' under MPS' if env else ''}")
        yield Local(at_once, gpus=gpus, env=env, command=command)


def drive(
    jobs: Sequence[Job],
    engine: Engine,
    view: "live.LiveLines | live.PlainLines",
    lines: dict[str, live.Line],
) -> bool:
    """Run all jobs and keep their lines up to date; whether the user stopped it.

    A run that another process has is waited for: it is finished then, or goes on here.
    """
    waiting, stops = deque(jobs), 0
    going: dict[str, IO[str]] = {}
    with interruption.noted(second_raises=False) as came:
        while waiting or going:
            if len(came) > stops:
                stops = len(came)
                waiting.clear()
                if stops == 1:
                    view.say("stopping: each run ends its update and saves (again: at once)")
                    engine.interrupt()
                else:
                    engine.kill()
            for _ in range(len(waiting)):
                if not engine.room():
                    break
                job = waiting.popleft()
                held = _begin(job, engine, lines[job.name])
                if held is not None:
                    going[job.name] = held
                elif lines[job.name].state == "elsewhere":
                    waiting.append(job)
            live.update(lines, engine.progress())
            for job, reason in engine.ended():
                going.pop(job.name).close()
                _close(lines[job.name], job, reason, interrupted=bool(stops))
            view.show()
            time.sleep(PAUSE)
    return bool(stops)


def _begin(job: Job, engine: Engine, line: live.Line) -> IO[str] | None:
    """Start a run and hold it; None where another process has it, and where there is no need."""
    with ExitStack() as stack:
        try:
            held = stack.enter_context(hold.take(job.folder))
            if line.state == "elsewhere" and finished(job.folder, job.end):
                _close(line, job, None, interrupted=False)
                return None
            line.reason = None
            engine.start(job)
        except hold.TakenError as other:
            line.state, line.reason, line.progress = "elsewhere", str(other), read(job.folder)
            return None
        except OSError as error:
            _close(line, job, str(error), interrupted=False)
            return None
        stack.pop_all()
        return held


def _close(line: live.Line, job: Job, reason: str | None, *, interrupted: bool) -> None:
    line.progress = read(job.folder) or line.progress
    if reason is None:
        line.state, line.reason = "waiting" if job.until else "finished", None
    elif interrupted:
        line.state = "stopped"
    else:
        line.state, line.reason = "failed", reason


def _report(
    jobs: Sequence[Job],
    lines: dict[str, live.Line],
    log_dir: Path,
    *,
    interrupted: bool,
    command: list[str],
) -> int:
    """Say what became of the runs, how their arms stand, and where to look at them."""
    print(f"\n{live.summary(list(lines.values()))}; the runs are in {log_dir}")
    failed = [line for line in lines.values() if line.state == "failed"]
    for line in failed:
        print(f"  {line.name} failed: {line.reason}")
        if (printed := log_dir / line.name / "console.txt").exists():
            print(f"    all it printed: {printed}")
    lost = {job.family: lines[job.name] for job in jobs if lines[job.name].state == "lost"}
    for family, line in lost.items():
        print(f"  {family} lost: {line.reason}")
    standing.show(jobs)
    print()
    if interrupted or failed:
        print(f"go on with: {shlex.join(command)}")
    report = shlex.join(["cmbpo", "report", str(log_dir), "--out", str(log_dir / "report")])
    print(f"look at them with: {report}")
    return 130 if interrupted else int(bool(failed))
