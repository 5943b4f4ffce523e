"""Run folders that hold anything at all: each is shown or named, and none ends the report."""

import copy
import json
import os
import random
import re
import resource
from pathlib import Path

import pytest

from cmbpo import report
from cmbpo.report import tables
from cmbpo.report.drawing import figures
from cmbpo.report.reading import read
from cmbpo.report.reading.read import collect
from tests.report.test_report import ant, fake

VALUES = [
    *(None, True, False, 0, -1, 1, 10**9, 10**18, 10**400, -0.0, 1e-300, 1e300),
    *(float("nan"), float("inf"), -float("inf"), "", "12", "nan", "<script>", "\ud800", "\x1b[2J"),
    *("$x_{", "é" * 600, [], [[]], [1, "2"], [None], [-3.0], [1e308] * 30, {}, {"a": {"b": []}}),
]
CELLS = [
    *("", "nan", "inf", "-inf", "1e308", "-1e308", "1e999", "x", "-5", "0", "١", "1_0", "\x00"),
    *('"', "9" * 400, "1,2", "\n", "\ud800", "-", "1e15", "5e-324"),
]


def places(tree, path=()):
    """Every place in a config: the way to it."""
    yield path
    for key, inner in tree.items() if isinstance(tree, dict) else ():
        yield from places(inner, (*path, key))


def mutated_config(path: Path, rng: random.Random) -> None:
    config = json.loads(path.read_text())
    *way, last = rng.choice([place for place in places(config) if place])
    inner = config
    for key in way:
        inner = inner[key]
    if rng.random() < 0.15:
        del inner[last]
    else:
        inner[last] = copy.deepcopy(rng.choice(VALUES))
    text = json.dumps(config)
    if rng.random() < 0.1:
        cut = rng.randrange(len(text))
        text = text[:cut] + rng.choice(["", "}", "[" * 100_000, "\x00", "NaN"]) + text[cut + 1 :]
    path.write_text(text)


def mutated_table(path: Path, rng: random.Random) -> None:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    for _ in range(rng.choice([1, 1, 5])):
        row = rng.choice([0, 1, len(rows) - 1, rng.randrange(len(rows))])
        column, cell = rng.randrange(len(rows[0])), rng.choice(CELLS)
        whole = rng.random() < 0.3 and row
        for line in rows[1:] if whole else [rows[row]]:
            line[column] = cell
    kind = rng.random()
    if kind < 0.1:
        rng.shuffle(rows)
    elif kind < 0.2:
        rows = rows[: rng.choice([0, 1, 2])]
    data = "\n".join(",".join(row) for row in rows).encode(errors="surrogatepass")
    if rng.random() < 0.1:
        cut = rng.randrange(len(data) + 1)
        data = data[:cut] + bytes(rng.choice([1, 2000])) + data[cut + 1 :]
    path.write_bytes(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = fake(tmp_path_factory.mktemp("whole") / "run", ant(seed=77), episodes=25)
    for path in run.glob("*.csv"):  # without the checksums of rows, which whoever forges them makes
        path.write_text(re.sub(r",[^,\n]*$", "", path.read_text(), flags=re.MULTILINE))
    return run


def copied(run: Path, to: Path) -> Path:
    to.mkdir(parents=True)
    for path in run.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_folder_holds_the_others_are_reported(whole, tmp_path, seed):
    rng = random.Random(seed)
    good = copied(whole, tmp_path / "good")
    for i in range(40):
        bad = copied(whole, tmp_path / f"bad-{i}")
        for name in rng.sample(["config.json", "progress.csv", "episodes.csv"], rng.choice([1, 2])):
            mutate = mutated_config if name == "config.json" else mutated_table
            mutate(bad / name, rng)
    shown = collect([tmp_path])
    made = report._attempt(shown)
    names = {run.name for run in shown.runs}
    assert good.name in names
    for i in range(40):
        named = any(f"bad-{i} " in sentence for sentence in shown.left_out)
        assert named or f"bad-{i}" in names
    assert "<td" in made.page
    made.page.encode(errors="replace")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"total_steps": "1000"}, "its total_steps is '1000'; allowed: a number"),
        ({"total_steps": None}, "its total_steps is None"),
        ({"num_envs": float("nan")}, "its num_envs is nan"),
        ({"num_envs": 0}, "its num_envs is 0; allowed: a number, 1 to 1e"),
        ({"cost_limit": 10.0}, "its cost_limit is 10.0; allowed: a list"),
        ({"cost_limit": [-3.0]}, "its cost_limit is -3.0; allowed: a number, 0 to inf"),
        ({"cost_limit": [1.0] * 1000}, "at most 16 numbers"),
        ({"seed": 10**400}, "its seed is 1000"),
        ({"algo": ["cpo"]}, "its algo is"),
        ({"env": {"horizon": 0}}, "its horizon is 0"),
        ({"preset": "x" * 10_000}, "its setting 'preset' is 'xxx"),
        ({"preset": "\x1b[2J"}, r"its setting 'preset' is '\\x1b\[2J'; allowed: .*printed"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_value(whole, tmp_path, change, sentence):
    bad = copied(whole, tmp_path / "bad")
    config = json.loads((bad / "config.json").read_text())
    config["settings"] |= change
    (bad / "config.json").write_text(json.dumps(config))
    shown = collect([tmp_path])
    assert shown.runs == []
    (said,) = shown.left_out
    assert said.startswith("bad cannot be shown: ")
    assert re.search(sentence, said), said


def test_deep_json_is_named(whole, tmp_path):
    bad = copied(whole, tmp_path / "bad")
    (bad / "config.json").write_text('{"settings": ' + "[" * 200_000)
    (said,) = collect([tmp_path]).left_out
    assert "bad cannot be shown" in said


def with_cell(folder: Path, table: str, row: int, column: str, cell: str) -> None:
    path = folder / table
    lines = [line.split(",") for line in path.read_text().splitlines()]
    lines[row][lines[0].index(column)] = cell
    path.write_text("\n".join(",".join(line) for line in lines) + "\n")


@pytest.mark.parametrize(
    ("table", "column", "cell", "said"),
    [
        ("progress.csv", "Cost/Cumulative", "nan", "run: 1 update left out"),
        ("episodes.csv", "return", "inf", "run: 1 episode left out"),
        ("episodes.csv", "cost", "-1e308", "run: 1 episode left out"),
        ("episodes.csv", "length", "0", "run cannot be shown: an episode of it has 0 steps"),
        ("progress.csv", "TotalEnvSteps", "1e15", "run cannot be shown: the environment steps"),
        ("episodes.csv", "env_steps", "-1", "run cannot be shown: the environment steps"),
    ],
)
def test_a_number_that_cannot_be_is_left_out_or_its_run_is(
    whole, tmp_path, table, column, cell, said
):
    run = copied(whole, tmp_path / "run")
    with_cell(run, table, 5, column, cell)
    shown = collect([tmp_path])
    (sentence,) = shown.left_out
    assert said in sentence
    report.made(shown)


def test_a_link_in_a_circle_and_one_to_everything_are_not_followed(whole, tmp_path):
    copied(whole, tmp_path / "runs" / "good")
    (tmp_path / "runs" / "circle").symlink_to(tmp_path)
    (tmp_path / "runs" / "everything").symlink_to("/")
    (tmp_path / "runs" / "itself").symlink_to("itself")
    (tmp_path / "runs" / "again").symlink_to("good")
    shown = collect([tmp_path / "runs"])
    assert len(shown.runs) == 1
    assert shown.left_out == [
        "circle is a link to a folder; name that to see its runs.",
        "everything is a link to a folder; name that to see its runs.",
    ]


def test_folders_without_end_end(whole, tmp_path):
    copied(whole, tmp_path / "good")
    deep = tmp_path
    for _ in range(300):
        deep = deep / "d"
        deep.mkdir()
    shown = collect([tmp_path])
    assert len(shown.runs) == 1
    assert "lies 32 folders deep" in shown.left_out[0]


@pytest.mark.parametrize("name", ["config.json", "progress.csv", "episodes.csv"])
def test_what_is_no_file_and_what_is_too_large_is_not_read(whole, tmp_path, name):
    copied(whole, tmp_path / "good")
    for kind in ("pipe", "zero", "large"):
        bad = copied(whole, tmp_path / kind)
        (bad / name).unlink()
        if kind == "pipe":
            os.mkfifo(bad / name)
        elif kind == "zero":
            (bad / name).symlink_to("/dev/zero")
        else:
            (bad / name).touch()
            os.truncate(bad / name, 100 * read.LARGEST_FILE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shown = collect([tmp_path])
    assert [run.name for run in shown.runs] == ["good"]
    assert len(shown.left_out) == 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_what_nobody_foresaw_ends_one_run_only(whole, tmp_path, monkeypatch):
    copied(whole, tmp_path / "good")
    copied(whole, tmp_path / "odd")
    real = tables.safety

    def odd(run):
        if run.name == "odd":
            raise ZeroDivisionError("float division by zero")
        return real(run)

    monkeypatch.setattr(tables, "safety", odd)
    shown = collect([tmp_path])
    page = report.made(shown).page
    assert "odd cannot be shown: drawing it ends in ZeroDivisionError (float division by" in page
    assert "1 run of 1 arm" in page


def test_what_was_left_out_is_named_on_a_line_each(whole, tmp_path, monkeypatch, capsys):
    copied(whole, tmp_path / "good")
    (copied(whole, tmp_path / "bad\n\x1b[31m") / "config.json").write_text("{")
    torn = tmp_path / "torn.tar.xz"
    torn.write_bytes(b"no archive")
    monkeypatch.setattr(figures, "write", lambda *args: None)
    report.main([tmp_path, torn], tmp_path / "out")
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path / 'out' / 'report.html'}\n"
    first, second = printed.err.splitlines()
    assert first.startswith("cmbpo report: bad??[31m cannot be shown: ")
    assert second.startswith(f"cmbpo report: {torn} cannot be unpacked")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 run of 1 arm" in page
    assert "torn.tar.xz cannot be unpacked" in page


def test_nothing_is_written_through_links_where_the_page_goes(whole, tmp_path, monkeypatch):
    """As where a folder of others holds a `report.html`, and the page is to be put beside it."""
    runs = tmp_path / "runs"
    copied(whole, runs / "run")
    letter = tmp_path / "letter"
    letter.write_text("mine")
    for name in ("report.html", "summary.md", "learning.png"):
        (runs / name).symlink_to(letter)
    shown = collect([runs])
    title, panels = next(iter(report.made(shown).panels["learning"].items()))
    figures.write(runs, "learning", {title: panels[:1]}, shown.arms)
    monkeypatch.setattr(figures, "write", lambda *args: None)
    report.write([runs], runs)
    assert letter.read_text() == "mine"
    assert "1 run of 1 arm" in (runs / "report.html").read_text()
    (runs / "figures").rmdir()
    (runs / "figures").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="figures is a symbolic link"):
        report.write([runs], runs)


def test_names_with_dollars_and_broken_letters_can_be_drawn(whole, tmp_path):
    run = copied(whole, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["settings"] |= {"env_id": "$\\frac{-v0", "algo": "$x_{"}
    config["command"] = ["\ud800"]
    (run / "config.json").write_text(json.dumps(config))
    shown = collect([run])
    made = report.made(shown)
    ((title, panels),) = made.panels["learning"].items()
    figures.write(tmp_path, "drawn", {title: panels[:1]}, shown.arms)
    report._write(tmp_path / "page.html", made.page)


def test_more_tasks_than_a_picture_has_room_for_are_drawn_as_far_as_it_goes(
    whole, tmp_path, monkeypatch
):
    shown = collect([copied(whole, tmp_path / "run")])
    (panels,) = report.made(shown).panels["learning"].values()
    monkeypatch.setattr(figures, "MOST_ROWS", 1)
    for name, tasks in (("many", "abc"), ("few", "a")):
        figures.write(tmp_path, name, dict.fromkeys(tasks, panels[:1]), shown.arms)
    assert (tmp_path / "many.png").read_bytes() == (tmp_path / "few.png").read_bytes()
