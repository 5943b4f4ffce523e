"""Statistics against their definitions, against SciPy, and against rliable's own numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, trim_mean

from cmbpo.report.statistics import (
    Crossing,
    bootstrap_interval,
    censored_median,
    cost_rate,
    crossing,
    excess,
    first_window,
    interquartile_mean,
    middle_interval,
    share_interval,
    speed_up,
)

# What rliable 1.2.0 (with pandas < 3) says of SCORES, an array of seeds × tasks each:
#   library.get_interval_estimates(
#       {"a": np.array(scores)}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=50_000)
RLIABLE = {
    "three tasks, four seeds": (0.91666667, 0.6, 1.26666667),
    "one task, ten seeds": (2.95, 2.36666667, 4.16666667),
    "two tasks, five seeds": (7.5, 6.08333333, 11.08333333),
}
SCORES = {
    "three tasks, four seeds": [[0.9, 1.7, 0.2], [1.1, 2.9, 0.3], [0.7, 2.2, 0.9], [1.4, 0.4, 0.5]],
    "one task, ten seeds": [[x] for x in (3.1, 2.9, 0.2, 3.3, 2.7, 3.0, 2.8, 9.5, 3.2, 2.6)],
    "two tasks, five seeds": [[10.0, 3.0], [12.0, 7.0], [11.5, 1.0], [30.0, 2.0], [9.0, 4.5]],
}


@pytest.mark.parametrize("name", SCORES)
def test_the_middle_and_its_interval_are_those_of_rliable(name):
    scores = np.array(SCORES[name])
    middle, low, high = RLIABLE[name]
    np.testing.assert_allclose(interquartile_mean(scores.ravel()), middle, rtol=1e-6)
    found = bootstrap_interval(list(scores.T), resamples=40_000)
    # both are drawn: the tails of so few different values move by one of them
    np.testing.assert_allclose(found, (low, high), rtol=0.02)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_the_interquartile_mean_is_a_trimmed_mean(values):
    scores = np.array(values)
    np.testing.assert_allclose(
        interquartile_mean(scores), trim_mean(scores, 0.25), rtol=1e-9, atol=1e-6
    )


def test_the_interquartile_mean_of_curves_is_taken_at_each_time():
    curves = np.random.default_rng(0).normal(size=(9, 5))
    expected = [trim_mean(curves[:, t], 0.25) for t in range(5)]
    np.testing.assert_allclose(interquartile_mean(curves), expected)


def test_an_interval_of_curves_is_that_of_each_time():
    curves = np.random.default_rng(1).normal(size=(6, 3))
    low, high = bootstrap_interval([curves])
    for t in range(3):
        np.testing.assert_allclose((low[t], high[t]), bootstrap_interval([curves[:, t]]))


DRAWN = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: np.exp(rng.normal(size=shape)),
}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("seeds", [3, 4, 5, 10])
def test_an_interval_covers_as_often_as_it_says_however_few_the_seeds(kind, seeds):
    """Over 2,000 experiments, each of them a column that is resampled in the same way."""
    rng = np.random.default_rng(seeds)
    truth = trim_mean(DRAWN[kind](rng, 400_000), 0.25)
    scores = DRAWN[kind](rng, (seeds, 2000))
    low, high = middle_interval([scores], resamples=400)
    assert 0.92 < ((low <= truth) & (truth <= high)).mean() < 0.985


def test_an_interval_of_several_tasks_covers_too():
    rng = np.random.default_rng(0)
    places = (0.0, 1.0, 3.0)
    truth = trim_mean(np.concatenate([p + rng.normal(size=200_000) for p in places]), 0.25)
    tasks = [place + rng.normal(size=(4, 2000)) for place in places]
    low, high = middle_interval(tasks, resamples=400)
    assert 0.93 < ((low <= truth) & (truth <= high)).mean() < 0.985


def test_the_interval_is_that_of_the_bootstrap_where_seeds_are_many():
    scores = np.random.default_rng(6).normal(size=2000)
    plain, stretched = bootstrap_interval([scores]), middle_interval([scores])
    np.testing.assert_allclose(stretched, plain, atol=1e-3 * np.ptp(plain))


def test_seeds_are_drawn_within_their_own_task():
    far_apart = [np.array([0.0, 0.0, 0.0]), np.array([8.0, 8.0, 8.0])]
    low, high = bootstrap_interval(far_apart, lambda x: x.mean(axis=0))
    assert low == high == 4.0


@pytest.mark.parametrize(("k", "n"), [(0, 4), (3, 4), (4, 4), (7, 20)])
def test_the_interval_of_a_share_is_wilsons(k, n):
    expected = binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(share_interval(k, n), (expected.low, expected.high), atol=1e-4)


def test_a_cost_rate_counts_every_step_alike():
    cost, length = np.array([5.0, 0.0, 1.0]), np.array([1000.0, 1000.0, 50.0])
    rate, _ = cost_rate(cost, length)
    np.testing.assert_allclose(rate, 1000 * 6 / 2050)


def test_with_episodes_of_one_length_the_error_is_the_standard_error():
    cost = np.random.default_rng(2).poisson(8.0, size=40).astype(float)
    rate, error = cost_rate(cost, np.full(40, 1000.0))
    np.testing.assert_allclose((rate, error), (cost.mean(), cost.std(ddof=1) / np.sqrt(40)))


def test_the_error_of_a_ratio_is_that_of_repeated_runs():
    rng = np.random.default_rng(3)
    length = rng.choice([100.0, 1000.0], size=(4000, 60))
    cost = rng.poisson(0.01 * length).astype(float)
    found = np.array([cost_rate(c, n) for c, n in zip(cost, length, strict=True)])
    np.testing.assert_allclose(found[:, 1].mean(), found[:, 0].std(), rtol=0.05)


def test_regret_and_share_above_the_limit_by_hand():
    # 0–20k at 30 per 1000 steps, 20k–40k at 5, the rest of 10k steps at 12
    steps = np.array([20_000.0, 40_000.0, 50_000.0])
    cumulative = np.cumsum([600.0, 100.0, 120.0])
    found = excess(steps, cumulative, limit=10.0)
    np.testing.assert_allclose((found.regret, found.share), (400.0 + 20.0, 30 / 50))


def test_small_and_large_updates_have_the_same_regret():
    rng = np.random.default_rng(4)
    per_step = (rng.random(100_000) < np.repeat([0.03, 0.002], 50_000)).astype(float)
    total = np.cumsum(per_step)
    found = []
    for update in (500, 20_000):
        ends = np.arange(update, 100_001, update)
        found.append(excess(ends.astype(float), total[ends - 1], limit=10.0))
    np.testing.assert_allclose(found[0].regret, found[1].regret)
    assert found[0].share == found[1].share


def test_a_run_exactly_at_the_limit_has_no_regret():
    steps = np.arange(1000.0, 100_001.0, 1000.0)
    found = excess(steps, 0.01 * steps, limit=10.0)
    assert found.regret == 0.0
    assert found.share == 0.0


def first_window_by_definition(returns, cost, length, whole, level, limit):
    for i in range(20, len(returns) + 1):
        w = slice(i - 20, i)
        safe = 1000 * cost[w].sum() / length[w].sum() <= limit
        if returns[w].mean() >= level and safe and whole[w].all():
            return i - 1
    return None


@pytest.mark.parametrize("seed", range(20))
def test_the_first_window_is_found_as_defined(seed):
    rng = np.random.default_rng(seed)
    n = 120
    returns = np.linspace(0, 3000, n) + rng.normal(0, 300, n)
    length = rng.choice([300.0, 1000.0], n)
    cost = rng.poisson(10 * length / 1000).astype(float)
    whole = np.arange(n) % 50 != rng.integers(50)
    expected = first_window_by_definition(returns, cost, length, whole, 2000, 9.5)
    assert first_window(returns, cost, length, whole, level=2000.0, limit=9.5) == expected


def episodes(returns, cost):
    n = len(returns)
    return {
        "env_steps": 1000.0 * np.arange(1, n + 1),
        "return": np.array(returns, float),
        "cost": np.array(cost, float),
        "length": np.full(n, 1000.0),
        "terminated": np.zeros(n),
    }


def cross(table, *, level):
    return crossing(
        table,
        table["env_steps"],
        np.cumsum(table["cost"]),
        level=level,
        limit=10.0,
        num_envs=1,
        horizon=1000.0,
    )


def test_episodes_that_were_cut_short_do_not_count_and_falls_do():
    table = episodes([9] * 60, [0] * 60)
    table["length"][:30] = 400.0
    assert cross(table, level=9.0).env_steps == 50_000
    table["terminated"][:30] = 1.0
    assert cross(table, level=9.0).env_steps == 20_000


def test_a_crossing_counts_the_cost_so_far_and_judges_what_follows():
    table = episodes([0] * 30 + [100] * 150, [20] * 30 + [4, 6] * 75)
    found = cross(table, level=100.0)
    assert found.reached
    assert found.env_steps == 50_000
    assert found.cumulative_cost == 30 * 20 + 20 * 5
    assert (found.next_cost, found.next_return, found.next_steps) == (5.0, 100.0, 100_000)
    np.testing.assert_allclose(found.next_error, np.std([4, 6] * 50, ddof=1) / 10)
    assert found.holds(10.0) is True
    assert found.holds(4.0) is False
    # two standard errors are 0.2
    assert [found.holds(limit) for limit in (5.19, 4.81)] == [None, None]
    assert (found.holds(5.21), found.holds(4.79)) == (True, False)
    assert replace(found, next_error=0.0).holds(5.0) is True, "at most the limit"


def test_a_crossing_before_the_first_row_of_progress_has_cost_its_share():
    """20 episodes cost 5 each; the one row of progress comes after 100 of them, at 500."""
    table = episodes([9] * 100, [5] * 100)
    ends, total = np.array([100_000.0]), np.array([500.0])
    found = crossing(table, ends, total, level=9.0, limit=10.0, num_envs=1, horizon=1000.0)
    assert (found.env_steps, found.cumulative_cost) == (20_000, 100.0)
    assert found.next_cost == pytest.approx(5.0)


def test_a_run_that_never_arrives_is_censored_where_it_ended():
    table = episodes([0] * 40, [1] * 40)
    found = cross(table, level=1.0)
    assert (found.reached, found.env_steps, found.cumulative_cost) == (False, 40_000, 40)
    assert found.holds(10.0) is None


def test_a_crossing_at_the_very_end_has_nothing_to_judge():
    table = episodes([5] * 20, [0] * 20)
    found = cross(table, level=5.0)
    assert found.reached
    assert found.next_steps == 0.0
    assert found.holds(10.0) is None


def test_what_follows_is_of_its_own_steps_however_many_copies_there_are():
    # 100 copies whose episodes end together; from the crossing on every step costs 0.05
    ends = np.repeat(100_000.0 * np.arange(1, 6), 100)
    late = ends > 100_000
    table = {
        "env_steps": ends,
        "return": np.full(500, 9.0),
        "cost": np.where(late, 50.0, 0.0),
        "length": np.full(500, 1000.0),
        "terminated": np.zeros(500),
    }
    steps = np.arange(0.0, 500_001, 10_000)
    total = 0.05 * np.maximum(steps - 100_000, 0.0)
    found = crossing(table, steps, total, level=9.0, limit=10.0, num_envs=100, horizon=1000.0)
    assert (found.env_steps, found.next_steps) == (100_000, 100_000)
    assert found.next_cost == pytest.approx(50.0)
    assert found.holds(10.0) is False


@pytest.mark.parametrize(
    ("values", "reached", "expected"),
    [
        ([1, 2, 3], [1, 1, 1], (2, 2)),
        ([1, 2, 30, 40], [1, 1, 1, 1], (16, 16)),
        ([1, 2, 9], [1, 1, 0], (2, 2)),
        ([1, 9, 9], [1, 0, 0], (9, np.inf)),
        ([1, 2, 3], [1, 0, 1], (2, 3)),
        ([1, 9], [1, 0], (5, np.inf)),
        ([9], [0], (9, np.inf)),
        ([], [], (0, np.inf)),
    ],
)
def test_the_median_counts_censored_seeds(values, reached, expected):
    assert censored_median(np.array(values, float), np.array(reached, bool)) == expected


@given(st.lists(st.tuples(st.floats(1, 100), st.booleans(), st.floats(0, 100)), min_size=1))
def test_the_true_median_lies_within_the_bounds(seeds):
    true = np.array([value for value, _, _ in seeds])
    reached = np.array([r for _, r, _ in seeds])
    seen = np.where(reached, true, np.minimum(true, [cut for _, _, cut in seeds]))
    low, high = censored_median(seen, reached)
    assert low <= np.median(true) * (1 + 1e-12)
    assert np.median(true) <= high * (1 + 1e-12)


def test_a_speed_up_is_a_lower_bound_where_the_baseline_did_not_arrive():
    assert speed_up((1e5, 1e5), (2e6, 2e6)) == (20.0, 20.0)
    assert speed_up((5e5, 5e5), (1e7, np.inf)) == (20.0, np.inf)
    assert speed_up((5e5, np.inf), (1e7, np.inf)) == (0.0, np.inf)


def test_without_a_crossing_nothing_is_judged():
    assert Crossing(False, 1.0, 1.0).holds(10.0) is None
