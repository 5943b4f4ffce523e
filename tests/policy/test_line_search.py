"""A search finds the longest acceptable step, or stays."""

import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.policy.line_search import line_search
from cmbpo.policy.surrogate import PredictedChange


def line(scale) -> PredictedChange:
    return PredictedChange(reward=scale, cost=scale[None], kl=scale**2)


def test_a_search_takes_the_longest_acceptable_step():
    found = line_search(line, lambda p: p.kl <= 0.3, backtrack=0.5, backtracks=5)
    assert bool(found.accepted)
    assert float(found.scale) == 0.5
    assert int(found.backtracks) == 1
    assert float(found.predicted.kl) == 0.25


def test_a_search_that_finds_nothing_stays_where_it_is():
    found = line_search(line, lambda p: p.kl < 0.0, backtrack=0.5, backtracks=5)
    assert not bool(found.accepted)
    assert float(found.scale) == 0.0
    assert int(found.backtracks) == 5
    assert float(found.predicted.reward) == 0.0


@pytest.mark.parametrize("most", [1.0, 0.7, 0.3, 0.05])
def test_no_longer_candidate_would_have_been_acceptable(most):
    found = line_search(line, lambda p: p.reward <= most, backtrack=0.8, backtracks=20)
    candidates = 0.8 ** np.arange(20)
    expected = candidates[candidates <= most].max()
    np.testing.assert_allclose(found.scale, expected, rtol=1e-5)
    np.testing.assert_allclose(found.predicted.cost, [expected], rtol=1e-5)
    assert int(found.backtracks) == np.flatnonzero(candidates <= most)[0]


def test_a_prediction_that_is_not_a_number_is_not_acceptable():
    def broken(scale) -> PredictedChange:
        return PredictedChange(reward=jnp.nan * scale, cost=scale[None], kl=scale)

    found = line_search(broken, lambda p: p.reward >= 0.0, backtrack=0.5, backtracks=3)
    assert not bool(found.accepted)
    assert float(found.predicted.reward) == 0.0
