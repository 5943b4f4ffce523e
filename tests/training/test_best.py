"""The best policy is the one with the highest return of those that kept every limit."""

import math

import pytest

from cmbpo.training.best import Best
from tests.training.stand_in import START

POLICY = START


def row(ret: float, *costs: float, length: float = 1000.0):
    names = [""] if len(costs) == 1 else [f"/{i}" for i in range(len(costs))]
    return {
        "TotalEnvSteps": 100,
        "Train/Epoch": 1,
        "Metrics/EpRet": ret,
        "Metrics/EpLen": length,
        **{f"Metrics/EpCost{name}": cost for name, cost in zip(names, costs, strict=True)},
        **{f"Constraint/Limit{name}": 10.0 for name in names},
    }


@pytest.mark.parametrize(
    ("seen", "taken"),
    [
        (row(1.0, 10.0), True),
        (row(1.0, 10.1), False),
        (row(1.0, 5.0, length=500.0), True),
        (row(1.0, 5.1, length=500.0), False),
        (row(1.0, 3.0, 10.0), True),
        (row(1.0, 3.0, 11.0), False),
        (row(math.nan, math.nan, length=math.nan), False),
        (row(math.nan, 0.0), False),
        (row(1.0, math.nan), False),
    ],
)
def test_every_cost_counts_by_the_horizon(seen, taken):
    found = Best.none(POLICY).or_of(seen, POLICY, horizon=1000)
    assert bool(found.facts) == taken


def test_of_two_equal_ones_the_earlier_stays_and_of_others_the_better():
    first = Best.none(POLICY).or_of(row(1.0, 3.0), POLICY, horizon=None)
    assert first.or_of(row(1.0, 2.0), POLICY, horizon=None) is first
    assert first.or_of(row(0.5, 2.0), POLICY, horizon=None) is first
    assert first.or_of(row(1.5, 2.0), POLICY, horizon=None).facts["return"] == 1.5


def test_it_comes_back_from_its_state():
    for best in (Best.none(POLICY), Best.none(POLICY).or_of(row(0.1, 3.0), POLICY, horizon=7)):
        again = Best.of_state(best.state())
        assert again.facts == best.facts
        assert again.policy is best.policy
