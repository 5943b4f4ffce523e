"""The benchmark of a CMBPO update, small."""

import jax
import numpy as np
import pytest

from cmbpo import tasks
from cmbpo.bench import update
from cmbpo.networks import Policy
from tests.tiny import tiny


@pytest.mark.slow
def test_every_phase_has_a_time_and_a_floor():
    rows, said = update.measure(tiny("cmbpo"), updates=2)
    assert said.startswith("100 real steps an update")
    assert [row["phase"] for row in rows] == [
        "collect",
        "model",
        "imagine",
        "advantage",
        "policy",
        "critic",
        "update",
    ]
    seconds = np.array([row["seconds"] for row in rows], float)
    floor = np.array([row["floor"] for row in rows], float)
    assert (seconds > 0.0).all()
    assert (floor > 0.0).all()
    assert [row["over floor"] for row in rows] == pytest.approx(list(seconds / floor))
    assert floor[-1] == pytest.approx(floor[:-1].sum())
    assert seconds[-1] > seconds[:-1].sum()


def test_weights_are_those_of_the_networks():
    policy = Policy(5, 2, hidden=(7, 6), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(0))
    assert update.weights(5, 7, 6, 2) == sum(f.weight.size for f in policy.net.layers)


def test_rates_are_positive_and_memory_is_told():
    task = tasks.get("PointCircle")
    assert update.simulator_rate(task, 2, steps=3, rounds=1) > 0.0
    assert np.isfinite(update.matrix_rate("default", rounds=1))
    assert "GiB" in update.memory()
