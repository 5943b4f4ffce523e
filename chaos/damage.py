"""Damage to each file of a run folder; what the commands then say of the run."""

import builtins
import contextlib
import errno
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from chaos import disk, knowledge, records, specimen
from chaos.command import clean, noting
from chaos.trial import Family, Trial, Verdict, require

READERS = ("verify", "evaluate", "export", "report")


def flipped_bit(path: Path, random: Random) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def changed_digit(path: Path, random: Random) -> None:
    """One digit of a number in text; elsewhere one byte."""
    data = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    at = random.choice(digits) if digits else random.randrange(len(data))
    data[at] = random.choice([byte for byte in b"0123456789" if byte != data[at]])
    path.write_bytes(data)


def zeroed_block(path: Path, random: Random) -> None:
    """A stretch of zeros, as a disk leaves it after a crash."""
    data = path.read_bytes()
    start = random.randrange(len(data))
    length = min(random.choice([1, 64, 512, 2000, 4096]), len(data) - start)
    path.write_bytes(data[:start] + bytes(length) + data[start + length :])


def cut(path: Path, random: Random) -> None:
    """The end is missing."""
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(len(data))])


def emptied(path: Path, random: Random) -> None:
    """Nothing is left."""
    path.write_bytes(b"")


def doubled(path: Path, random: Random) -> None:
    """All of it twice, or a line twice."""
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    if path.suffix == ".csv" and random.random() < 0.7:
        at = random.randrange(len(lines))
        data = b"".join([*lines[: at + 1], *lines[at:]])
    else:
        data += data
    path.write_bytes(data)


def lost_line(path: Path, random: Random) -> None:
    """A line is missing."""
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[random.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def grown(path: Path, random: Random) -> None:
    """Something else follows it."""
    path.write_bytes(path.read_bytes() + random.randbytes(random.choice([1, 100, 5000])))


def changed_number(path: Path, random: Random) -> None:
    """One number of an array, in an archive that is whole."""
    members = knowledge.arrays(path)
    name = random.choice([n for n, x in members.items() if n[:7] == "leaves/" and x.dtype == "f4"])
    members[name] = members[name] + np.float32(random.choice([1e-3, 1.0]))
    arrays: dict[str, Any] = members
    with path.open("wb") as file:
        np.savez(file, **arrays)


def another_runs(path: Path, random: Random) -> None:
    """The file of this name in the folder of another seed."""
    algo = path.parents[len(_inside(path).parts)].name
    other = specimen.run(algo, seed=4)
    name = "events.out*" if path.name.startswith("events") else path.name
    (theirs,) = other.rglob(name)
    shutil.copyfile(theirs, path)


def renamed(path: Path, random: Random) -> None:
    """A checkpoint with another number, or another file with another name."""
    name = f"{random.choice([1, 9, 99])}.npz" if path.suffix == ".npz" else f"{path.name}~"
    path.rename(path.with_name(name))


def copied(path: Path, random: Random) -> None:
    """The same under a second name, as file managers make it."""
    shutil.copyfile(path, path.with_name(f"{path.stem} (copy){path.suffix}"))


def removed(path: Path, random: Random) -> None:
    """It is gone."""
    path.unlink()


def a_folder(path: Path, random: Random) -> None:
    """A folder of its name."""
    path.unlink()
    path.mkdir()


Damage = Callable[[Path, Random], None]
ANY: tuple[Damage, ...] = (
    *(flipped_bit, changed_digit, zeroed_block, cut, emptied, doubled, grown),
    *(another_runs, renamed, copied, removed, a_folder),
)
FILES: tuple[tuple[str, tuple[Damage, ...]], ...] = (
    ("config.json", ANY),
    ("newest", (*ANY, changed_number)),
    ("oldest", (*ANY, changed_number)),
    ("best.npz", (*ANY, changed_number)),
    ("progress.csv", (*ANY, lost_line)),
    ("episodes.csv", (*ANY, lost_line)),
    ("events", ANY),
)
UNREADABLE = (errno.EIO, errno.EACCES, errno.ENOMEM)


def _inside(path: Path) -> Path:
    """A file's place in its run folder."""
    return path.relative_to(path.parents[path.parent.name == "checkpoints"])


def _target(folder: Path, name: str) -> Path | None:
    checkpoints = sorted((folder / "checkpoints").glob("*.npz"), key=lambda p: int(p.stem))
    if name in ("newest", "oldest"):
        return checkpoints[-1 if name == "newest" else 0]
    if name == "events":
        return next(folder.glob("events.out*"), None)
    return folder / name if (folder / name).exists() else None


@contextlib.contextmanager
def unreadable(path: Path, reason: int) -> Iterator[None]:
    """Whoever reads this file is told so by the system."""
    real_os_open = os.open

    def refuse(file: Any) -> None:
        if not isinstance(file, int) and Path(os.fsdecode(file)).absolute() == path:
            if reason == errno.ENOMEM:
                raise MemoryError
            raise OSError(reason, os.strerror(reason), str(path))

    def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
        refuse(file)
        return disk.real_open(file, *args, **kwargs)

    def os_open(file: Any, *args: Any, **kwargs: Any) -> Any:
        refuse(file)
        return real_os_open(file, *args, **kwargs)

    with (
        mock.patch.object(io, "open", opened),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(os, "open", os_open),
    ):
        yield


def try_one(trial: Trial) -> Verdict:
    """Damage one file, let the readers look at it, then go on with the run."""
    random = trial.random
    algo = random.choice(["cpo", "cpo", "cmbpo"])
    folder = specimen.copied(algo, trial.place / algo)
    name, kinds = FILES[trial.index % len(FILES)]
    path = _target(folder, name)
    if path is None:
        return Verdict(f"{algo} has no {name}", "not there")
    harm = random.choice(kinds)
    with noting(f"{algo}, {path.name}: {harm.__name__}"):
        before = path.read_bytes()
        harm(path, random)
        unchanged = path.is_file() and path.read_bytes() == before
        harmless = unchanged and harm is not copied
        outcome = "as before" if harmless else _judged(trial, folder, path, algo, name, harm)
    return Verdict(f"{algo}, {path.name}: {harm.__name__}", outcome)


def _judged(trial: Trial, folder: Path, path: Path, algo: str, name: str, harm: Damage) -> str:
    damaged = records.contents(folder)
    # a report reads settings and tables only
    read = READERS if path.suffix in (".json", ".csv") else READERS[:-1]
    for reader in read:
        with noting(reader):
            end = clean(knowledge.ask(reader, folder, trial.place))
            _require_right(reader, end, trial.place, folder, path, algo, harm)
            require(records.contents(folder) == damaged, f"{reader} changed the folder")
    # older ones, and a newest one that is as good as before, may go their way
    to_be_kept = name == "newest" and path.is_file() and harm not in (renamed, copied)
    to_be_kept = to_be_kept and not _holds_the_same(path, specimen.run(algo) / _inside(path))
    with noting("resume"):
        end = clean(knowledge.ask("train", folder, trial.place), naming=_names(folder, path))
        if end.status:
            records.require_nothing_lost(damaged, folder)
            return "refused, nothing lost"
        if to_be_kept:
            kept = set(records.contents(folder).values())
            digest = damaged.get(str(path.relative_to(folder)))
            require(digest in kept, f"the damaged {path.name} was erased")
        _require_records(folder, path, algo, end.words, harm)
    return "resumed, right"


def _names(folder: Path, path: Path) -> tuple[str, ...]:
    return (path.name, str(folder), "config.json")


def _require_right(
    reader: str, end: Any, place: Path, folder: Path, path: Path, algo: str, harm: Damage
) -> None:
    """What a reader says is right, or it says that and where something is wrong."""
    says_so = path.name in _plain(end.words)
    known = knowledge.known(algo)
    if reader == "verify":
        checked = path.suffix in (".npz", ".csv") and harm not in (renamed, removed, copied)
        if checked and not _holds_the_same(path, specimen.run(algo) / _inside(path)):
            require(end.status == 1 and says_so, f"verify finds nothing wrong: {end.words}")
    elif end.status:
        require(
            any(word in _plain(end.words) for word in map(_plain, _names(folder, path))),
            f"the message names no file: {end.err}",
        )
    elif reader == "evaluate":
        _require_known(
            knowledge.numbers(end.out, folder),
            [knowledge.numbers(k.evaluated, folder) for k in known.values()],
            excused=says_so or not path.exists(),
        )
    elif reader == "export":
        found = knowledge.exported(place)
        matches = [knowledge.same(found, k.exported) for k in known.values()]
        _require_known(True, matches, excused=says_so or not path.exists())
    elif reader == "report" and not _looks_sound(path, specimen.run(algo) / _inside(path), harm):
        _require_report(place / "report", folder, path, algo)


def _holds_the_same(path: Path, sound: Path) -> bool:
    """Whether nothing of what a file is for was harmed.

    An archive has bytes that mean nothing, and what follows the last whole line of a table is what
    a killed run may leave.
    """
    try:
        if path.suffix == ".csv":
            data = path.read_bytes()
            return data[: data.rfind(b"\n") + 1] == sound.read_bytes()
        return knowledge.same(knowledge.arrays(path), knowledge.arrays(sound))
    except Exception:  # damaged bytes fail in every way there is
        return False


def _looks_sound(path: Path, sound: Path, harm: Damage) -> bool:
    """Whether settings or tables, taken by themselves, are as a run may write them."""
    if path.suffix == ".json":
        try:
            return isinstance(json.loads(path.read_bytes()), dict)
        except (OSError, ValueError):
            return False
    if harm is another_runs:
        return True
    # a killed run may leave fewer rows, and half a row
    whole = path.read_bytes().rpartition(b"\n")[:2] if path.is_file() else (b"",)
    return len(whole[0]) > 0 and sound.read_bytes().startswith(b"".join(whole))


def _require_known(found: Any, right: list[Any], *, excused: bool) -> None:
    require(found in right, f"a wrong result, and nothing said: {found}, not one of {right}")
    require(right.index(found) == 0 or excused, "an older checkpoint's result, and nothing said")


def _require_report(report: Path, folder: Path, path: Path, algo: str) -> None:
    page = (report / "report.html").read_text(encoding="utf-8")
    summary = report / "summary.md"
    mine = summary.read_text(encoding="utf-8") if summary.exists() else ""
    shown = _words_of(page, folder), mine
    if shown != _sound_report(algo):
        told = "cannot be shown" in page or "damaged" in page or path.name in page
        require(told, "the report shows something else, and does not say why")


_REPORTS: dict[str, tuple[str, str]] = {}


def _sound_report(algo: str) -> tuple[str, str]:
    if algo not in _REPORTS:
        place = specimen.workshop() / "specimens" / f"report-{os.getpid()}"
        folder = specimen.copied(algo, place / algo)
        knowledge.ask("report", folder, place)
        page = (place / "report" / "report.html").read_text(encoding="utf-8")
        summary = place / "report" / "summary.md"
        text = summary.read_text(encoding="utf-8") if summary.exists() else ""
        _REPORTS[algo] = _words_of(page, folder), text
        shutil.rmtree(place)
    return _REPORTS[algo]


def _words_of(page: str, folder: Path) -> str:
    return page.replace(str(folder), "RUN").replace(str(folder.parent), "RUNS")


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _require_records(folder: Path, path: Path, algo: str, words: str, harm: Damage) -> None:
    wanted = specimen.unbroken(algo)
    try:
        records.require_same(records.cells(folder), wanted)
    except Exception:
        told = path.suffix == ".csv" and path.name in _plain(words)
        if not told:
            raise


def unreadable_for_a_while(trial: Trial) -> Verdict:
    """A file that cannot be read now, and can be later."""
    random = trial.random
    algo = random.choice(["cpo", "cmbpo"])
    folder = specimen.copied(algo, trial.place / algo).resolve()
    name = FILES[trial.index % (len(FILES) - 1)][0]
    path, reason = _target(folder, name), random.choice(UNREADABLE)
    if path is None:
        return Verdict(f"{algo} has no {name}", "not there")
    what = f"{algo}, {path.name}: {os.strerror(reason)}"
    before = records.contents(folder)
    with noting(what):
        with unreadable(path, reason):
            for reader in (*READERS, "train"):
                end = clean(knowledge.ask(reader, folder, trial.place), naming=_names(folder, path))
                if reader == "train" and end.status == 0:
                    break
                require(records.contents(folder) == before, f"{reader} changed the folder")
        end = clean(knowledge.ask("train", folder, trial.place))
        require(end.status == 0, f"readable again, resume failed: {end.err}")
        _require_records(folder, path, algo, end.words, removed)
    return Verdict(what, "said, then resumed, right")


FAMILIES = (
    Family(
        name="damaged files",
        promise="found, said and kept; what is shown is right or said to be damaged",
        count=320,
        try_one=try_one,
    ),
    Family(
        name="files that cannot be read",
        promise="said, nothing changed; readable again it resumes",
        count=30,
        try_one=unreadable_for_a_while,
    ),
)
