"""What a run will take is foreseen from what its first minutes took."""

import csv
import lzma
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cmbpo import preset, tasks
from cmbpo.envs.custom_task import CustomTask
from cmbpo.settings.schema import EnvSettings
from cmbpo.training import pace
from cmbpo.training.pace import (
    Forecast,
    WaitPace,
    expected,
    fitted_rows,
    learning_seconds,
    run_operations,
    words,
)
from cmbpo.training.protocol import Wait
from tests.envs.test_custom_task import Cart
from tests.tiny import tiny

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    return now


def epochs(done: int) -> Wait:
    return Wait("first model", done, 200, "epochs at most")


def test_the_time_left_of_a_wait_does_not_count_what_came_before_its_first_report(clock):
    waited = WaitPace(epochs(0))
    assert waited.left() is None
    clock[0] = 30.0  # which was compiling, most of it
    waited.note(epochs(1))
    assert waited.left() is None
    clock[0] = 34.0
    waited.note(epochs(3))
    assert waited.seconds_each() == 2.0
    assert waited.left() == 2.0 * 197
    clock[0] = 44.0
    assert waited.left() == 2.0 * 197 - 10.0


def rows(*seconds: float, model: float = 0.0):
    """Updates of 1,000 steps after 20,000, each of so many seconds besides the fit."""
    for i, other in enumerate(seconds, start=1):
        yield {
            "TotalEnvSteps": 20_000 + 1000 * i,
            "Time/Epoch": other + model,
            "Time/Model": model,
        }


def test_the_rest_is_foreseen_after_the_second_update_only():
    forecast = Forecast(tiny("cpo", total_steps=62_000))
    said = [forecast.sentence(row) for row in rows(60.0, 3.0, 9.0)]
    assert said == [None, "about 2 min to go on this machine (40 updates of 3 s)", None]


def simulated(settings, *, other: float, per_row: float) -> float:
    """Seconds of all updates after the second, a fit of every row seen so far among them."""
    steps, fresh, spent = settings.initial_steps, 0, 0.0
    for update in range(1, 10_000):
        steps, fresh = steps + 1000, fresh + 1000
        took = other
        due = settings.ensemble.fit_growth * (min(steps, settings.archive_size) - fresh)
        if fresh >= min(settings.ensemble.fit_every, due or steps):
            rows = min(steps, settings.archive_size)
            epochs = max(settings.ensemble.epochs, settings.ensemble.fit_rows // rows)
            took += per_row * epochs * rows
            fresh = 0
        spent += took if update > 2 else 0.0
        if steps >= settings.total_steps:
            return spent
    raise AssertionError


@pytest.mark.parametrize("fit_every", [1000, 4000])
@pytest.mark.parametrize("total", [60_000, 600_000])
@pytest.mark.parametrize("fit_rows", [0, 400_000])
@pytest.mark.parametrize("growth", [0.0, 0.08])
def test_fits_are_foreseen_by_the_rows_that_they_pass(clock, fit_every, total, fit_rows, growth):
    """Though none may lie in the second update; networks that stop early make no epoch cheap."""
    changes = {"ensemble.fit_every": fit_every, "ensemble.epochs": 4, "archive_size": 80_000}
    changes |= {"ensemble.fit_rows": fit_rows, "ensemble.fit_growth": growth}
    settings = tiny("cmbpo", total_steps=total, initial_steps=20_000, **changes)
    forecast, per_row = Forecast(settings), 1e-5
    for done in (0, 1, 3, 7, 15, 31, 63, 127, 200):
        forecast.wait(epochs(done))
        clock[0] += 0.2 * (min(done, 16) + 1)
    foreseen = [forecast.sentence(row) for row in rows(60.0, 2.0)][1]
    assert foreseen is not None
    expected = simulated(settings, other=2.0, per_row=per_row)
    number, unit = foreseen.split()[1:3]
    seconds = float(number) * {"s": 1, "min": 60, "h": 3600}[unit]
    assert seconds == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("fit_rows", [0, 37_000])
def test_the_rows_of_all_fits_are_those_of_each(fit_rows):
    settings = tiny("cmbpo", total_steps=30_000, archive_size=9_500, ensemble__fit_rows=fit_rows)
    places = range(3_000, 30_000, settings.ensemble.fit_every)
    sizes = [min(place, 9_500) for place in places]
    each = [max(settings.ensemble.epochs, fit_rows // n) * n for n in sizes]
    assert fitted_rows(settings, since=3_000) == sum(each)


def test_first_real_steps_are_no_fit(clock):
    """An algorithm without a model has none, however long its first steps took."""
    settings = tiny("cpo", total_steps=62_000)
    forecast = Forecast(settings)
    for done in (0, 500, 1000):
        forecast.wait(epochs(done))
        clock[0] += 60.0
    said = [forecast.sentence(row) for row in rows(60.0, 3.0)]
    assert said == [None, "about 2 min to go on this machine (40 updates of 3 s)"]


def test_a_run_that_goes_on_has_made_its_first_fit_before_and_is_not_foreseen():
    forecast = Forecast(tiny("cmbpo", total_steps=62_000))
    assert [forecast.sentence(row) for row in rows(60.0, 3.0)] == [None, None]


def test_a_run_that_ends_with_its_second_update_is_not_foreseen():
    forecast = Forecast(tiny("cpo", total_steps=22_000))
    assert [forecast.sentence(row) for row in rows(60.0, 3.0)] == [None, None]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(40.0, "40 s"), (1500.0, "25 min"), (5900.0, "98 min"), (9e3, "2.5 h"), (8e4, "22 h")],
)
def test_durations_are_said_as_roughly_as_they_are_known(seconds, said):
    assert words(seconds) == said


def test_a_short_run_is_not_announced_and_a_long_one_is_before_it_begins():
    task = tasks.get("PointCircle")
    assert expected(tiny("cmbpo", total_steps=2_000), task) is None
    said = expected(preset("cmbpo", "PointCircle-v0"), task)
    assert said is not None
    assert re.fullmatch(r"expected time: \d+ (s|min)( to \d+ (s|min))? on this machine; .*", said)


def test_learning_takes_as_long_as_the_products_of_its_networks():
    task, ant = tasks.get("PointCircle"), preset("cmbpo", "AntSafe-v0")
    small = learning_seconds(preset("cmbpo", "PointCircle-v0"), task, rate=1e11)
    large = learning_seconds(ant, tasks.get("AntSafe"), rate=1e11)
    assert 5.0 < small < 100.0  # 77 s on two cores that make some 1e11 operations a second
    assert 30 * 60 < large < 4 * 3600
    twice = replace(ant, total_steps=2 * ant.total_steps)
    longer = learning_seconds(twice, tasks.get("AntSafe"), rate=1e11)
    assert longer == pytest.approx(2 * large, rel=0.1)
    assert learning_seconds(ant, tasks.get("AntSafe"), rate=5e10) == pytest.approx(2 * large)


@pytest.mark.parametrize("algo", ["cpo", "ppo-lag", "sac-lag"])
def test_every_kind_of_algorithm_has_an_expected_time(algo):
    operations, updates = run_operations(preset(algo, "HopperVelocity-v0"), tasks.get("AntSafe"))
    assert operations > 1e12
    assert updates >= 100


def test_an_environment_of_the_users_own_is_not_stepped_to_guess_its_speed():
    settings = preset("cpo", "mine:Robot-v0")
    own = CustomTask(Cart, name="Cart", cost_limits=(25.0,), settings=EnvSettings(horizon=100))
    said = expected(settings, own)
    assert said is not None
    assert "beside the steps of your environment" in said


@pytest.mark.skipif(not RESULTS.exists(), reason="the runs are not part of the package")
@pytest.mark.parametrize(
    ("run", "start"),
    [
        ("cmbpo-AntSafe/default-seed-710", "default"),
        ("cmbpo-AntCircle/default-seed-710", "default"),
        ("cmbpo-HalfCheetahSafe/default-seed-730", "default"),
        ("cmbpo-AntSafe/paper-seed-0", "paper"),
        ("cmbpo-HalfCheetahSafe/paper-seed-0", "paper"),
    ],
)
def test_a_run_is_expected_to_make_about_as_many_updates_as_runs_made(run, start):
    table = lzma.decompress((RESULTS / run / "progress.csv.xz").read_bytes()).decode()
    last = list(csv.DictReader(table.splitlines()))[-1]
    made, steps = int(last["Train/Epoch"]), int(last["TotalEnvSteps"])
    name = run.split("/")[0].removeprefix("cmbpo-")
    settings = replace(preset("cmbpo", name, start), total_steps=steps)
    updates = run_operations(settings, tasks.get(name))[1]
    assert 0.9 * made < updates < 1.5 * made
