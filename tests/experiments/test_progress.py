"""How far a run is, read while another process writes."""

from pathlib import Path

import pytest

from cmbpo.experiments.progress import Progress, finished, newest, read

HEADER = "TotalEnvSteps,Train/Epoch,Metrics/EpRet,Metrics/EpCost,Constraint/Limit,Time/Total\n"


def bad_folders(log: Path) -> dict[str, Path]:
    """Run folders of four seeds that are damaged each in its own way, and what is."""
    wrong = {seed: log / f"cpo-PointCircle/seed-00{seed}" for seed in range(4)}
    for seed in (0, 2, 3):
        wrong[seed].mkdir(parents=True)
    wrong[1].write_text("no folder")
    (wrong[0] / "config.json").write_text('{"settings": {"algo": "cp')
    row = "100,1,1.0,2.0,10.0,5.0\n"
    (wrong[2] / "progress.csv").write_bytes(HEADER.encode() + row.encode() + b"\xff\xfe,1\n")
    without = HEADER.replace(",Time/Total", "")
    (wrong[3] / "progress.csv").write_text(without + "100,1,1.0,2.0,10.0\n")
    return {
        f"{wrong[0] / 'config.json'} is not readable": wrong[0],
        f"{wrong[1]} is a file": wrong[1],
        f"{wrong[2] / 'progress.csv'} is not readable": wrong[2],
        f"{wrong[3] / 'progress.csv'} has no column Time/Total": wrong[3],
    }


def test_while_a_run_goes_on_what_cannot_be_read_counts_as_nothing(tmp_path):
    for folder in bad_folders(tmp_path).values():
        assert read(folder) is None
        assert not finished(folder, 10)
    with pytest.raises(ValueError, match=r"progress\.csv has no column Time/Total"):
        newest(tmp_path / "cpo-PointCircle/seed-003")


def test_progress_is_the_last_complete_row(tmp_path):
    path = tmp_path / "progress.csv"
    assert read(tmp_path) is None
    path.write_text(HEADER)
    assert read(tmp_path) is None
    path.write_text(HEADER + "100,1,1.0,2.0,10.0,5.0\n300,2,3.0,4.0,10.0,9.0\n500,3,1")
    assert read(tmp_path) == Progress(
        update=2, steps=300, ret=3.0, cost=4.0, limit=10.0, seconds_per_step=0.02
    )


def test_progress_of_a_long_run_is_read_from_its_end(tmp_path):
    lines = [f"{100 * i},{i},0.0,,10.0,{0.5 * i}\n" for i in range(1, 20_001)]
    (tmp_path / "progress.csv").write_text(HEADER + "".join(lines))
    now = read(tmp_path)
    assert now is not None
    assert (now.update, now.steps) == (20_000, 2_000_000)
    assert now.seconds_per_step == pytest.approx(0.005)


def test_a_run_is_finished_only_with_its_last_policy(tmp_path):
    (tmp_path / "progress.csv").write_text(HEADER + "100,1,1.0,2.0,10.0,5.0\n")
    (tmp_path / "checkpoints").mkdir()
    assert not finished(tmp_path, 100)
    (tmp_path / "checkpoints" / "1.npz").touch()
    assert finished(tmp_path, 100)
    assert not finished(tmp_path, 101)


def test_a_run_that_went_on_beyond_its_last_policy_has_still_taken_its_steps(tmp_path):
    rows = [f"{100 * i},{i},1.0,2.0,10.0,5.0\n" for i in range(1, 6)]
    (tmp_path / "progress.csv").write_text(HEADER + "".join(rows))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "3.npz").touch()
    assert finished(tmp_path, 300)
    assert not finished(tmp_path, 400)
