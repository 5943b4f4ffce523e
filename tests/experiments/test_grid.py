"""Grids as a user types them: values, combinations, and mistakes."""

import pytest

from cmbpo.experiments.grid import axes, combinations


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("trust-region.max-kl=0.01,2e-2", [0.01, 0.02]),
        ("policy.hidden=64x64,128,32x16x8", [(64, 64), 128, (32, 16, 8)]),
        ("policy.hidden=(64,64),[128]", [(64, 64), [128]]),
        ("lagrangian.gains=0.1x0.01x0,1x.5x1e-3", [(0.1, 0.01, 0), (1, 0.5, 0.001)]),
        ("cost_limit=0x10", [(0, 10)]),
        ("policy.normalise=true, false", [True, False]),
        ("first_episode=none,100", [None, 100]),
        ("trust_region.step=cpo,barrier", ["cpo", "barrier"]),
        ("env.cost_key=('heat','spill'),heat", [("heat", "spill"), "heat"]),
    ],
)
def test_commas_part_values_and_a_value_may_be_several_numbers(typed, values):
    (found,) = axes([typed]).values()
    assert found == values


def test_every_combination_is_there_once():
    assert combinations(["batch_size=1,2", "seed=3,4"]) == [
        {"batch_size": 1, "seed": 3},
        {"batch_size": 1, "seed": 4},
        {"batch_size": 2, "seed": 3},
        {"batch_size": 2, "seed": 4},
    ]


def test_without_a_grid_there_is_one_point():
    assert combinations([]) == [{}]


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["batch_size"], "--grid 'batch_size'; allowed: KEY=VALUE,VALUE"),
        (["batchsize=1"], "unknown setting 'batchsize'; there are: batch_size"),
        (["policy=1"], "policy is a group of settings"),
        (["batch-size=1", "batch_size=2"], "--grid batch_size is given twice"),
    ],
)
def test_a_mistake_is_named(typed, sentence):
    with pytest.raises(ValueError, match=sentence):
        axes(typed)
