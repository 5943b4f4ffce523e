"""A line per run: in a terminal, and anywhere else."""

import io

import pytest
from rich.console import Console

from cmbpo.experiments import live
from cmbpo.experiments.progress import Progress


def lines() -> list[live.Line]:
    now = Progress(update=9, steps=250, ret=1234.5, cost=12.0, limit=10.0, seconds_per_step=0.1)
    return [
        live.Line("cpo-AntSafe/seed-000", 1000, "waiting"),
        live.Line("cpo-AntSafe/seed-001", 1000, "running", now),
        live.Line("cpo-AntSafe/seed-002", 1000, "failed", None, "no [room]"),
    ]


def test_a_terminal_shows_a_line_per_run_those_that_go_on_first():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with live.view(lines(), console) as view:
        view.show()
        view.say("a [word]")
    shown = [line for line in out.getvalue().split("\n") if "seed-" in line]
    assert "seed-001" in shown[0]
    for words in ("250 of 1,000", "1,234", "12.0 of 10", "1 min 15 s"):
        assert words in shown[0]
    assert "a [word]" in out.getvalue()


@pytest.mark.parametrize(
    "name", ["cpo-AntSafe/seed-001", "cmbpo-no-alpha-paper-AntCircle/seed-001"]
)
def test_at_80_columns_all_that_matters_is_readable(name):
    now = Progress(9, steps=1_234_567, ret=3012.0, cost=8.3, limit=25.0, seconds_per_step=0.005)
    console = Console(file=io.StringIO(), record=True, width=80)
    console.print(live.LiveLines(console, [live.Line(name, 10_000_000, "running", now)]))
    _, shown = console.export_text().rstrip().split("\n")
    assert len(shown) <= 80
    for words in ("12 %", "1.2M of 10M", " 3,012 ", " 8.3 of 25 ", "12 h 10 min"):
        assert words in shown
    assert shown.startswith(name[:9])
    assert "seed-001 " in shown
    assert ("━" in shown) == (len(name) < 30)


@pytest.mark.parametrize(
    ("count", "words"),
    [(9_999, "9,999"), (25_000, "25k"), (999_999, "999k"), (1_234_567, "1.2M"), (10**7, "10M")],
)
def test_counts_are_short(count, words):
    assert live.short(count) == words


def test_elsewhere_a_line_is_printed_when_a_run_begins_or_ends():
    out = io.StringIO()
    with live.view(lines(), Console(file=out, width=40)) as view:
        view.show()
        view.show()
    assert out.getvalue().split("\n") == [
        "cpo-AntSafe/seed-001 running 25% | steps 250 of 1,000 | return 1,234 | cost 12.0 of 10"
        " | left 1 min 15 s",
        "cpo-AntSafe/seed-002 failed 0% | steps 0 of 1,000 | no [room]",
        "",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(59.6, "1 min 00 s"), (3.0, "3 s"), (7380.0, "2 h 03 min"), (float("nan"), "–")],
)
def test_durations_are_in_the_two_largest_units(seconds, words):
    assert live.duration(seconds) == words


def test_where_room_is_short_the_folder_of_all_runs_is_said_once():
    names = [f"cmbpo-HalfCheetahSafe/max-kl={x},policy.hidden=64x64/seed-000" for x in (1, 2)]
    console = Console(file=io.StringIO(), record=True, width=80)
    console.print(live.LiveLines(console, [live.Line(name, 1000) for name in names]))
    head, *shown = console.export_text().rstrip().split("\n")
    assert head.startswith("cmbpo-HalfCheetahSafe/")
    for line, value in zip(shown, "12", strict=True):
        assert line.startswith(f"max-kl={value},policy.hidden=64x64/seed-000")
