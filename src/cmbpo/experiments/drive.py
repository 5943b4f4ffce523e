"""From a command to finished runs: skip, start, watch, stop, and say what became of each."""

import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from cmbpo import interruption
from cmbpo.experiments import hold, live, machine
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
) -> int:
    """Bring all runs to their end; the exit status of the command."""
    # All of them before the first starts: half an experiment helps nobody.
    for job in jobs:
        problem = conflict(job)
        if problem is not None:
            raise ValueError(problem)
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    log_dir = Path(jobs[0].settings.log_dir)
    try:
        log_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"could not make {log_dir}: {error.strerror}") from None
    lines = {job.name: live.Line(job.name, job.settings.total_steps) for job in jobs}
    for job in jobs:
        line = lines[job.name]
        line.reason = damage(job)
        if line.reason is not None:
            line.state = "failed"
        elif finished(job.folder, job.settings.total_steps):
            line.state, line.progress = "finished", read(job.folder)
    todo = [job for job in jobs if lines[job.name].state == "waiting"]
    before = sum(line.state == "finished" for line in lines.values())
    print(f"{len(jobs)} runs in {log_dir}, {before} of them finished before")
    interrupted = False
    if todo:
        with ExitStack() as stack:
            engine: Engine
            if ray is not None:
                engine = Cluster(ray, log_dir=log_dir, cpus=cpus, gpus=gpus, command=command)
                stack.callback(engine.close)
            else:
                engine = stack.enter_context(_this_machine(device, at_once, len(todo), command))
            view = stack.enter_context(live.view(list(lines.values())))
            interrupted = drive(todo, engine, lines, view)
    return _report(lines, log_dir, interrupted=interrupted, command=command)


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
    lines: dict[str, live.Line],
    view: "live.LiveLines | live.PlainLines",
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
            if line.state == "elsewhere" and finished(job.folder, job.settings.total_steps):
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
        line.state, line.reason = "finished", None
    elif interrupted:
        line.state = "stopped"
    else:
        line.state, line.reason = "failed", reason


def _report(
    lines: dict[str, live.Line], log_dir: Path, *, interrupted: bool, command: list[str]
) -> int:
    """Say what became of the runs, and where to look at them."""
    print(f"\n{live.summary(list(lines.values()))}; the runs are in {log_dir}")
    failed = [line for line in lines.values() if line.state == "failed"]
    for line in failed:
        print(f"  {line.name} failed: {line.reason}")
        if (printed := log_dir / line.name / "console.txt").exists():
            print(f"    all it printed: {printed}")
    if interrupted or failed:
        print(f"go on with: {shlex.join(command)}")
    print(f"look at them with: cmbpo report {log_dir} --out {log_dir / 'report'}")
    return 130 if interrupted else int(bool(failed))
