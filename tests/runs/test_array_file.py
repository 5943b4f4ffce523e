"""A file of arrays takes no more memory than its own size, whatever it says of itself."""

import io
import zipfile
from tokenize import TokenError

import numpy as np
import pytest

from cmbpo.runs.array_file import arrays_in, write_whole
from cmbpo.runs.errors import RunError


def npy(header: str, data: bytes = b"") -> bytes:
    """An .npy file that says this of itself."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def packed(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return data.getvalue()


def test_arrays_come_back(tmp_path):
    arrays = {"a/b": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 4)), "w": np.array("word")}
    write_whole(tmp_path / "x.npz", arrays)
    found = arrays_in((tmp_path / "x.npz").read_bytes())
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_compressed_member_is_refused_before_it_is_unpacked():
    """A megabyte of it may be a gigabyte of zeros."""
    content = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000,), }", bytes(8000))
    assert arrays_in(packed({"a.npy": content}))["a"].shape == (1000,)
    with pytest.raises(ValueError, match="compressed"):
        arrays_in(packed({"a.npy": content}, zipfile.ZIP_DEFLATED))


def test_members_that_share_their_bytes_are_refused():
    content = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000,), }", bytes(8000))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("0.npy", content)
        for i in range(1, 50):
            again = zipfile.ZipInfo(f"{i}.npy")
            first = file.filelist[0]
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.file_size = again.compress_size = first.file_size
            file.filelist.append(again)
    with pytest.raises(ValueError, match="more than it is long"):
        arrays_in(data.getvalue())


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 10000000000000000000000), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 2), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (4,), }",
        "__import__('os').abort()",
        "((((((((",
    ],
)
def test_an_array_that_is_not_what_it_says_is_refused(header):
    data = packed({"a.npy": npy(header, bytes(32))})
    with pytest.raises((ValueError, TypeError, TokenError)):
        arrays_in(data)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    write_whole(path, {"a": np.zeros(3)})
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match=r"could not write .*x\.npz: No space left on device"):
        write_whole(path, {"a": np.ones(3)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
