"""TensorBoard reads the numbers of the rows, and forgets those that were made again."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmbpo.runs.errors import RunError
from cmbpo.runs.events import Events
from cmbpo.runs.run_folder import Run
from tests.runs.stand_in import trained


def events(path: Path) -> Iterator[Any]:
    """What is in a file of TensorBoard's."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_tensorboard_reads_the_same_numbers_and_is_told_what_to_forget(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 7))
    with Run.resume(run.folder) as run:
        run.restore({"update": 0})
        trained(run, range(5, 7))
    first, second = (list(events(path)) for path in sorted(run.folder.glob("events.out.*")))
    assert [event.step for event in first[2:]] == [1000, 2000, 3000, 4000, 5000, 6000]
    values = {value.tag: value.simple_value for value in first[2].summary.value}
    assert values["Metrics/EpRet"] == np.float32(0.1)
    assert "Misc/Case" not in values
    assert second[1].session_log.status == 1
    assert [event.step for event in second[1:]] == [4001, 5000, 6000]


def test_a_full_disk_is_reported(tmp_path):
    log = Events(tmp_path, after=-1)
    (path,) = tmp_path.glob("events.out.*")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
    try:
        with pytest.raises(RunError, match=r"could not write TensorBoard's events: File too large"):
            log.append({"TotalEnvSteps": 1}, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.close()


def test_words_are_left_out_and_every_number_is_written(tmp_path):
    log = Events(tmp_path, after=-1)
    log.append({"Train/KL": np.float32(0.1), "Misc/Case": "recovery", "Train/Epoch": 3}, 7)
    log.close()
    (path,) = tmp_path.glob("events.out.*")
    *_, last = events(path)
    assert last.step == 7
    values = {value.tag: value.simple_value for value in last.summary.value}
    assert values == {"Train/KL": np.float32(0.1), "Train/Epoch": 3.0}


def test_a_run_that_goes_on_has_a_second_file(tmp_path):
    for after in (-1, 100):
        Events(tmp_path, after=after).close()
    assert len(list(tmp_path.glob("events.out.*"))) == 2
