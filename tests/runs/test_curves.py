"""The picture of a run is drawn from what the run wrote down."""

import numpy as np
import pytest

from cmbpo.runs.curves import _cost_limits, plot_run, running_mean
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings


@pytest.fixture
def run(tmp_path):
    with Run.create(TrainSettings(log_dir=str(tmp_path))) as run:
        yield run


def episode(i, **more):
    length = 1000 if i % 3 else 400
    row = {"env_steps": 1000 * i, "return": 3.0 * i, "cost": 40.0 / i, "length": length}
    return row | {"terminated": length < 1000} | more


def test_the_running_mean_is_the_mean_of_the_last_entries():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=50), rng.uniform(1, 2, size=50)
    mean = running_mean(values, weights, 7)
    for i in range(50):
        last = slice(max(i - 6, 0), i + 1)
        np.testing.assert_allclose(mean[i], values[last].sum() / weights[last].sum())


def test_a_run_with_one_cost_is_drawn(run):
    run.record_episodes([episode(i) for i in range(1, 60)])
    path = plot_run(run.folder)
    assert path == run.folder / "curves.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_run_with_several_costs_is_drawn(run):
    run.record_episodes([episode(i, cost_wall=1.0 * i, cost_fall=2.0) for i in range(1, 9)])
    assert plot_run(run.folder).exists()


def test_a_run_without_finished_episodes_has_empty_curves(run):
    assert plot_run(run.folder).exists()


def test_the_limit_is_what_the_run_was_held_to(run, tmp_path):
    assert _cost_limits(run.folder, run.config) == []
    run.record({"TotalEnvSteps": 1, "Constraint/Limit/wall": 10.0, "Constraint/Limit/fall": 5.0})
    assert _cost_limits(run.folder, run.config) == [10.0, 5.0]
    with Run.create(TrainSettings(log_dir=str(tmp_path), cost_limit=(7.0,))) as other:
        assert _cost_limits(other.folder, other.config) == [7.0]
