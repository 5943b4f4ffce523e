"""The views show what is in the row, nothing that is not, and fit the terminal."""

import io
import re
import sys

import numpy as np
import pytest
from rich.console import Console

from cmbpo.training import display
from cmbpo.training.display import LiveDisplay, PlainDisplay
from cmbpo.training.protocol import Wait

MODEL_FREE = {
    "TotalEnvSteps": 50_000,
    "Train/Epoch": 5,
    "Metrics/EpRet": 1234.5,
    "Metrics/EpCost": 12.3,
    "Constraint/Limit": 10.0,
    "Cost/Cumulative": 987,
    "Misc/Case": "recovery",
    "Time/Total": 12.0,
    "Time/Collect": 0.5,
}
MODEL_BASED = MODEL_FREE | {
    "Mixing/Alpha": 0.05,
    "Rollout/Length": 12.4,
    "Model/HoldoutMSE": 0.0314,
    "Metrics/EpCost": 8.2,
}


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def terminal(width, **more):
    return Console(file=io.StringIO(), force_terminal=True, width=width, **more)


def drawn(row, *, width, colours=False):
    screen = terminal(width, color_system="standard" if colours else None)
    live = LiveDisplay(screen, "cmbpo · AntSafe", total_steps=100_000)
    for _ in range(3):
        live.show(row)
    with screen.capture() as capture:
        screen.print(live)
    return capture.get()


def plain(every=2.0):
    out = io.StringIO()
    view = PlainDisplay(Console(file=out), "cpo", total_steps=100_000, every=every)
    return view, out


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_table_fits_its_terminal(width):
    lines = drawn(MODEL_BASED, width=width).splitlines()
    assert {len(line) for line in lines} == {width - 2}


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_shows_every_quantity_of_the_row(width):
    text = drawn(MODEL_BASED, width=width)
    for shown in ("1,234", "8.2 of 10", "987", "0.05", "12.4", "0.0314", "recovery", "0.50 s"):
        assert shown in text
    assert "50,000 of 100,000 steps" in text


def test_a_last_batch_that_goes_beyond_the_steps_asked_for_ends_at_100_percent():
    text = drawn(MODEL_FREE | {"TotalEnvSteps": 105_000}, width=80)
    assert " 100% " in text
    assert "105,000 of 100,000 steps" in text


def test_what_the_row_lacks_is_not_shown():
    text = drawn(MODEL_FREE, width=80)
    assert "α" not in text
    assert "model error" not in text


def test_a_cost_above_the_limit_is_red_and_one_below_green():
    red, green = "\x1b[1;31m", "\x1b[32m"
    assert red + "12.3 of 10" in drawn(MODEL_FREE, width=80, colours=True)
    assert green + "8.2 of 10" in drawn(MODEL_BASED, width=80, colours=True)


def test_a_quantity_that_is_not_known_yet_is_a_dash():
    assert "– of 10" in drawn(MODEL_FREE | {"Metrics/EpCost": float("nan")}, width=80)


def test_lines_come_at_most_every_two_seconds_and_the_last_always(clock):
    view, out = plain()
    with view:
        for update in range(1, 8):
            clock[0] += 0.7
            view.show(MODEL_FREE | {"Train/Epoch": update})
    lines = out.getvalue().splitlines()
    assert lines[0] == "cpo"
    assert [line.split(" | ")[0] for line in lines[1:]] == ["update 1", "update 4", "update 7"]


def test_a_line_says_what_matters(clock):
    view, out = plain()
    view.show(MODEL_BASED | {"TotalEnvSteps": 40_000})
    clock[0] = 10.0
    view.show(MODEL_BASED)
    assert out.getvalue().splitlines()[1] == (
        "update 5 | steps 50,000 | return 1,234 | cost 8.2 of 10 | cost so far 987 | case recovery"
        " | α 0.05 | rollout length 12.4 | model error 0.0314 | left 0:00:50"
    )


def test_the_view_suits_the_output():
    view = display.view("cpo", total_steps=10, console=Console(file=io.StringIO()))
    assert isinstance(view, PlainDisplay)


def test_messages_stand_apart_from_the_table():
    screen = terminal(80)
    with LiveDisplay(screen, "cpo", total_steps=100_000) as view:
        view.show(MODEL_FREE)
        view.say("saved")
    out = screen.file
    assert isinstance(out, io.StringIO)
    assert "saved\n" in out.getvalue()


def test_a_message_after_the_table_is_the_last_line_and_whole():
    screen = terminal(80)
    with LiveDisplay(screen, "cpo", total_steps=100_000) as view:
        view.show(MODEL_FREE)
    view.say(f"folder: {'x' * 100}[1]")
    out = screen.file
    assert isinstance(out, io.StringIO)
    assert out.getvalue().splitlines()[-1].endswith(f"folder: {'x' * 100}[1]")


def test_each_of_several_costs_stands_beside_its_own_limit():
    row = {k: v for k, v in MODEL_FREE.items() if k not in ("Metrics/EpCost", "Constraint/Limit")}
    row |= {"Metrics/EpCost/speed": 12.0, "Metrics/EpCost/far": 30.0}
    row |= {"Constraint/Limit/speed": 10.0, "Constraint/Limit/far": 40.0}
    view, out = plain()
    with view:
        view.show(row)
    assert "cost speed 12 of 10 | cost far 30 of 40" in out.getvalue()
    table = drawn(row, width=100, colours=True)
    assert "\x1b[1;31m12 of 10" in table
    assert "\x1b[32m30 of 40" in table


def two_costs(width, **more):
    costs = {"Metrics/EpCost": (12.3, 3456.7), "Constraint/Estimate": (11.1, 345.6)}
    costs |= {"Constraint/Limit": (10.0, 4000.0), "Constraint/Model": (9.87, 234.5)}
    row = {k: v for k, v in MODEL_BASED.items() if k not in costs} | {"Metrics/EpLen": 987.0}
    row |= {f"Time/{name}": 12.34 for name in ("Model", "Imagine", "Advantage", "Policy")}
    for key, values in costs.items():
        row |= {
            f"{key}/{name}": x for name, x in zip(("velocity", "boundary"), values, strict=True)
        }
    return drawn(row, width=width, **more)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_with_two_costs_no_number_is_cut(width):
    text = two_costs(width)
    assert "…" not in text
    for number in ("12.3 of 10", "3,457 of 4,000", "11.1", "345.6", "9.87", "234.5", "12.34 s"):
        assert number in text
    for label in ("cost velocity", "cost estimate boundary", "imagined cost velocity", "policy"):
        assert label in text
    assert {len(line) for line in text.splitlines()} == {width - 2}


def test_groups_stand_side_by_side_where_there_is_room():
    (line,) = [line for line in two_costs(140).splitlines() if "1,234" in line]
    assert "case" in line
    assert "collect" in line


def test_what_is_waited_for_has_a_bar_with_the_time_left_until_the_first_update(clock):
    screen = terminal(80, color_system=None)
    live = LiveDisplay(screen, "cmbpo", total_steps=100_000)
    for done, seconds in ((0, 0.0), (1, 30.0), (11, 50.0)):
        clock[0] = seconds
        live.wait(Wait("first model", done, 200, "epochs at most", "3 of 7 networks still learn"))
    with screen.capture() as capture:
        screen.print(live)
    text = " ".join(re.sub("[│╭╮╰╯]", " ", capture.get()).split())
    assert "first model" in text
    assert "11 of 200 epochs at most" in text
    assert "3 of 7 networks still learn" in text
    assert "0:06:18 left" in text
    live.show(MODEL_FREE)
    with screen.capture() as capture:
        screen.print(live)
    assert "first model" not in capture.get()


def test_without_a_terminal_what_is_waited_for_is_a_line_each():
    view, out = plain()
    for done in (0, 5, 10):
        view.wait(Wait("first real steps", done, 20_000, "steps"))
    view.wait(Wait("first model", 0, 200, "epochs at most"))
    assert out.getvalue().splitlines() == [
        "first real steps: 20,000 steps …",
        "first model: 200 epochs at most …",
    ]


def test_a_run_that_goes_on_shows_where_it_is_from_its_first_moment(clock):
    so_far = [MODEL_FREE | {"TotalEnvSteps": 40_000, "Train/Epoch": 4}, MODEL_FREE]
    out = io.StringIO()
    with PlainDisplay(Console(file=out), "cpo", total_steps=100_000, so_far=so_far) as view:
        clock[0] = 10.0
        view.show(MODEL_FREE | {"TotalEnvSteps": 60_000})
        clock[0] = 20.0
        view.show(MODEL_FREE | {"TotalEnvSteps": 70_000})
    lines = out.getvalue().splitlines()
    assert lines[1].startswith("going on from update 5 | steps 50,000 | return 1,234 | cost 12.3")
    assert lines[-1].endswith("left 0:00:30")
    screen = terminal(100)
    live = LiveDisplay(screen, "cpo", total_steps=100_000, so_far=so_far)
    with screen.capture() as capture:
        screen.print(live)
    assert "50,000 of 100,000 steps" in capture.get()
    assert "50%" in capture.get()
    assert "update 5" in capture.get()


def test_rows_are_read_back_without_their_blanks():
    table = {"TotalEnvSteps": np.array([1.0, 2.0]), "KL": np.array([np.nan, 0.1])}
    table |= {"Misc/Case": np.array(["", "recovery"])}
    assert display.rows(table) == [
        {"TotalEnvSteps": 1.0},
        {"TotalEnvSteps": 2.0, "KL": 0.1, "Misc/Case": "recovery"},
    ]


def test_short_episodes_are_told_beside_what_they_cost():
    short = MODEL_BASED | {"Metrics/EpLen": 110.0, "Metrics/EpCost": 0.0}
    out = io.StringIO()
    with PlainDisplay(Console(file=out), "cpo", total_steps=100_000, horizon=1000) as view:
        view.show(short)
    assert "cost 0 of 10 | cost so far 987 | episode length 110 of 1,000 |" in out.getvalue()
    out = io.StringIO()
    with PlainDisplay(Console(file=out), "cpo", total_steps=100_000, horizon=1000) as view:
        view.show(short | {"Metrics/EpLen": 990.0})
    assert "episode length" not in out.getvalue()


def test_the_cost_of_short_episodes_is_not_green():
    screen = terminal(100, color_system="standard")
    live = LiveDisplay(screen, "cpo", total_steps=100_000, horizon=1000)
    live.show(MODEL_BASED | {"Metrics/EpLen": 110.0})
    with screen.capture() as capture:
        screen.print(live)
    yellow = re.findall(r"\x1b\[33m *([^\x1b]*)", capture.get())
    assert yellow == ["8.2 of 10", "110 of 1,000"]


@pytest.mark.parametrize("length", [110.0, 950.0])
def test_that_training_cuts_episodes_short_is_said(length):
    """Also while the newest episodes, begun when there was more time, were longer."""
    cut = MODEL_BASED | {"Metrics/EpLen": length, "Train/EpisodeSteps": 112}
    out = io.StringIO()
    with PlainDisplay(Console(file=out), "cpo", total_steps=100_000, horizon=1000) as view:
        view.show(cut)
    assert "| cut at 112 of 1,000 steps by training |" in out.getvalue()
    screen = terminal(80, color_system="standard")
    live = LiveDisplay(screen, "cpo", total_steps=100_000, horizon=1000)
    live.show(cut)
    with screen.capture() as capture:
        screen.print(live)
    text = capture.get()
    assert "training cuts episodes at 112 of 1,000 steps: what whole ones cost is not" in text
    assert "\x1b[33m8.2 of 10" in text.replace("\x1b[33m ", "\x1b[33m").replace("  ", "")
    live.show(cut | {"Train/EpisodeSteps": 1000})
    with screen.capture() as capture:
        screen.print(live)
    assert "training cuts" not in capture.get()


class Full(io.StringIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_an_output_that_takes_nothing_is_told_and_gone_on_without(monkeypatch, capsys):
    silenced = []
    monkeypatch.setattr(display.streams, "go_silent", silenced.append)
    view = PlainDisplay(Console(file=Full()), "cpo", total_steps=100_000)
    view.say("first real steps …")
    assert silenced == [1]
    assert "(No space left on device); training goes on without it" in capsys.readouterr().err


def test_an_ascii_output_gets_lines_that_it_can_show(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with display.view("cpo", total_steps=100_000) as view:
        view.say("first real steps …")
        view.show(MODEL_BASED)
    assert b"first real steps ..." in raw.getvalue()
    assert b"alpha 0.05" in raw.getvalue()
    ascii_terminal = Console(file=sys.stdout, force_terminal=True)
    assert isinstance(display.view("a", total_steps=1, console=ascii_terminal), PlainDisplay)


def test_a_quiet_view_warns_of_what_goes_wrong_and_of_nothing_else(capsys):
    with display.view("cpo", total_steps=10, quiet=True) as view:
        view.say("saved")
        with pytest.warns(UserWarning, match="^a copy was made anew$"):
            view.warn("a copy was made anew")
    assert tuple(capsys.readouterr()) == ("", "")
