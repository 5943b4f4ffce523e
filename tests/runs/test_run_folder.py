"""A run folder survives what happens to runs: kills, damaged files, other versions."""

import dataclasses
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import read_table
from tests.runs.stand_in import row, trained
from tests.runs.test_checkpoint import a_state, same_bits


def without_time(text):
    lines = [line.split(",") for line in text.splitlines()]
    keep = [i for i, name in enumerate(lines[0]) if not name.startswith("Time/")]
    return [[line[i] for i in keep] for line in lines]


def test_the_folder_is_named_after_algorithm_task_and_seed(run, tmp_path):
    assert run.folder.parent == tmp_path / "cmbpo-AntSafe"
    assert run.folder.name.startswith("seed-003-20")


def test_runs_started_in_the_same_second_do_not_share_a_folder(settings):
    runs = [Run.create(settings) for _ in range(3)]
    assert len({run.folder for run in runs}) == 3
    for run in runs:
        run.close()


def test_a_folder_without_config_is_no_run(tmp_path):
    with pytest.raises(RunError, match="no config"):
        Run.open(tmp_path)


def test_the_newest_two_checkpoints_stay(run):
    for update in (1, 9, 10, 100):
        run.save({"update": update}, update)
    assert [path.name for path in run.checkpoints()] == ["100.npz", "10.npz"]
    assert run.load({"update": 0}) == {"update": 100}


def test_a_truncated_checkpoint_falls_back_to_the_one_before(run):
    for update in (1, 2):
        run.save(a_state(update), update)
    newest = run.checkpoints()[0]
    whole = newest.read_bytes()
    for share in (0.0, 0.3, 0.7, 0.99):
        newest.write_bytes(whole[: int(share * len(whole))])
        with pytest.warns(UserWarning, match="2.npz is damaged"):
            same_bits(run.load(a_state(0)), a_state(1))


def test_when_every_checkpoint_is_damaged_the_message_says_so(run):
    run.save({"a": 1}, 1)
    run.checkpoints()[0].write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match="every checkpoint"),
    ):
        run.load({"a": 1})


def test_resumed_records_are_those_of_the_unbroken_run(settings):
    with Run.create(settings) as unbroken:
        trained(unbroken, range(1, 13))
    with Run.create(settings) as run:
        trained(run, range(1, 8))
    with (run.folder / "progress.csv").open("a") as file:
        file.write("8000,0.8,torn")
    with Run.resume(run.folder) as run:
        state = run.restore({"update": 0})
        assert state == {"update": 4}
        trained(run, range(5, 13))
    for name in ("progress.csv", "episodes.csv"):
        assert without_time((run.folder / name).read_text()) == without_time(
            (unbroken.folder / name).read_text()
        )
    assert run.progress.rows == 12


def test_a_run_killed_before_its_first_checkpoint_starts_anew(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 3))
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) is None
        assert (run.folder / "progress.csv").read_text() == ""
        trained(run, range(1, 3))
    assert read_table(run.folder / "progress.csv")["TotalEnvSteps"].tolist() == [1000, 2000]


def test_damaged_newer_checkpoints_are_dropped_on_resume(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 9))
        run.checkpoints()[0].write_bytes(b"junk")
    with Run.resume(run.folder) as run:
        with pytest.warns(UserWarning, match="8.npz is damaged"):
            assert run.restore({"update": 0}) == {"update": 4}
        assert [path.name for path in run.checkpoints()] == ["4.npz"]
        assert run.progress.rows == 4


def test_records_shorter_than_the_checkpoint_says_are_refused(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    (run.folder / "progress.csv").write_text("")
    with Run.resume(run.folder) as run, pytest.raises(RunError, match="has 0 rows, but had 4"):
        run.restore({"update": 0})


def test_a_folder_opened_to_read_is_not_written_to(run):
    reader = Run.open(run.folder)
    with pytest.raises(RunError, match="to be read"):
        reader.record(row(1))


def test_a_missing_wandb_is_named_before_anything_is_made(settings, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RunError, match="wandb is not installed: pip install wandb"):
        Run.create(dataclasses.replace(settings, wandb=True))
    assert list(tmp_path.iterdir()) == []


def test_a_run_may_be_longer_but_not_shorter_than_it_is(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
        with pytest.raises(RunError, match=r"total_steps is 3999; allowed here: at least 4000"):
            run.extend(3999)
        assert run.extend(9000).total_steps == 9000
    assert Run.open(run.folder).settings.total_steps == 9000


def test_records_with_columns_that_came_later_are_cut_back_and_go_on(settings):
    """As where a run goes on with a version that logs more."""
    with Run.create(settings) as run:
        trained(run, range(1, 5))
        run.record({**row(5), "Train/KL": 0.5})
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) == {"update": 4}
        run.record({**row(5), "Train/KL": 0.25})
    found = read_table(run.folder / "progress.csv")
    assert found["TotalEnvSteps"].tolist() == [1000, 2000, 3000, 4000, 5000]
    np.testing.assert_array_equal(found["Train/KL"], [np.nan] * 4 + [0.25])


def python(code, *args):
    """A process that runs `code`; its output is read line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_do_not_train_in_one_folder_but_a_dead_one_does_not_block(run):
    run.close()
    code = """
        import sys, time
        from cmbpo.runs.run_folder import Run
        run = Run.resume(sys.argv[1])
        print("holding", flush=True)
        time.sleep(60)
    """
    with python(code, run.folder) as process:
        assert process.stdout
        assert process.stdout.readline() == "holding\n"
        with pytest.raises(RunError, match=f"process {process.pid} is already training"):
            Run.resume(run.folder)
        process.send_signal(signal.SIGKILL)
    with Run.resume(run.folder):
        pass


def test_a_run_killed_while_it_saves_goes_on_from_a_whole_checkpoint(run):
    run.close()
    code = """
        import sys
        import numpy as np
        from cmbpo.runs.run_folder import Run
        with Run.resume(sys.argv[1]) as run:
            state = run.restore({"x": np.zeros(1_000_000, int), "update": 0})
            first = 1 if state is None else state["update"] + 1
            for update in range(first, 1000):
                run.record({"TotalEnvSteps": update, "Metrics/EpRet": 0.5})
                run.save({"x": np.full(1_000_000, update), "update": update}, update)
                print(update, flush=True)
    """
    template = {"x": np.zeros(1_000_000, int), "update": 0}
    for delay in (0.005, 0.03):
        with python(code, run.folder) as process:
            assert process.stdout
            for _ in range(2):
                process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        with Run.resume(run.folder) as resumed:
            state = resumed.restore(template)
            assert state is not None
            assert state["update"] >= 2
            assert (state["x"] == state["update"]).all()
            assert resumed.progress.rows == state["update"]
        assert not list(run.folder.glob("**/*.tmp"))
