"""Arrays in one .npz file: written whole, uncompressed; read within the size that the file has."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cmbpo.runs.files import whole_file

KINDS = "biufcU"
"""Kinds of arrays that are kept: truth values, numbers and words."""


def write_whole(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an uncompressed .npz that appears at `path` complete or not at all."""
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **dict(arrays))


def arrays_in(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of the .npz file with these bytes; together they take no more room than it."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos = file.infolist()
        if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
            raise ValueError("it is compressed, as no file of a run is")
        if sum(info.file_size for info in infos) > len(data):
            raise ValueError("it says to hold more than it is long")
        return {info.filename.removesuffix(".npy"): _array(file.read(info)) for info in infos}


def _array(data: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file, in their place."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array in it is of another format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in KINDS or fortran_order:
        raise ValueError(f"an array in it is of type {dtype}, as none of a run is")
    array = np.ndarray(shape, dtype, buffer=data, offset=file.tell())
    if array.shape != shape or file.tell() + array.nbytes != len(data):
        raise ValueError("an array in it is longer or shorter than it says")
    return array
