"""Checkpoints whose archive, or one array of it, is not what it says."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from chaos.harm import Harm
from chaos.hostile_checkpoints import FEW, newest


def _array(name: str, header: str, body: bytes = bytes(64), version: bytes = b"\1\0") -> Harm:
    """The first member is an array with this header, as Python would read it."""

    def do(folder: Path, random: Random) -> None:
        text = header.encode("latin1") + b"\n"
        with zipfile.ZipFile(newest(folder), "w") as archive:
            size = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
            archive.writestr("manifest.npy", b"\x93NUMPY" + version + size + text + body)

    return Harm(f"array with {name}", do, FEW)


def _said(shape: str, kind: str = "'|u1'") -> str:
    return f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"


CALL = "__import__('os').system('touch $CHAOS_CANARY')"
ARRAYS = (
    _array("a call as its shape", _said(CALL)),
    _array("a call as its header", CALL),
    _array("a negative shape", _said("(-8,)")),
    _array("a shape of 2**64 + 64", _said(f"({2**64 + 64},)")),
    _array("a shape of many ones", _said("(" + "1," * 5000 + ")")),
    _array("no bytes a number", _said("(10**9,)".replace("10**9", "1000000000"), "'|V0'")),
    _array("a gigabyte a number", _said("(1,)", "'|V1000000000'")),
    _array("records of objects", _said("(1,)", "[('a', '|O')]")),
    _array("nested records", _said("(1,)", "[('a', " * 50 + "'<f4'" + ")]" * 50)),
    _array("a deep header", "(" * 5000 + ")" * 5000),
    _array("a header of another version", _said("(64,)"), version=b"\7\0"),
    _array("a header longer than the file", _said("(64,)"), version=b"\2\0", body=b""),
)


def _archive(name: str, change: Callable[[bytearray], bytes]) -> Harm:
    def do(folder: Path, random: Random) -> None:
        path = newest(folder)
        path.write_bytes(change(bytearray(path.read_bytes())))

    return Harm(f"archive with {name}", do, FEW)


def _locked(data: bytearray) -> bytes:
    """Members that ask for a password."""
    for sign, at in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        place = data.find(sign)
        struct.pack_into("<H", data, place + at, 1)
    return bytes(data)


def _first_method(data: bytearray, method: int) -> bytes:
    """The first member is packed in a way that nobody knows."""
    for sign, at in ((b"PK\1\2", 10), (b"PK\3\4", 8)):
        struct.pack_into("<H", data, data.find(sign) + at, method)
    return bytes(data)


def _twice(data: bytearray) -> bytes:
    """Two members of one name, the second of them other bytes."""
    file = io.BytesIO(bytes(data))
    with zipfile.ZipFile(file, "a") as archive:
        first = archive.namelist()[0]
        other = io.BytesIO()
        np.save(other, np.zeros(3))
        with archive.open(zipfile.ZipInfo(first), "w") as member:
            member.write(other.getvalue())
    return file.getvalue()


def _overlapping(data: bytearray) -> bytes:
    """Every member of the directory lies where the first one does."""
    place = data.find(b"PK\1\2")
    first = struct.unpack_from("<I", data, place + 42)[0]
    while place >= 0:
        struct.pack_into("<I", data, place + 42, first)
        place = data.find(b"PK\1\2", place + 46)
    return bytes(data)


def _far_directory(data: bytearray) -> bytes:
    """A directory that is said to begin beyond the end."""
    struct.pack_into("<I", data, data.rfind(b"PK\5\6") + 16, 0xFFFFFF00)
    return bytes(data)


ARCHIVES = (
    _archive("a password", _locked),
    _archive("an unknown method", lambda data: _first_method(data, 99)),
    _archive("a wrong method", lambda data: _first_method(data, 12)),
    _archive("two members of one name", _twice),
    _archive("overlapping members", _overlapping),
    _archive("a directory beyond the end", _far_directory),
    _archive("nothing in it", lambda data: b"PK\5\6" + bytes(18)),
)
ALL = (*ARRAYS, *ARCHIVES)
