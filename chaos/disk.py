"""A folder at each of its file operations, and what a kill or a power cut there would leave of it.

The model of the disk: bytes last once their file is synced, a new name with its file or its folder
(as ext4, XFS and Btrfs do), a renamed or removed one only with its folder. What is not synced may
be there, be missing, be cut, or be zeros.
"""

import builtins
import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

Names = dict[str, int]
"""Files by their path within the folder, each as a number that stays with it when it is renamed."""

OPERATIONS = ("replace", "rename", "unlink", "remove", "truncate", "mkdir", "rmdir", "fsync")


@dataclass(frozen=True)
class Moment:
    """The folder after one operation."""

    operation: str
    names: Names
    folders: tuple[str, ...]
    held: dict[int, bytes]
    durable_names: Names
    durable_held: dict[int, bytes]
    promised: int
    """The update of the newest checkpoint whose saving had returned; 0 if none had."""


@dataclass
class Recorder:
    """Looks at a folder after every operation of this process."""

    folder: Path
    moments: list[Moment] = field(default_factory=list)
    promised: int = 0
    after_each: Callable[[str], None] = lambda operation: None
    _inodes: dict[int, int] = field(default_factory=dict)
    _count: int = 0
    _durable_names: Names = field(default_factory=dict)
    _durable_held: dict[int, bytes] = field(default_factory=dict)
    _last_held: dict[int, bytes] = field(default_factory=dict)

    def look(self, operation: str) -> None:
        """Take note of the folder as it is now."""
        names, held, inodes, folders = {}, {}, {}, []
        for path in sorted(self.folder.rglob("*")) if self.folder.exists() else []:
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if stat.S_ISDIR(found.st_mode):
                    folders.append(str(path.relative_to(self.folder)))
                elif stat.S_ISREG(found.st_mode):
                    number = self._inodes.get(found.st_ino)
                    if number is None:
                        self._count += 1
                        number = self._count
                    data = read(path)
                    if self._last_held.get(number) == data:
                        data = self._last_held[number]
                    names[str(path.relative_to(self.folder))] = number
                    held[number], inodes[found.st_ino] = data, number
        self._inodes, self._last_held = inodes, held
        self.moments.append(
            Moment(
                operation,
                names,
                tuple(folders),
                held,
                dict(self._durable_names),
                dict(self._durable_held),
                self.promised,
            )
        )
        self.after_each(operation)

    def synced(self, target: str) -> None:
        """A file or a folder of this folder is safe from now on."""
        path = Path(target)
        if not path.is_relative_to(self.folder):
            return
        self.look("before a sync")
        latest = self.moments[-1]
        inside = str(path.relative_to(self.folder))
        if path.is_dir():
            here = {n for n in latest.names if str(Path(n).parent) == inside}
            gone = {n for n in self._durable_names if str(Path(n).parent) == inside} - here
            self._durable_names |= {name: latest.names[name] for name in here}
            for name in gone:
                del self._durable_names[name]
        elif inside in latest.names:
            number = latest.names[inside]
            self._durable_held[number] = latest.held[number]
            self._durable_names.setdefault(inside, number)

    def starts_safe(self) -> None:
        """What is there already has been there for long."""
        self.look("the start")
        latest = self.moments[-1]
        self._durable_names, self._durable_held = dict(latest.names), dict(latest.held)
        self.moments.clear()
        self.look("the start")


real_open = io.open
"""What is behind `open` whatever a trial puts in its place."""


def read(path: Path) -> bytes:
    """What a file holds, even where a trial lets no other reader see it."""
    with real_open(path, "rb") as file:
        return file.read()


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Recorder]:
    """Record what this process does to a folder."""
    recorder = Recorder(folder.resolve())
    busy = False

    def look(operation: str) -> None:
        nonlocal busy
        if not busy:
            busy = True
            try:
                recorder.look(operation)
            finally:
                busy = False

    def watched(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal busy
            if busy or not is_within(args[0], recorder.folder):
                return real(*args, **kwargs)
            look(f"before {name}")
            # what is synced is what the model says: to wait for the real disk proves nothing
            result = None if name == "fsync" else real(*args, **kwargs)
            if name == "fsync":
                busy = True
                try:
                    recorder.synced(os.readlink(f"/proc/self/fd/{args[0]}"))
                finally:
                    busy = False
            look(name)
            return result

        return call

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if busy or set(mode).isdisjoint("wax+") or not is_within(file, recorder.folder):
            return real_open(file, mode, *args, **kwargs)
        look("before open")
        result = real_open(file, mode, *args, **kwargs)
        look("open")
        return result

    with contextlib.ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(mock.patch.object(os, name, watched(name)))
        stack.enter_context(mock.patch.object(io, "open", opened))
        stack.enter_context(mock.patch.object(builtins, "open", opened))
        recorder.starts_safe()
        yield recorder
    recorder.look("the end")


def is_within(target: Any, folder: Path) -> bool:
    """Whether a path, or what a descriptor stands for, lies in a folder."""
    if isinstance(target, int):
        try:
            target = os.readlink(f"/proc/self/fd/{target}")
        except OSError:
            return False
    return Path(os.fsdecode(target)).absolute().is_relative_to(folder)


Left = dict[str, bytes | None]
"""What is left of a folder: files with their bytes, and folders."""


def killed(before: Moment, after: Moment, random: Random) -> Left:
    """What a kill between two operations leaves: what was being written may be half there."""
    left: Left = dict.fromkeys(before.folders)
    left |= {name: before.held[number] for name, number in before.names.items()}
    for name, number in before.names.items():
        old, new = before.held[number], after.held.get(number, b"")
        if new.startswith(old) and len(new) > len(old):
            left[name] = new[: random.choice([len(old), random.randint(len(old), len(new))])]
    return left


def powerless(moment: Moment, random: Random) -> Left:
    """What a power cut leaves: of what was not synced, anything."""
    strict = random.random() < 0.4
    left: Left = {name: None for name in moment.folders if random.random() < 0.7}
    for name in sorted(moment.names.keys() | moment.durable_names.keys()):
        now, safe = moment.names.get(name), moment.durable_names.get(name)
        number = safe if strict or random.random() < 0.5 else now
        if number is not None:
            left[name] = _surviving(moment, number, random, strict=strict)
    return left


def _surviving(moment: Moment, number: int, random: Random, *, strict: bool) -> bytes:
    safe = moment.durable_held.get(number, b"")
    now = moment.held.get(number, safe)
    if strict or safe == now:
        return safe
    if not now.startswith(safe):
        return random.choice([safe, now])
    tail = now[len(safe) :]
    cut = random.randrange(len(tail))
    return safe + random.choice([b"", tail, bytes(len(tail)), tail[:cut], tail[:cut] + bytes(cut)])


def laid_out(left: Left, folder: Path) -> Path:
    """These files in a new folder."""
    folder.mkdir(parents=True)
    for name, data in left.items():
        path = folder / name
        (path if data is None else path.parent).mkdir(parents=True, exist_ok=True)
        if data is not None:
            path.write_bytes(data)
    return folder
