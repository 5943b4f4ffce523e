"""A whole run is found whole; whatever is changed in it is found, by file and line."""

import json
import shutil

import numpy as np
import pytest

from cmbpo import cli
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.verify import findings, main
from tests.runs.stand_in import row, trained


@pytest.fixture
def folder(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 9))
        facts = {"update": 7, "env_steps": 700, "return": 1.5, "cost": [0.5]}
        run.save_best(np.ones(3), facts)
    return run.folder


def damaged(folder):
    return [finding.sentence for finding in findings(folder) if finding.verdict == "damaged"]


def test_a_whole_run_is_whole(folder, capsys):
    assert main(folder)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "whole config.json: cmbpo on cmbpo/AntSafe-v0, seed 3",
        "whole checkpoints/8.npz: all that update 8 left",
        "whole checkpoints/4.npz: all that update 4 left",
        "whole best.npz: return 1.5 within the limits at update 7",
        "whole progress.csv: 8 rows",
        "whole episodes.csv: 4 rows",
        f"{folder} is whole",
    ]


def test_a_new_run_is_whole(settings):
    with Run.create(settings) as run:
        assert not damaged(run.folder)


def change(name, old, new):
    def apply(folder):
        path = folder / name
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new, 1))

    return apply


def edit_seed(folder):
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["seed"] = 4
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "sentences"),
    [
        (change("progress.csv", b"\n3000,", b"\n3001,"), ["progress.csv: not as written: line 4"]),
        (change("progress.csv", b"\n3000,", b"\0\0\0\0\0\0"), ["progress.csv: not as written: l"]),
        (change("progress.csv", b"check", b"chesk"), ["progress.csv: its first line is not"]),
        (change("progress.csv", b"TotalEnv", b"TotslEnv"), ["progress.csv: not as written: lines"]),
        (change("episodes.csv", b"\n5000,", b"\n5000,,"), ["episodes.csv: not as written: line 4"]),
        (change("best.npz", b"return", b"retorn"), ["best.npz is damaged: "]),
        (change("checkpoints/8.npz", b"NUMPY", b"NUMPI"), ["checkpoints/8.npz is damaged: "]),
        (lambda f: (f / "progress.csv").unlink(), ["progress.csv: it is lost with its 8 rows"]),
        (lambda f: (f / "checkpoints" / "8.npz").unlink(), []),
        (lambda f: shutil.rmtree(f / "checkpoints"), ["checkpoints: there is none to go on from"]),
        (lambda f: (f / "config.json").write_text("{"), ["config.json is not readable as JSON"]),
        (edit_seed, ["config.json has seed = 4, but checkpoints/8.npz was made with 3"] + 2 * [""]),
    ],
)
def test_what_is_changed_is_found(folder, damage, sentences):
    damage(folder)
    found = damaged(folder)
    assert len(found) == len(sentences)
    for sentence, expected in zip(found, sentences, strict=True):
        assert expected in sentence


def test_an_update_that_was_recorded_twice_is_found(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
        run.record(row(4))
    assert damaged(run.folder) == [
        "progress.csv: TotalEnvSteps does not grow from row to row: updates are repeated"
    ]


def test_rows_cut_off_are_found(folder):
    path = folder / "progress.csv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    assert damaged(folder) == ["progress.csv: 4 rows, but the newest checkpoint noted 8"]


def test_what_was_set_aside_is_listed_and_does_not_count(folder):
    for name in ("8 (copy).npz", "8.npz.damaged"):
        shutil.copy(folder / "checkpoints" / "8.npz", folder / "checkpoints" / name)
    aside = [f.sentence.split(":")[0] for f in findings(folder) if f.verdict == "aside"]
    assert aside == ["checkpoints/8 (copy).npz", "checkpoints/8.npz.damaged"]
    assert not damaged(folder)


def test_the_command_returns_whether_all_is_whole(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["cmbpo", "verify", str(folder)])
    cli.main()
    change("progress.csv", b"\n3000,", b"\n3001,")(folder)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert capsys.readouterr().out.endswith(f"{folder} is not whole\n")


def test_what_is_no_folder_is_no_damaged_run(folder):
    with pytest.raises(RunError, match=r"nope is no run folder: it has no config\.json$"):
        main(folder.parent / "nope")
    with pytest.raises(RunError, match=f"is a file; allowed: a run folder, as {folder} is$"):
        main(folder / "config.json")
