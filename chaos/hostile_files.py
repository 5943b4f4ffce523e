"""Settings, tables, folders and archives of somebody who means harm."""

import gzip
import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from chaos import specimen
from chaos.harm import Harm

SCRIPT = "<script>alert('chaos')"
"""What must not come out of a report as it went in."""
BOMB = 2_800_000_000
"""Bytes that a bomb unpacks to."""


def _config(name: str, change: Callable[[dict[str, Any]], Any]) -> Harm:
    def do(folder: Path, random: Random) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config = change(config) or config
        path.write_text(config if isinstance(config, str) else json.dumps(config))

    return Harm(f"config.json with {name}", do)


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: config["settings"].update(values)


def _said(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: config.update(values)


CONFIGS = (
    _config("a module as its task", _set(env_id="canary_of_chaos:Robot-v0")),
    _config("a module and a limit", _set(env_id="canary_of_chaos:R-v0", cost_limit=[5.0])),
    _config("a dotted module", _set(env_id="canary_of_chaos.sub:Robot-v0", cost_limit=[5.0])),
    _config("a path as its task", _set(env_id="../../modules/canary_of_chaos:R-v0")),
    _config("a script as its task", _set(env_id=f"{SCRIPT}</script>")),
    _config("a script as its algorithm", _set(algo=f"{SCRIPT}</script>")),
    _config("a script as its arm", _said(arm=f"{SCRIPT}</script>")),
    _config("a script as its version", _said(versions={"cmbpo": f"{SCRIPT}</script>"})),
    _config("a script as its command", _said(command=[f"{SCRIPT}</script>"])),
    _config("runs elsewhere", _set(log_dir="/etc")),
    _config("another run to begin with", _set(init_from="/dev/zero")),
    _config(
        "a million names", lambda c: c["settings"].update(dict.fromkeys(map(str, range(10**5))))
    ),
    _config("a horizon of 0", _said(horizon=0)),
    _config("a horizon 'x'", _said(horizon="x")),
    _config("a horizon of 1e400", _said(horizon=10**400)),
    _config("no settings", lambda c: {"settings": []}),
    _config("depth", lambda c: '{"settings":' + "[" * 200_000),
    _config("zeros", lambda c: "\x00" * 4096),
    _config("a limit of NaN", _set(cost_limit=[float("nan")])),
    _config("huge networks", _set(policy={"hidden": [10**6, 10**6]})),
    _config("10**12 copies", _set(num_envs=10**12)),
    _config("a huge seed", _set(seed=10**30)),
)


def _table(name: str, text: Callable[[str], bytes]) -> Harm:
    def do(folder: Path, random: Random) -> None:
        path = folder / random.choice(["progress.csv", "episodes.csv"])
        path.write_bytes(text(path.read_text()))

    return Harm(f"table with {name}", do, ("report", "verify", "train"))


TABLES = (
    _table("a script", lambda t: t.replace(t.split(",")[0], SCRIPT).encode()),
    _table("a million columns", lambda t: b"a," * 10**6 + b"\n" + b"1," * 10**6 + b"\n"),
    _table("one endless cell", lambda t: b"a\n" + b"9" * 10**7),
    _table("an open quote", lambda t: t.encode() + b'"' + b"x" * 10**6),
    _table("zeros", lambda t: bytes(100_000)),
    _table("no letters", lambda t: bytes(range(256)) * 100),
    _table("doubtful numbers", lambda t: t.replace("0", "1e308").encode()),
    _table("not a number", lambda t: t.replace("1", "nan").encode()),
)


def _packed(name: str, opened: Callable[..., Any]) -> Harm:
    def bomb(folder: Path) -> None:
        zeros = b"1\n" * 2**22
        with opened(folder / name, "wb") as file:
            for _ in range(BOMB // len(zeros)):
                file.write(zeros)

    def do(folder: Path, random: Random) -> None:
        path = specimen.made_once(f"bomb-{name}", bomb) / name
        (folder / "progress.csv").unlink()
        (folder / name).write_bytes(path.read_bytes())

    return Harm(f"{name} that is a bomb", do, ("report", "verify", "train"))


BOMBS = (
    _packed("progress.csv.gz", gzip.open),
    _packed("progress.csv.xz", partial(lzma.open, preset=0)),
)


def _tree(name: str, grow: Callable[[Path], object]) -> Harm:
    def do(folder: Path, random: Random) -> Path:
        root = folder.parent / "runs"
        root.mkdir()
        folder.rename(root / "run")
        grow(root)
        return root

    return Harm(f"folders with {name}", do, ("report",))


def _deep(root: Path) -> None:
    before = os.getcwd()
    os.chdir(root)
    try:
        for _ in range(2000):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)


def _beside(root: Path) -> Path:
    (root / "link").mkdir()
    return root / "link"


TREES = (
    _tree("a link to themselves", lambda root: (root / "link").symlink_to(root)),
    _tree("links in a circle", lambda root: (_beside(root) / "up").symlink_to("..")),
    _tree("a link to /proc", lambda root: (root / "link").symlink_to("/proc/self")),
    _tree("a link to nothing", lambda root: (root / "link").symlink_to("nothing")),
    _tree("a folder named config.json", lambda root: (_beside(root) / "config.json").mkdir()),
    _tree("a great depth", _deep),
    _tree("a name that is no word", lambda root: (root / "\udcff\n<b>").mkdir()),
    _tree("a bad folder beside", lambda root: (_beside(root) / "config.json").write_text("{}")),
)


def _archive(name: str, members: Callable[[tarfile.TarFile, Path], None]) -> Harm:
    def do(folder: Path, random: Random) -> Path:
        path = folder.parent / f"runs.tar{random.choice(['', '.gz', '.xz'])}"
        mode: Any = "w" + {".tar": "", ".gz": ":gz", ".xz": ":xz"}[path.suffix]
        with tarfile.open(path, mode) as archive:
            archive.add(folder, "run")
            members(archive, folder)
        return path

    return Harm(f"archive with {name}", do, ("report",))


def _add(archive: tarfile.TarFile, name: str, data: bytes = b"{}", **fields: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(data))


def _link_then_file(archive: tarfile.TarFile, folder: Path) -> None:
    _add(archive, "out", b"", type=tarfile.SYMTYPE, linkname=str(folder.parent))
    _add(archive, "out/config.json")


ARCHIVES = (
    _archive("a path upwards", lambda a, f: _add(a, "../../escaped/config.json")),
    _archive("an absolute path", lambda a, f: _add(a, f"{f.parent}/escaped/config.json")),
    _archive("a link, then a file in it", _link_then_file),
    _archive(
        "a hard link",
        lambda a, f: _add(
            a, "x/config.json", b"", type=tarfile.LNKTYPE, linkname=f"{f.parent}/treasure.txt"
        ),
    ),
    _archive(
        "a device",
        lambda a, f: _add(a, "x/config.json", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    ),
    _archive("a bomb", lambda a, f: _add(a, "x/progress.csv", bytes(600_000_000))),
    _archive("a folder and a file of one name", lambda a, f: _add(a, "run", b"x")),
    _archive("a script in a name", lambda a, f: _add(a, f"{SCRIPT}/config.json")),
    _archive("a long name", lambda a, f: _add(a, "x" * 5000 + "/config.json")),
)


def _own_reader(folder: Path, random: Random) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / "numpy_policy.py").symlink_to(folder.parent / "treasure.txt")


def _own_file(folder: Path, random: Random) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / "policy.npz").symlink_to(folder.parent / "treasure.txt")


ALL = (
    *(*CONFIGS, *TABLES, *BOMBS, *TREES, *ARCHIVES),
    Harm("reader linked elsewhere", _own_reader, ("export",)),
    Harm("policy linked elsewhere", _own_file, ("export",)),
)
