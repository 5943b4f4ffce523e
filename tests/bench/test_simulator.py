"""The benchmark of the simulator, small; and the promise about AntSafe's walls."""

import json
import subprocess
import sys

import pytest

import cmbpo.tasks
from cmbpo.bench import simulator


def test_prints_all_tasks_and_writes_them_as_data(tmp_path, capsys):
    file = tmp_path / "deep" / "simulator.json"
    simulator.main(file, num_envs=2, threads=1, steps=2, rounds=1)
    printed = capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    assert [row["task"] for row in rows] == list(cmbpo.tasks.names())
    for row in rows:
        assert row["task"] in printed
        assert min(row["simulator"], row["bare rollout"], row["gymnasium"]) > 0.0
    assert json.loads(file.read_text())["machine"]["mujoco"]


@pytest.mark.slow
def test_overheads_are_what_they_should_be(tmp_path):
    """Below 25 % over bare rollouts; with AntSafe's untouched walls below 50 % over the ant alone.

    In a process of its own, where no types are checked at every call.
    """
    file = tmp_path / "simulator.json"
    code = f"import pathlib, cmbpo.bench.simulator as s; s.main(pathlib.Path({str(file)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    for row in json.loads(file.read_text())["rows"]:
        assert row["overhead %"] < 25.0
        if row["task"] == "AntSafe-v0":
            assert row["over ant %"] < 50.0
