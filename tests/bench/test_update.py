"""The benchmark of a CMBPO update, small."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from cmbpo import tasks
from cmbpo.bench import update
from cmbpo.networks import Policy
from cmbpo.settings.presets import preset


def test_every_phase_has_a_time_and_a_floor():
    s = preset("cmbpo", "PointCircle-v0")
    tiny = replace(
        s,
        num_envs=5,
        batch_size=300,
        initial_steps=200,
        archive_size=1000,
        policy=replace(s.policy, hidden=(8,)),
        critic=replace(s.critic, hidden=(8,), batch_size=100, epochs=1),
        ensemble=replace(
            s.ensemble, hidden=(8,), members=2, elites=1, batch_size=64, epochs=1, fit_every=50
        ),
        rollout=replace(s.rollout, lanes=20, probe=10),
        real_share=replace(s.real_share, min_real=50, max_real=50),
    )
    rows, said = update.measure(tiny, updates=2)
    assert said.startswith("50 real steps an update")
    assert [row["phase"] for row in rows] == [*update.PHASES, "Update"]
    seconds = np.array([row["seconds"] for row in rows], float)
    floor = np.array([row["floor"] for row in rows], float)
    assert (seconds[:-1] > floor[:-1]).all()
    assert (floor > 0.0).all()
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
