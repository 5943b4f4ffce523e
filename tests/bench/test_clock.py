"""Seconds are counted to the phase they were spent in."""

import pytest

from cmbpo import columns
from cmbpo.bench import clock as timing
from cmbpo.bench.clock import SIMULATOR, UPDATE, Clock, TimedTrainer
from cmbpo.tasks.point_circle import PointCircle
from tests.tiny import tiny


def test_a_clock_tells_work_from_waiting(monkeypatch):
    """By a clock of its own: the machine of a test may be busy."""
    now = {"cpu": 0.0, "wall": 0.0}
    monkeypatch.setattr(timing.time, "process_time", lambda: now["cpu"])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now["wall"])
    clock = Clock()
    for _ in range(2):
        with clock.measure("waiting"):
            now["wall"] += 3.0
        with clock.measure("working"):
            now["wall"] += 1.0
            now["cpu"] += 2.0
    assert clock.wall == {"waiting": 6.0, "working": 2.0}
    assert clock.cpu == {"waiting": 0.0, "working": 4.0}


@pytest.mark.slow
def test_a_run_is_timed_by_its_phases_with_the_simulator_inside_the_first():
    trainer = TimedTrainer(tiny("trpo", policy__normalise=False), PointCircle())
    row = trainer.step()
    wall = trainer.clock.wall
    assert set(wall) == {SIMULATOR, UPDATE, *trainer.phases}
    assert 0.0 < wall[SIMULATOR] < wall[columns.COLLECT] < wall[UPDATE]
    assert wall[columns.POLICY] >= float(row[columns.POLICY]) > 0.0
    trainer.reset_clock()
    assert not trainer.clock.wall
    trainer.step()
    assert set(trainer.clock.wall) == set(wall)
