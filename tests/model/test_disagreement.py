import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cmbpo.model.disagreement import disagreement, limits_from, rank_correlation, robust_mean
from cmbpo.model.ensemble import Prediction


def by_definition(mean: np.ndarray, variance: np.ndarray) -> float:
    """The mean over dimensions of KL(Pₘ ‖ Pₙ), over all ordered pairs."""
    M, dims = mean.shape
    total = 0.0
    for m in range(M):
        for n in range(M):
            for d in range(dims):
                total += 0.5 * (
                    np.log(variance[n, d] / variance[m, d])
                    + (variance[m, d] + (mean[m, d] - mean[n, d]) ** 2) / variance[n, d]
                    - 1.0
                )
    return total / (M * (M - 1)) / dims


def random_prediction(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), np.exp(2.0 * rng.normal(size=shape))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("members", [2, 3, 7])
def test_it_is_the_mean_over_all_ordered_pairs(members):
    for seed in range(5):
        mean, variance = random_prediction(seed, members, 4)
        found = disagreement(Prediction(jnp.asarray(mean), jnp.asarray(variance)))
        np.testing.assert_allclose(found, by_definition(mean, variance), rtol=1e-10)


def test_leading_axes_are_separate_predictions():
    mean, variance = (jnp.asarray(x, jnp.float32) for x in random_prediction(0, 3, 2, 5, 4))
    whole = disagreement(Prediction(mean, variance))
    assert whole.shape == (2, 5)
    one = disagreement(Prediction(mean[:, 1, 2], variance[:, 1, 2]))
    np.testing.assert_allclose(whole[1, 2], one, rtol=1e-5)


def test_copies_of_one_member_disagree_by_exactly_nothing():
    mean, variance = (np.tile(x.astype(np.float32), (7, 1)) for x in random_prediction(1, 1, 30))
    found = jax.jit(disagreement)(Prediction(jnp.asarray(1e3 * mean), jnp.asarray(variance)))
    assert found == 0.0


def test_units_do_not_matter():
    mean, variance = random_prediction(2, 7, 3)
    scale = np.array([1e-3, 1.0, 1e4])
    found = disagreement(Prediction(jnp.asarray(mean), jnp.asarray(variance)))
    scaled = disagreement(Prediction(jnp.asarray(mean * scale), jnp.asarray(variance * scale**2)))
    np.testing.assert_allclose(scaled, found, rtol=1e-4)


def test_single_precision_resolves_members_that_almost_agree():
    rng = np.random.default_rng(3)
    mean = (100.0 + 1e-2 * rng.normal(size=(7, 20))).astype(np.float32)
    variance = np.exp(1e-3 * rng.normal(size=(7, 20))).astype(np.float32)
    expected = by_definition(mean.astype(float), variance.astype(float))
    found = disagreement(Prediction(jnp.asarray(mean), jnp.asarray(variance)))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


AS_USERS_DO = {
    "xla_cpu_use_fusion_emitters": True,
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
}
"""How a program is compiled where the tests' own settings are not in force."""


@pytest.mark.parametrize(("members", "rows", "dims"), [(2, 5, 3), (3, 4096, 4), (7, 500, 28)])
def test_a_compiled_program_says_the_same_at_every_size(members, rows, dims):
    """jaxlib 0.10.2 compiles some sums over large arrays wrongly on a CPU (as in jax#39103)."""
    rng = np.random.default_rng(5)
    mean = rng.normal(size=(1, rows, dims)) + 0.02 * rng.normal(size=(members, rows, dims))
    log = rng.normal(size=(1, rows, dims)) + 0.05 * rng.normal(size=(members, rows, dims))
    mean, variance = mean.astype(np.float32), np.exp(log).astype(np.float32)
    some = rng.integers(0, rows, 20)
    expected = [by_definition(mean[:, i].astype(float), variance[:, i].astype(float)) for i in some]
    prediction = Prediction(jnp.asarray(mean), jnp.asarray(variance))
    program = jax.jit(disagreement).lower(prediction).compile(compiler_options=AS_USERS_DO)
    found = program(prediction)
    np.testing.assert_allclose(found[some], expected, rtol=1e-3)


def test_the_robust_mean_counts_what_it_should_and_outliers_cannot_rule_it():
    values = jnp.concatenate([jnp.ones(98), jnp.array([1e30, jnp.inf]), jnp.full(50, 7.0)])
    counted = jnp.arange(150) < 100
    assert robust_mean(values, counted) == 1.0
    even = jnp.linspace(0.0, 1.0, 150)
    np.testing.assert_allclose(
        robust_mean(even, counted, quantile=1.0), even[:100].mean(), rtol=1e-5
    )


def test_the_limit_follows_from_the_first_horizon():
    limits = limits_from(jnp.array(0.02), first_horizon=5)
    np.testing.assert_allclose([limits.reference, limits.accumulated], [0.02, 0.1], rtol=1e-6)


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(4)
    x = rng.normal(size=200)
    y = x**3 + rng.normal(size=200)
    counted = rng.random(200) < 0.6
    found = rank_correlation(
        jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.asarray(counted)
    )
    expected = np.asarray(scipy.stats.spearmanr(x[counted], y[counted]))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
