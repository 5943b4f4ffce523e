"""Files appear whole, are read only if they are files, and are renamed rather than erased."""

import os

import pytest

from cmbpo.runs import files
from cmbpo.runs.errors import DamagedError, RunError


def test_what_cannot_be_read_is_named_and_not_called_damaged(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe, tmp_path / "nothing"):
        with pytest.raises(RunError, match=f"could not read {path}") as error:
            files.read_bytes(path)
        assert not isinstance(error.value, DamagedError)


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def write() -> None:
        with files.whole_file(path) as file:
            file.write(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert path.read_text() == "old"


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("name"), replace(a, b)))
    with files.whole_file(tmp_path / "x") as file:
        file.write(b"new")
    assert events == ["sync", "name", "sync"]


def test_nothing_is_written_through_a_link_that_lies_in_wait(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / ".x.tmp").symlink_to(precious)
    with files.whole_file(tmp_path / "x") as file:
        file.write(b"new")
    assert precious.read_text() == "precious"
    assert (tmp_path / "x").read_bytes() == b"new"


def test_what_is_set_aside_takes_a_free_name(tmp_path):
    for count in (1, 2, 3):
        (tmp_path / "x").write_text(str(count))
        files.set_aside(tmp_path / "x", "old")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"x.old": "1", "x.old-2": "2", "x.old-3": "3"}
