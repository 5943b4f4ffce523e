"""Checkpoints of somebody who means harm."""

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from chaos import specimen
from chaos.harm import Harm

BOMB = 3 * 2**30
"""Bytes that a bomb unpacks to."""
FEW = ("evaluate", "verify", "train")


def newest(folder: Path) -> Path:
    """The newest checkpoint, now the only one, so that nothing else can be taken."""
    paths = sorted((folder / "checkpoints").glob("*.npz"), key=lambda p: int(p.stem))
    for path in paths[:-1]:
        path.unlink()
    return paths[-1]


class _Song:
    """What a pickle is made of that executes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ('touch "$CHAOS_CANARY"',)


def a_pickle(folder: Path, random: Random) -> None:
    """A pickle that executes, under the name of a checkpoint."""
    newest(folder).write_bytes(pickle.dumps(_Song()))


def an_array_of_objects(folder: Path, random: Random) -> None:
    """The same within an array of the file."""
    array = np.array([_Song()], dtype=object)
    path = newest(folder)
    members = _members(path)
    _written(path, {**members, random.choice(list(members)): array})


def _bomb(folder: Path) -> None:
    zeros = bytes(2**24)
    header = {"descr": "|u1", "fortran_order": False, "shape": (BOMB,)}
    with (
        zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(BOMB // len(zeros)):
            file.write(zeros)


def a_bomb(folder: Path, random: Random) -> None:
    """A few megabytes that unpack to gigabytes."""
    bomb = specimen.made_once("bomb", _bomb) / "bomb.npz"
    newest(folder).write_bytes(bomb.read_bytes())


def a_claim(folder: Path, random: Random) -> None:
    """An array that says to be larger than any memory."""
    path, file = newest(folder), io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(file, header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.npy", file.getvalue() + bytes(100))


def a_lying_directory(folder: Path, random: Random) -> None:
    """A directory of the archive that says that a member is gigabytes long."""
    path = newest(folder)
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x01\x02")
    struct.pack_into("<II", data, at + 20, 0xFFFFFFF0, 0xFFFFFFF0)
    path.write_bytes(data)


def many_members(folder: Path, random: Random) -> None:
    """Twenty thousand members."""
    with zipfile.ZipFile(newest(folder), "w") as archive:
        for i in range(20_000):
            archive.writestr(f"leaves/{i}.npy", b"")


def names_that_lead_elsewhere(folder: Path, random: Random) -> None:
    """Members named as paths."""
    forged(newest(folder), lambda manifest: None, {"../../treasure.txt": np.zeros(3)})


def not_a_number(folder: Path, random: Random) -> None:
    """A policy of NaN with a right checksum."""
    path = newest(folder)
    members = _members(path)
    for name, array in members.items():
        if name.startswith("leaves/learner/policy/net") and array.dtype.kind == "f":
            members[name] = np.full_like(array, np.nan)
    _sealed(path, members, json.loads(members["manifest"].tobytes()))


def turned_shapes(folder: Path, random: Random) -> None:
    """Arrays of other shapes with a right checksum."""
    path = newest(folder)
    members = _members(path)
    for name, array in members.items():
        if array.ndim == 2:
            members[name] = np.ascontiguousarray(array.T)
    _sealed(path, members, json.loads(members["manifest"].tobytes()))


def _forgery(name: str, change: Callable[[dict[str, Any]], object]) -> Harm:
    def do(folder: Path, random: Random) -> None:
        forged(newest(folder), change, {})

    return Harm(f"manifest with {name}", do, FEW)


def forged(
    path: Path, change: Callable[[dict[str, Any]], object], more: dict[str, np.ndarray]
) -> None:
    """The file with another manifest, and a checksum that is right for it."""
    members = _members(path)
    manifest = json.loads(members["manifest"].tobytes())
    change(manifest)
    if isinstance(manifest.get("leaves"), list):
        manifest["leaves"] += list(more)
    members |= {f"leaves/{name}": array for name, array in more.items()}
    _sealed(path, members, manifest)


def _members(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _sealed(path: Path, members: dict[str, np.ndarray], manifest: Any) -> None:
    header = json.dumps(manifest).encode()
    digest = hashlib.sha256(header)
    leaves = manifest.get("leaves") if isinstance(manifest, dict) else None
    for name in leaves if isinstance(leaves, list) else []:
        array = members.get(f"leaves/{name}")
        if array is not None:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    members = members | {
        "manifest": np.frombuffer(header, np.uint8),
        "checksum": np.frombuffer(digest.digest(), np.uint8),
    }
    _written(path, members)


def _written(path: Path, members: dict[str, np.ndarray]) -> None:
    arrays: dict[str, Any] = members
    with path.open("wb") as file:
        np.savez(file, **arrays)


def deep_json(folder: Path, random: Random) -> None:
    """A manifest nested a hundred thousand deep."""
    members = _members(path := newest(folder))
    members["manifest"] = np.frombuffer(b"[" * 100_000, np.uint8)
    _written(path, members)


def _link(target: str) -> Harm:
    def do(folder: Path, random: Random) -> None:
        path = newest(folder)
        path.unlink()
        path.symlink_to(path.name if target == "itself" else target)

    return Harm(f"checkpoint linked to {target}", do, FEW)


def a_pipe(folder: Path, random: Random) -> None:
    """A pipe that nobody writes to."""
    path = newest(folder)
    path.unlink()
    os.mkfifo(path)


def _noted(notes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest.update(notes=notes)


def _tables(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["notes"].update(
        tables={"progress.csv": value, "episodes.csv": value}
    )


FORGERIES = (
    _forgery("format 2", lambda m: m.update(format=2)),
    _forgery("format []", lambda m: m.update(format=[])),
    _forgery("no format", lambda m: m.pop("format")),
    _forgery("no leaves", lambda m: m.update(leaves=[])),
    _forgery("leaves 3", lambda m: m.update(leaves=3)),
    _forgery("a leaf that is a number", lambda m: m["leaves"].append(7)),
    _forgery("leaves that are missing", lambda m: m["leaves"].append("learner/nothing")),
    _forgery("keys that are none", lambda m: m.update(keys={"update": "fry"})),
    _forgery("keys []", lambda m: m.update(keys=[])),
    _forgery("notes []", _noted([])),
    _forgery("notes {}", _noted({})),
    _forgery("rows -5", _tables({"bytes": -5, "rows": -5})),
    _forgery("rows 10**15", _tables({"bytes": 10**15, "rows": 10**15})),
    _forgery("rows 'x'", _tables({"bytes": "x", "rows": "x"})),
    _forgery("tables []", lambda m: m["notes"].update(tables=[])),
    _forgery("update 'x'", lambda m: m["notes"].update(update="x")),
    _forgery("version {}", lambda m: m.update(cmbpo={})),
)
WHOLE = (
    *(a_pickle, an_array_of_objects, a_bomb, a_claim, a_lying_directory, many_members),
    *(names_that_lead_elsewhere, turned_shapes, deep_json, a_pipe),
)
ALL = (
    *(Harm(do.__name__.replace("_", " "), do) for do in WHOLE),
    Harm("a policy that is not a number", not_a_number, refused_by=("export",)),
    *(_link(target) for target in ("/dev/zero", "/dev/urandom", "/etc/passwd", "itself", "/")),
    *FORGERIES,
)
