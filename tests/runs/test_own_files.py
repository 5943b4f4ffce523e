"""A run is gone on with only in files of its own."""

import os

import pytest

from cmbpo.runs.errors import RunError
from cmbpo.runs.own_files import require_own_files
from cmbpo.training import loop
from tests.runs.stand_in import trained


def test_a_folder_as_it_was_made_is_its_own(run):
    trained(run, range(1, 9))
    require_own_files(run.folder)


@pytest.mark.parametrize("name", ["progress.csv", ".lock", "curves.png", "checkpoints/1.npz"])
def test_nothing_is_written_through_a_link(run, tmp_path, name):
    run.close()
    letter = tmp_path / "letter.txt"
    letter.write_text("do not lose me")
    (run.folder / name).unlink(missing_ok=True)
    (run.folder / name).symlink_to(letter)
    with pytest.raises(RunError, match=f"{name} is a symbolic link to .*letter.txt.*--trust"):
        loop.resume(run.folder)
    assert letter.read_text() == "do not lose me"


def test_a_folder_of_checkpoints_that_lies_elsewhere_is_left_alone(run, tmp_path):
    run.close()
    (run.folder / "checkpoints").rmdir()
    (run.folder / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(RunError, match="checkpoints is a symbolic link"):
        require_own_files(run.folder)


def test_what_is_no_file_is_not_waited_for(run):
    os.mkfifo(run.folder / "pipe")
    with pytest.raises(RunError, match="pipe is neither a file nor a folder"):
        require_own_files(run.folder)
