"""Runs in one archive: read as if they were folders, and no archive does harm."""

import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from cmbpo.report.reading import packed
from cmbpo.report.reading.read import collect
from tests.report.test_final_policies import evaluate_to, run_of
from tests.report.test_report import ant, command, fake

RESULTS = Path(__file__).resolve().parents[3] / "results"


def pack(folder: Path, archive: Path) -> Path:
    """What lies in a folder, as an archive."""
    kind = {".xz": "xztar", ".gz": "gztar", ".tgz": "gztar", ".tar": "tar"}[archive.suffix]
    made = shutil.make_archive(str(archive.with_name("made")), kind, root_dir=folder)
    return Path(made).replace(archive)


def forged(archive: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive of these members and of one good run."""
    fake(archive.parent / "good" / "run", ant(), episodes=30)
    with tarfile.open(archive, "w:xz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
        tar.add(archive.parent / "good" / "run", "run")
    return archive


def member(name: str, content: bytes = b"{}", **facts) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for fact, value in facts.items():
        setattr(info, fact, value)
    return info, content


@pytest.mark.parametrize("ending", packed.ENDINGS)
def test_an_archive_reads_as_its_folder_does_and_names_its_runs_as_they_are_in_it(tmp_path, ending):
    fake(tmp_path / "runs" / "noise" / "small-seed-1", ant(seed=1), episodes=30)
    fake(tmp_path / "runs" / "noise" / "large-seed-1", ant(seed=2), episodes=30)
    archive = pack(tmp_path / "runs", tmp_path / f"tuning{ending}")
    ours, plain = collect([archive]), collect([tmp_path / "runs"])
    assert [run.name for run in ours.runs] == ["noise/large-seed-1", "noise/small-seed-1"]
    assert [run.name for run in ours.runs] == [run.name for run in plain.runs]
    for one, other in zip(ours.runs, plain.runs, strict=True):
        assert one.config == other.config
        for name in one.progress:
            np.testing.assert_array_equal(one.progress[name], other.progress[name])


def test_an_archive_keeps_what_its_policies_were_evaluated_in(tmp_path):
    evaluate_to(run_of(tmp_path / "runs" / "a", seed=0), 1600.0, [10.0] * 10)
    (run,) = collect([pack(tmp_path / "runs", tmp_path / "one.tar.xz")]).runs
    assert run.evaluated is not None
    assert set(run.evaluated.deterministic.returns) == {1600.0}


def test_an_archive_of_a_single_run_has_its_own_name(tmp_path):
    archive = pack(fake(tmp_path / "run", ant(), episodes=30), tmp_path / "one.tar.xz")
    assert [run.name for run in collect([archive]).runs] == ["one.tar.xz"]


def test_a_tuning_archive_among_folders_is_left_out_and_that_is_said(tmp_path):
    fake(tmp_path / "a" / "one", ant(seed=0), episodes=30)
    fake(tmp_path / "b" / "two", ant(seed=1), episodes=30)
    fake(tmp_path / "b" / "three", ant(seed=2), episodes=30)
    archive = pack(tmp_path / "b", tmp_path / "a" / "tuning.tar.xz")
    found = collect([tmp_path / "a"])
    assert [run.name for run in found.runs] == ["one"]
    assert found.notices == [
        "Left out: 2 runs in tuning.tar.xz, which served to choose settings. "
        "Name that archive to see them."
    ]
    assert len(collect([tmp_path / "a", archive]).runs) == 3


def test_an_archive_that_is_torn_says_so_and_leaves_the_other_runs_alone(tmp_path):
    fake(tmp_path / "a" / "one", ant(), episodes=30)
    torn = tmp_path / "a" / "tuning.tar.xz"
    torn.write_bytes(pack(tmp_path / "a", tmp_path / "whole.tar.xz").read_bytes()[:-200])
    found = collect([tmp_path / "a"])
    assert len(found.runs) == 1
    assert "cannot be unpacked" in found.notices[0]
    done = command(str(torn), cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.startswith(f"cmbpo report: {torn} cannot be unpacked: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["../config.json", "/tmp/../../config.json"])
def test_nothing_is_written_outside_of_the_temporary_folder(tmp_path, name):
    archive = forged(tmp_path / "forged.tar.xz", member(name))
    with pytest.raises(ValueError, match=r"forged.tar.xz cannot be unpacked: .*outside"):
        collect([archive])


def test_links_and_devices_and_other_files_are_passed_over(tmp_path):
    archive = forged(
        tmp_path / "forged.tar.xz",
        member("run/config.json", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("pipe/progress.csv", b"", type=tarfile.FIFOTYPE),
        member("run/checkpoints/12.npz", b"x" * 1000),
    )
    with packed.unpacked(archive) as folder:
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    assert names == ["run/config.json", "run/episodes.csv", "run/progress.csv"]
    assert not folder.parent.exists()


@pytest.mark.parametrize("name", ["run/episodes.csv", "run/checkpoints/12.npz"])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(packed, "LARGEST", 2_000_000)
    archive = forged(tmp_path / "bomb.tar.xz", member(name, bytes(3_000_000)))
    assert archive.stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"cannot be unpacked: it holds more than 2,000,000 bytes"):
        collect([archive])


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    fake(tmp_path / "run", ant(), episodes=30)
    with pytest.raises(ValueError, match=r"config.json is a file; a run folder"):
        collect([tmp_path / "run" / "config.json"])
    words = tmp_path / "words.tar.xz"
    shutil.copy(tmp_path / "run" / "config.json", words)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        collect([words])


@pytest.mark.skipif(not RESULTS.exists(), reason="the runs are not part of the package")
def test_the_notebook_speaks_of_every_question_that_the_archive_has_runs_of():
    questions = set()
    for path in RESULTS.glob("tuning*.tar.xz"):
        with tarfile.open(path) as archive:
            questions |= {name.split("/")[0] for name in archive.getnames()}
    notebook = (RESULTS / "NOTEBOOK.md").read_text(encoding="utf-8")
    assert {name for name in questions if f"`{name}" not in notebook} == set()


def test_an_archive_of_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MOST", 20)
    archive = forged(tmp_path / "many.tar.xz", *[member(f"{i}/x", b"") for i in range(21)])
    with pytest.raises(packed.UnreadableError, match=r"it holds more than 20 files and folders"):
        collect([archive])


def test_a_bad_archive_beside_a_folder_is_named_and_the_folder_is_read(tmp_path):
    fake(tmp_path / "run", ant(), episodes=30)
    (tmp_path / "words.tar.xz").write_text("words")
    shown = collect([tmp_path / "run", tmp_path / "words.tar.xz"])
    assert len(shown.runs) == 1
    assert "words.tar.xz cannot be unpacked" in shown.left_out[0]
