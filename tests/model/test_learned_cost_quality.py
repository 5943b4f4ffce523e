import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from cmbpo.model.learned_cost import CostModel
from cmbpo.model.learned_cost_quality import (
    Quality,
    area_under_curve,
    doubts,
    logistic_regression,
    parts,
)

auc = jax.jit(area_under_curve)
regress = jax.jit(logistic_regression)


def test_the_area_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    value = rng.integers(0, 6, size=80).astype(np.float32)
    positive, counted = rng.uniform(size=80) < 0.3, rng.uniform(size=80) < 0.8
    wins = [
        (a > b) + 0.5 * (a == b)
        for a in value[positive & counted]
        for b in value[~positive & counted]
    ]
    np.testing.assert_allclose(auc(value, positive, counted), np.mean(wins), rtol=1e-6)


def test_there_is_no_area_without_a_pair():
    nothing = jnp.zeros(5, bool)
    assert np.isnan(auc(jnp.arange(5.0), nothing, ~nothing))


@pytest.mark.parametrize(("slope", "shift", "rate_at_0"), [(1.0, 0.0, 0.5), (0.3, 2.0, 0.1)])
def test_the_regression_finds_the_most_likely_slope_and_shift(slope, shift, rate_at_0):
    rng = np.random.default_rng(1)
    said = rng.normal(size=3000).astype(np.float32) * 4.0 + np.log(rate_at_0 / (1 - rate_at_0))
    y = (rng.uniform(size=3000) < 1.0 / (1.0 + np.exp(-(slope * said + shift)))).astype(np.float32)
    counted = rng.uniform(size=3000) < 0.7

    def loss(theta):
        z = (theta[0] * said + theta[1])[counted]
        prior = 0.5 * (4.0 * (theta[0] - 1.0) ** 2 + 0.25 * theta[1] ** 2)
        return np.logaddexp(0.0, z).sum() - (z * y[counted]).sum() + prior

    best = minimize(loss, [1.0, 0.0], tol=1e-10).x
    found = regress(jnp.asarray(said), jnp.asarray(y), jnp.asarray(counted))
    np.testing.assert_allclose([found.slope, found.shift], best, atol=2e-3)
    assert abs(float(found.slope) - slope) < 0.1
    # What the most likely ones predict on the whole is what was seen.
    p = 1.0 / (1.0 + np.exp(-(float(found.slope) * said + float(found.shift))))
    assert p[counted].mean() == pytest.approx(y[counted].mean(), rel=0.01)


def test_the_regression_stays_finite_where_classes_are_apart_or_missing():
    said = jnp.linspace(-30.0, 30.0, 101)
    everything = jnp.ones(101, bool)
    for y in ((said > 0.0).astype(jnp.float32), jnp.zeros(101), jnp.ones(101)):
        found = regress(said, y, everything)
        assert np.isfinite([found.slope, found.shift]).all()
    nothing = regress(said, jnp.zeros(101), ~everything)
    np.testing.assert_allclose([nothing.slope, nothing.shift], [1.0, 0.0])


def cost_model(n_cost: int, *, ends: bool) -> CostModel:
    key = jax.random.key(0)
    return CostModel(3, 2, n_cost=n_cost, ends=ends, hidden=(4,), members=2, key=key)


def seen(*examples: float) -> Quality:
    """A quality of which only the numbers of examples are known."""
    nothing = jnp.zeros(len(examples))
    return Quality(nothing, nothing, nothing, nothing, nothing, jnp.array(examples))


@pytest.mark.parametrize(
    ("n_cost", "ends", "costs", "end"),
    [(2, True, [5.0, 6.0], 7.0), (2, False, [5.0, 6.0], None), (0, True, None, 7.0)],
)
def test_the_parts_are_of_the_costs_and_of_the_end_where_they_are_learned(n_cost, ends, costs, end):
    learned = [*(costs or []), *([end] if ends else [])]
    found_costs, found_end = parts(cost_model(n_cost, ends=ends), seen(*learned))
    assert (found_costs and found_costs.examples.tolist()) == costs
    assert (found_end and float(found_end.examples)) == end


def test_what_is_too_rare_is_said_in_words():
    never, seldom, ends = doubts(
        cost_model(3, ends=True),
        seen(0.0, 400.0, 12.0, 3.0),
        ("fall", "speed", "heat"),
        steps=20_000,
    )
    assert "'fall' was seen in 0 of 20,000 real steps" in never
    assert "'heat' was seen in 12 of 20,000 real steps" in seldom
    assert "3 of 20,000 real steps ended an episode" in ends


def test_enough_is_enough():
    judge = cost_model(1, ends=True)
    assert len(doubts(judge, seen(49.0, 49.0), ("lane",), steps=1000)) == 2
    assert doubts(judge, seen(50.0, 50.0), ("lane",), steps=1000) == []


def test_a_task_that_knows_its_cost_or_never_ends_raises_no_doubt():
    assert doubts(cost_model(0, ends=True), seen(0.0), ("lane",), steps=1000) == []
    assert doubts(cost_model(1, ends=True), seen(70.0, 0.0), ("lane",), steps=1000) == []
    assert doubts(cost_model(1, ends=False), seen(70.0), ("lane",), steps=1000) == []
