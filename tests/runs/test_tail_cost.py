"""The mean of the costliest tenth is CVaR by its definition, however many episodes there are."""

import numpy as np
import pytest

from cmbpo.runs.tail_cost import tail_mean


def by_definition(costs: np.ndarray, share: float) -> float:
    """min over η of η + Σ max(0, cᵢ − η) / (share·n); the least is at one of the costs."""
    values = [eta + np.maximum(costs - eta, 0.0).mean() / share for eta in costs]
    return min(values)


@pytest.mark.parametrize("n", [1, 3, 9, 10, 11, 14, 20, 37, 100, 999])
def test_it_is_the_least_of_rockafellar_and_uryasevs_bounds(n):
    rng = np.random.default_rng(n)
    for costs in (rng.exponential(10.0, n), rng.poisson(0.2, n).astype(float)):
        for share in (0.05, 0.1, 0.3, 1.0):
            assert tail_mean(costs, share=share) == pytest.approx(by_definition(costs, share))


def test_of_twenty_episodes_it_is_the_mean_of_two():
    assert tail_mean(np.arange(20.0)) == 18.5


def test_half_an_episode_in_the_tail_counts_half():
    costs = np.append(np.zeros(13), [10.0, 40.0])
    assert tail_mean(costs) == pytest.approx((40.0 + 0.5 * 10.0) / 1.5)


def test_of_few_episodes_it_is_the_costliest_and_of_none_it_is_not_known():
    assert tail_mean(np.array([1.0, 7.0, 3.0])) == pytest.approx(7.0)
    assert np.isnan(tail_mean(np.zeros(0)))
