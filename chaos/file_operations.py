"""Interruptions at single file operations: killed, without power, or asked to stop just there."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

from chaos import disk, records, specimen
from chaos.command import Ended, clean, cmbpo, ended, noting
from chaos.trial import Family, Trial, Verdict, require

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _promises(recorder: disk.Recorder, resumed_from: list[int]) -> Iterator[None]:
    """Note which checkpoint the program has said to be saved, and from which it goes on."""
    from cmbpo.runs.run_folder import Run

    save, restore = Run.save, Run.restore

    def saving(self, state, update, *args, **kwargs):
        result = save(self, state, update, *args, **kwargs)
        recorder.promised = int(update)
        return result

    def restoring(self, *args, **kwargs):
        state = restore(self, *args, **kwargs)
        resumed_from.append(0 if state is None else int(state["update"]))
        return state

    with mock.patch.object(Run, "save", saving), mock.patch.object(Run, "restore", restoring):
        yield


@cache
def start(algo: str) -> tuple[list[disk.Moment], Path]:
    """The moments of a whole run from its very beginning, and its folder within the log's."""
    from cmbpo.training import loop

    log = Path(tempfile.mkdtemp(dir=specimen.workshop(), prefix=f"{algo}-"))
    with disk.recorded(log) as recorder, _promises(recorder, []):
        end = ended(lambda: loop.run(specimen.settings(algo, log, total_steps=specimen.LONGER)))
    require(end.status == 0, f"the run to be interrupted failed: {end.words}{end.traceback}")
    (folder,) = log.glob("*/seed-*")
    shutil.rmtree(log)
    return recorder.moments, folder.relative_to(log)


def _go_on(folder: Path) -> tuple[Ended, list[disk.Moment], list[int]]:
    """Resume, with the moments of that."""
    resumed_from: list[int] = []
    with disk.recorded(folder) as recorder, _promises(recorder, resumed_from):
        end = resume(folder)
    return end, recorder.moments, resumed_from


def resume(folder: Path, *args: object) -> Ended:
    """Go on with a run; where it says that nothing was saved yet, say that it may begin anew."""
    end = cmbpo("train", "--resume", folder, *args)
    if end.status and "--start-anew" in end.err:
        before = records.contents(folder)
        end = cmbpo("train", "--resume", folder, "--start-anew", *args)
        if end.status:
            records.require_nothing_lost(before, folder)
    return end


def _cut(moments: list[disk.Moment], random: Random) -> tuple[disk.Left, int, str]:
    """A moment at random, and what is left there."""
    i = random.randrange(1, len(moments) - 1)
    moment = moments[i]
    if random.random() < 0.5:
        return (
            disk.killed(moment, moments[i + 1], random),
            moment.promised,
            f"killed after operation {i}, {moment.operation}",
        )
    return (
        disk.powerless(moment, random),
        moment.promised,
        f"power cut after operation {i}, {moment.operation}",
    )


def cut_off(trial: Trial) -> Verdict:
    """Kills and power cuts, one to three in a row, at random operations."""
    random, place = trial.random, trial.place
    algo = random.choice(["cpo", "cmbpo"])
    wanted = specimen.unbroken(algo)
    moments, inside = start(algo)
    tried = [algo]
    for again in range(random.choice([1, 1, 2, 3])):
        left, promised, how = _cut(moments, random)
        tried.append(how)
        folder = disk.laid_out(left, place / f"left-{again}") / (inside if not again else "")
        with noting("; ".join(tried)):
            end, moments, resumed_from = _go_on(folder)
            if end.status and not promised and not (folder / "config.json").exists():
                clean(end, naming=("config.json", "no run"))
                return Verdict("; ".join(tried), "nothing had begun yet")
            clean(end)
            require(end.status == 0, f"resume failed with {end.status}: {end.err}")
            require("damaged" not in end.err, f"a checkpoint is damaged: {end.err}")
            require(
                resumed_from and resumed_from[-1] >= promised,
                f"checkpoint {promised} was saved, resumed from {resumed_from}",
            )
            records.require_same(records.cells(folder), wanted)
    return Verdict("; ".join(tried), "resumed, identical")


def asked_to_stop(trial: Trial) -> Verdict:
    """Signals to stop, one or two, at random operations; a second one stops at once."""
    random, place = trial.random, trial.place
    algo = random.choice(["cpo", "cmbpo"])
    wanted = specimen.unbroken(algo)
    log = place / "runs"
    total = len(start(algo)[0])
    at = random.randrange(1, total)
    numbers = random.choices(STOPS, k=random.choice([1, 1, 2]))
    tried = f"{algo}: {', '.join(n.name for n in numbers)} at operation {at}"

    from cmbpo.training import loop

    with noting(tried):
        with disk.recorded(log) as recorder:
            came = 0

            def at_operation(operation: str) -> None:
                nonlocal came
                came += 1
                if at <= came < at + len(numbers):
                    signal.raise_signal(numbers[came - at])

            recorder.after_each = at_operation
            make = specimen.settings(algo, log, total_steps=specimen.LONGER)
            before = [signal.signal(number, signal.SIG_IGN) for number in STOPS]
            try:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
                end = ended(lambda: loop.run(make))
            finally:
                for number, handler in zip(STOPS, before, strict=True):
                    signal.signal(number, handler)
        at_once = end.traceback is not None and "KeyboardInterrupt" in end.traceback
        require(at_once or end.traceback is None, f"traceback:\n{end.traceback}")
        folders = [path.parent for path in log.glob("*/seed-*/config.json")]
        if not folders:
            return Verdict(tried, "nothing had begun yet")
        end = clean(resume(folders[0]))
        require(end.status == 0, f"resume failed with {end.status}: {end.err}")
        records.require_same(records.cells(folders[0]), wanted)
    return Verdict(tried, "resumed, identical")


FAMILIES = (
    Family(
        name="killed or without power at a file operation",
        promise="resumes from the newest checkpoint that was saved, to identical records",
        count=160,
        try_one=cut_off,
    ),
    Family(
        name="asked to stop at a file operation",
        promise="saves, ends, and resumes to identical records",
        count=40,
        try_one=asked_to_stop,
    ),
)
