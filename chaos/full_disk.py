"""Disks without room, and disks that fail: in whatever is being written then."""

import builtins
import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from chaos import disk, records, specimen
from chaos.command import clean, ended, noting
from chaos.file_operations import resume
from chaos.trial import Family, Trial, Verdict, require

REASONS = {errno.ENOSPC: "No space left", errno.EDQUOT: "quota", errno.EIO: "Input/output error"}


class Room:
    """So many bytes, until somebody makes room."""

    def __init__(self, left: int, reason: int, *, relents: bool):
        """A disk with room for `left` bytes, which then fails for this reason, or fails once."""
        self.left, self.reason, self.relents = left, reason, relents

    def fail(self) -> None:
        """Say that there is no room; it may be the only time."""
        if self.relents:
            self.left = 2**40
        raise OSError(self.reason, os.strerror(self.reason))

    def take(self, wanted: int) -> int:
        """How many of the bytes there is room for."""
        if wanted and not self.left:
            self.fail()
        taken = min(wanted, self.left)
        self.left -= taken
        return taken


class _File(io.FileIO):
    """A file on such a disk."""

    room: Room

    def write(self, data: Any) -> int:
        """Write as much as there is room for."""
        view = memoryview(data).cast("B")
        return super().write(view[: self.room.take(len(view))])


@contextlib.contextmanager
def with_room(folder: Path, room: Room) -> Iterator[None]:
    """A folder on a disk with so much room."""

    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if set(mode).isdisjoint("wax") or not disk.is_within(file, folder):
            return disk.real_open(file, mode, buffering, encoding, *args, **kwargs)
        raw = _File(file, mode.replace("b", "").replace("t", ""))
        raw.room = room
        if buffering == 0:
            return raw
        buffered: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, *args, **kwargs)

    def fsync(descriptor: Any) -> None:
        if room.left == 0 and disk.is_within(descriptor, folder):
            room.fail()
        real_fsync(descriptor)

    real_fsync = os.fsync
    with (
        mock.patch.object(io, "open", opened),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(os, "fsync", fsync),
    ):
        yield


def try_one(trial: Trial) -> Verdict:
    """Train until the disk is full, make room, go on."""
    from cmbpo.training import loop

    random = trial.random
    algo = random.choice(["cpo", "cmbpo"])
    reason = random.choice(list(REASONS))
    room = Room(int(2 ** random.uniform(8, 21)), reason, relents=random.random() < 0.5)
    log = trial.place.resolve()
    often = "once" if room.relents else "for good"
    what = f"{algo}, room for {room.left:,} bytes, then {often} {os.strerror(reason)}"
    settings = specimen.settings(algo, log, total_steps=specimen.LONGER)
    wanted = specimen.unbroken(algo)
    with noting(what):
        with with_room(log, room):
            end = ended(lambda: _as_command(lambda: loop.run(settings)))
        folders = list(log.glob("*/seed-*"))
        if end.status == 0:
            records.require_same(records.cells(folders[0]), wanted)
            return Verdict(what, "there was room")
        clean(end, naming=tuple(os.strerror(r) for r in REASONS))
        if not folders or not (folders[0] / "config.json").exists():
            return Verdict(what, "said, nothing had begun yet")
        before = records.contents(folders[0])
        end = clean(resume(folders[0]))
        require(end.status == 0, f"with room again, resume failed: {end.err}; {before}")
        records.require_same(records.cells(folders[0]), wanted)
    return Verdict(what, "said, then resumed, identical")


def _as_command(run: Any) -> None:
    """As the command line does it: a mistake of the user's or the disk's is a sentence."""
    from cmbpo import cli

    instead = mock.patch.dict(cli.COMMANDS, {"train": lambda args: run()})
    with instead, mock.patch("sys.argv", ["cmbpo", "train"]):
        cli.main()


FAMILIES = (
    Family(
        name="full or failing disks",
        promise="said in a sentence; with room again it resumes to identical records",
        count=60,
        try_one=try_one,
    ),
)
