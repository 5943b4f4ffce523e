"""A run folder survives what happens to runs: kills, damaged files, other versions."""

import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from cmbpo.runs import run_folder
from cmbpo.runs.config import rewrite_config
from cmbpo.runs.errors import DamagedError, RunError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import read_table
from cmbpo.runs.verify import findings
from tests.runs.stand_in import episode, row, trained
from tests.runs.test_checkpoint import a_state, same_bits


def without_time(text):
    lines = [line.split(",") for line in text.splitlines()]
    keep = [
        i for i, name in enumerate(lines[0]) if not name.startswith("Time/") and name != "check"
    ]
    return [[line[i] for i in keep] for line in lines]


def test_the_folder_is_named_after_algorithm_task_and_seed(run, tmp_path):
    assert run.folder.parent == tmp_path / "cmbpo-AntSafe"
    assert run.folder.name.startswith("seed-003-20")


def test_runs_started_in_the_same_second_do_not_share_a_folder(settings):
    runs = [Run.create(settings) for _ in range(3)]
    assert len({run.folder for run in runs}) == 3
    for run in runs:
        run.close()


def test_a_run_with_a_setting_that_is_gone_is_read_but_not_gone_on_with(run, settings):
    older = {**run.config, "settings": {**run.config["settings"]}}
    older["settings"]["rollout"] = {**older["settings"]["rollout"], "end_over_members": True}
    rewrite_config(run.folder, older)
    run.close()
    assert Run.open(run.folder).settings == settings
    with pytest.raises(RunError, match=r"rollout\.end_over_members = True; .* at False always"):
        Run.resume(run.folder)


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


def test_when_every_checkpoint_is_damaged_the_message_says_so_and_all_stay(run):
    run.save({"a": 1}, 1)
    run.checkpoints()[0].write_bytes(b"")
    for read in (run.load, run.restore):
        with pytest.raises(RunError, match=r"every checkpoint in .* is damaged: .*1\.npz"):
            read({"a": 1})
    assert [path.name for path in run.checkpoints()] == ["1.npz"]


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


def test_a_run_killed_in_its_warm_up_starts_anew_and_erases_nothing(settings):
    with Run.create(settings) as run:
        run.record_episodes([episode(1)])
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) is None
        run.record_episodes([episode(2)])
    assert read_table(run.folder / "episodes.csv")["env_steps"].tolist() == [2000]
    old = (run.folder / "episodes.csv.old").rename(run.folder / "old.csv")
    assert read_table(old)["env_steps"].tolist() == [1000]


@pytest.mark.parametrize("lose", [shutil.rmtree, lambda folder: (folder / "4.npz").unlink()])
def test_a_run_that_lost_its_checkpoints_is_asked_for_and_nothing_is_erased(settings, lose):
    with Run.create(settings) as run:
        trained(run, range(1, 6))
    records = (run.folder / "progress.csv").read_bytes()
    lose(run.folder / "checkpoints")
    with Run.resume(run.folder) as run:
        with pytest.raises(RunError, match=r"has 5 updates in progress\.csv, but no checkpoint .*"):
            run.restore({"update": 0})
        assert (run.folder / "progress.csv").read_bytes() == records
        assert run.restore({"update": 0}, start_anew=True) is None
        trained(run, range(1, 5))
    assert (run.folder / "progress.csv.old").read_bytes() == records
    assert read_table(run.folder / "progress.csv")["TotalEnvSteps"].tolist()[-1] == 4000
    assert [path.name for path in run.checkpoints()] == ["4.npz"]


def test_damaged_newer_checkpoints_are_set_aside_on_resume(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 9))
        run.checkpoints()[0].write_bytes(b"junk")
    (run.folder / "checkpoints" / "8.npz.damaged").write_bytes(b"older")
    with Run.resume(run.folder) as run:
        with pytest.warns(UserWarning, match=r"8\.npz is damaged: .*; it is now 8\.npz\.damaged-2"):
            assert run.restore({"update": 0}) == {"update": 4}
        assert [path.name for path in run.checkpoints()] == ["4.npz"]
        assert run.progress.rows == 4
        trained(run, range(5, 13))
    kept = {path.name: path.read_bytes() for path in (run.folder / "checkpoints").glob("*.dam*")}
    assert kept == {"8.npz.damaged": b"older", "8.npz.damaged-2": b"junk"}
    assert [path.name for path in run.checkpoints()] == ["12.npz", "8.npz"]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_stops_the_resume_and_stays(
    settings, monkeypatch, failure, words
):
    """It is as good as ever when the disk, the memory or the right to read it is back."""

    def fail(descriptor, *args):
        raise failure

    with Run.create(settings) as run:
        trained(run, range(1, 9))
    before = contents(run.folder)
    with Run.resume(run.folder) as run:
        for read in (run.restore, run.load):
            with monkeypatch.context() as patch:
                patch.setattr(os, "fdopen", fail)
                with pytest.raises(RunError, match=rf"could not read .*8\.npz: .*{words}") as error:
                    read({"update": 0})
            assert not isinstance(error.value, DamagedError)
        assert contents(run.folder) == before
        assert run.restore({"update": 0}) == {"update": 8}


def contents(folder):
    return {
        path.name: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("name", ["progress.csv", "episodes.csv"])
def test_lost_records_do_not_block_and_the_checkpoint_then_knows(settings, name):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    (run.folder / name).unlink()
    for _ in range(2):
        Run.open(run.folder).load({"update": 0})
    with Run.resume(run.folder) as run:
        with pytest.warns(UserWarning, match=f"{name} is lost"):
            assert run.restore({"update": 0}) == {"update": 4}
        run.record(row(5))
        run.record_episodes([episode(5)])
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) == {"update": 4}
        trained(run, range(5, 7))
    steps = read_table(run.folder / "progress.csv")["TotalEnvSteps"].tolist()
    assert steps[-2:] == [5000, 6000]
    assert sorted(set(steps)) == steps


def test_damaged_records_block_neither_reading_nor_resume(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    for name in ("progress.csv", "episodes.csv"):
        (run.folder / name).write_bytes(b"\0" * 2000)
    assert Run.open(run.folder).load({"update": 0}) == {"update": 4}
    with Run.resume(run.folder) as run:
        run.extend(9000)
        with pytest.warns(UserWarning, match="has 0 whole rows where the checkpoint noted"):
            assert run.restore({"update": 0}) == {"update": 4}
        trained(run, range(5, 7))
    assert read_table(run.folder / "progress.csv")["TotalEnvSteps"].tolist() == [5000, 6000]


def test_a_checkpoint_is_known_by_its_name(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 9))
    newest = run.checkpoints()[0]
    for name in ("8 (copy).npz", "008.npz", "8.npz.bak", "eight.npz", "٨.npz"):
        shutil.copy(newest, newest.with_name(name))
    assert [path.name for path in Run.open(run.folder).checkpoints()] == ["8.npz", "4.npz"]
    newest.rename(newest.with_name("99.npz"))
    with pytest.raises(RunError, match=r"99\.npz is the checkpoint of update 8"):
        Run.open(run.folder).load({"update": 0})


def test_retention_counts_only_what_is_known_to_be_good(settings):
    """A foreign file with a high number does not push out the run's own."""
    with Run.create(settings) as run:
        trained(run, range(1, 9))
        (run.folder / "checkpoints" / "100.npz").write_bytes(b"foreign")
        trained(run, range(9, 13))
        assert [path.name for path in run.checkpoints()] == ["100.npz", "12.npz", "8.npz"]


def test_a_folder_with_the_name_of_an_old_checkpoint_stays_and_stops_nothing(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 9))
        older = run.checkpoints()[1]
        older.unlink()
        older.mkdir()
        (older / "notes").write_text("mine")
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) == {"update": 8}
        trained(run, range(9, 17))
        assert [path.name for path in run.checkpoints()] == ["16.npz", "12.npz", "4.npz"]
    assert (older / "notes").read_text() == "mine"


@pytest.mark.parametrize("name", [".lock", "progress.csv", "episodes.csv"])
def test_nothing_is_written_through_a_link(settings, name, tmp_path):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (run.folder / name).unlink()
    (run.folder / name).symlink_to(precious)
    with pytest.raises(RunError, match=name):
        Run.resume(run.folder)
    assert precious.read_text() == "precious"


FACTS = {"update": 7, "env_steps": 700, "return": 1.5, "cost": [0.5]}


def test_the_best_policy_is_a_file_of_its_own(run, settings):
    with pytest.raises(RunError, match=r"has no best\.npz: no update has kept the limits"):
        run.load_best(np.zeros(3))
    run.save_best(np.ones(3), FACTS)
    found = Run.open(run.folder).load_best(np.zeros(3))
    np.testing.assert_array_equal(found.state, np.ones(3))
    assert found.notes["return"] == 1.5
    with Run.create(dataclasses.replace(settings, seed=9)) as other:
        shutil.copy(run.folder / "best.npz", other.folder)
        with pytest.raises(RunError, match=r"best\.npz belongs to another run, as seed = 3"):
            other.load_best(np.zeros(3))


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
        run.restore({"update": 0})
    assert Run.open(run.folder).settings.total_steps == 9000


def test_a_run_that_does_not_go_on_keeps_its_settings(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    run.checkpoints()[0].write_bytes(b"")
    before = (run.folder / "config.json").read_bytes()
    with Run.resume(run.folder) as run:
        run.extend(9000)
        with pytest.raises(RunError, match="is damaged"):
            run.restore({"update": 0})
    assert (run.folder / "config.json").read_bytes() == before


def test_a_run_that_is_refused_for_its_records_keeps_its_settings(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    config = (run.folder / "config.json").read_bytes()
    (run.folder / "episodes.csv").unlink()
    (run.folder / "episodes.csv").mkdir()
    with Run.resume(run.folder) as run:
        run.extend(9000)
        with pytest.raises(RunError, match=r"episodes\.csv"):
            run.restore({"update": 0})
    assert (run.folder / "config.json").read_bytes() == config


def test_a_folder_in_place_of_the_best_policy_is_set_aside(run):
    (run.folder / "best.npz").mkdir()
    run.save_best(np.ones(3), FACTS)
    np.testing.assert_array_equal(run.load_best(np.zeros(3)).state, np.ones(3))
    assert (run.folder / "best.npz.damaged").is_dir()


def test_records_without_their_first_line_are_set_aside_and_said(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    path = run.folder / "progress.csv"
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    with Run.resume(run.folder) as run:
        with pytest.warns(UserWarning, match="has 0 whole rows where the checkpoint noted 4"):
            run.restore({"update": 0})
        trained(run, range(5, 7))
    assert read_table(path)["TotalEnvSteps"].tolist() == [5000, 6000]


@pytest.mark.parametrize("name", ["progress.csv", "episodes.csv"])
def test_another_runs_records_are_set_aside_and_said(settings, name):
    folders = []
    for seed in (1, 2):
        with Run.create(dataclasses.replace(settings, seed=seed)) as run:
            trained(run, range(seed, seed + 4))
            folders.append(run.folder)
    shutil.copyfile(folders[1] / name, folders[0] / name)
    found = [finding for finding in findings(folders[0]) if finding.verdict == "damaged"]
    assert [f.sentence.startswith(f"{name}: another run's") for f in found] == [True]
    with (
        Run.resume(folders[0]) as run,
        pytest.warns(UserWarning, match=f"{name} has 0 whole rows where the checkpoint noted"),
    ):
        run.restore({"update": 0})
    assert (folders[0] / f"{name}.damaged").read_bytes() == (folders[1] / name).read_bytes()


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


def test_a_new_folder_is_held_before_it_is_a_run(settings, monkeypatch):
    write = run_folder.write_config

    def written_while_another_comes(folder, *args):
        write(folder, *args)
        with pytest.raises(RunError, match="already training"):
            Run.resume(folder)

    monkeypatch.setattr(run_folder, "write_config", written_while_another_comes)
    Run.create(settings).close()


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
