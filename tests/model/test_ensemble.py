from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cmbpo.data import archive as archives
from cmbpo.data.archive import Archive
from cmbpo.data.data_split import holdout_rows
from cmbpo.model.disagreement import disagreement, reliability
from cmbpo.model.ensemble import (
    MOST_GROWTH,
    Ensemble,
    begin_ensemble,
    fit_ensemble,
    forward,
    loss,
    moved,
    renormalise,
)
from cmbpo.model.ensemble import predict as predict_all
from cmbpo.model.ensemble_fit import FitConfig, optimiser
from cmbpo.networks import Gaussian, Normaliser
from cmbpo.trajectory import Steps

N_OBS, N_ACT = 3, 2
DRIFT = np.array([[-0.1, 0.2, 0.0], [0.0, -0.2, 0.1], [0.05, 0.0, -0.1]], np.float32)
PUSH = np.array([[0.3, 0.0], [0.0, 0.2], [0.1, -0.1]], np.float32)
FIT = FitConfig(learning_rate=3e-3, batch_size=256)


def linear_system(rows: int, *, seed: int, capacity: int = 4096, scale: float = 1.0) -> Archive:
    """Steps of Δs = Ds + Pa with reward s₁ + a₁, of the action clipped to [−1, 1]."""
    rng = np.random.default_rng(seed)
    obs = (scale * rng.normal(size=(rows, N_OBS))).astype(np.float32)
    act = (1.5 * rng.uniform(-1.0, 1.0, size=(rows, N_ACT))).astype(np.float32)
    clipped = np.clip(act, -1.0, 1.0)
    steps = Steps(
        obs=jnp.asarray(obs),
        act=jnp.asarray(act),
        next_obs=jnp.asarray(obs + obs @ DRIFT.T + clipped @ PUSH.T),
        reward=jnp.asarray(obs[:, 0] + clipped[:, 0]),
        cost=jnp.zeros((rows, 1)),
        terminated=jnp.zeros(rows, bool),
        last=jnp.zeros(rows, bool),
        valid=jnp.ones(rows, bool),
    )
    behaviour = Gaussian(jnp.zeros((rows, N_ACT)), jnp.zeros((rows, N_ACT)))
    return archives.add(archives.empty(capacity, N_OBS, N_ACT, 1), steps, behaviour, 0)


def untrained() -> Ensemble:
    return Ensemble(N_OBS, N_ACT, hidden=(32, 32), members=3, elites=2, key=jax.random.key(7))


traces = []


def whole_fit(ensemble, opt_state, archive, fit=FIT, *, max_epochs, key):
    begun = begin_ensemble(ensemble, opt_state, archive, key=key)
    return fit_ensemble(ensemble, begun, archive, fit, max_epochs=max_epochs)


def traced_fit(*args, **kwargs):
    traces.append(kwargs)
    return whole_fit(*args, **kwargs)


# One program for the whole file.
fit = jax.jit(traced_fit)
predict = jax.jit(predict_all)


@pytest.fixture(scope="module")
def fitted():
    archive = linear_system(1500, seed=0)
    ensemble = untrained()
    start = optimiser(ensemble.members)
    ensemble, report = fit(ensemble, start, archive, max_epochs=120, key=jax.random.key(0))
    return archive, ensemble, report.state.best[1], report


def numpy_outputs(net, x):
    for layer in net.layers[:-1]:
        x = x @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        x = x / (1.0 + np.exp(-x))
    x = x @ np.asarray(net.layers[-1].weight).T + np.asarray(net.layers[-1].bias)
    return np.split(x, 2, axis=-1)


def one_network(ensemble: Ensemble, member: int = 0):
    return jax.tree.map(lambda x: x[member], ensemble.members)


@pytest.mark.usefixtures("x64")
def test_the_loss_is_its_definition():
    net = one_network(untrained())
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(50, N_OBS + N_ACT)), rng.normal(size=(50, N_OBS + 1))
    mean, raw = numpy_outputs(net, x)
    error = (mean - y) ** 2
    gap = (np.exp(raw) - error) ** 2
    expected = error.mean() + 0.05 * (error.mean() / gap.mean()) * gap.mean()
    expected += 0.05 * (raw**2).mean()
    squares = [0.5 * (np.asarray(layer.weight) ** 2).sum() for layer in net.layers]
    expected += 0.01 * (0.25 * squares[0] + 0.5 * squares[1] + squares[2])
    found = jax.jit(partial(loss, weight_decay=0.01))(net, jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_the_gradient_of_the_loss_holds_the_ratio_and_the_targets_of_the_variance_fixed():
    """With w = MSE/VL fixed and e = (μ − y)²: 2(μ − y) for μ; 0.1 (w (σ² − e) σ² + log σ²)."""
    net = one_network(untrained())
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(50, N_OBS + N_ACT)), rng.normal(size=(50, N_OBS + 1))
    mean, raw = numpy_outputs(net, x)
    error = (mean - y) ** 2
    ratio = error.mean() / ((np.exp(raw) - error) ** 2).mean()
    by_mean = 2.0 * (mean - y) / mean.size
    by_raw = 0.1 * (ratio * (np.exp(raw) - error) * np.exp(raw) + raw) / raw.size
    expected = np.concatenate([by_mean, by_raw], axis=1).sum(axis=0)
    found = jax.jit(jax.grad(loss))(net, jnp.asarray(x), jnp.asarray(y)).layers[-1].bias
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_known_linear_system_is_learned(fitted):
    _, ensemble, _, report = fitted
    assert float(report.holdout_error.max()) < 5e-3
    fresh = linear_system(500, seed=99)
    prediction = predict(ensemble, fresh.obs[:500], fresh.act[:500])
    truth = np.concatenate([fresh.next_obs - fresh.obs, fresh.reward[:, None]], axis=1)[:500]
    residual = np.asarray(prediction.mean) - truth[None]
    assert np.sqrt((residual**2).mean()) < 0.06 * truth.std()


def test_predictions_do_not_change_beyond_the_bounds_of_actions(fitted):
    _, ensemble, _, _ = fitted
    inside = predict(ensemble, jnp.ones(N_OBS), jnp.array([1.0, -1.0]))
    outside = predict(ensemble, jnp.ones(N_OBS), jnp.array([3.0, -2.0]))
    np.testing.assert_array_equal(inside.mean, outside.mean)
    assert inside.mean.shape == (3, N_OBS + 1)


def test_one_program_serves_archives_of_all_sizes(fitted):
    _, ensemble, opt_state, _ = fitted
    before = len(traces)
    for rows, epochs in ((40, 2), (700, 1), (4096, 3)):
        archive = linear_system(rows, seed=rows)
        _, report = fit(ensemble, opt_state, archive, max_epochs=epochs, key=jax.random.key(1))
        assert int(report.epochs.max()) == epochs
    assert len(traces) == before


def test_the_report_is_of_the_weights_that_come_back(fitted):
    archive, ensemble, _, report = fitted
    rows, used = holdout_rows(archive)
    rows = rows[used]
    truth = np.concatenate(
        [archive.next_obs[rows] - archive.obs[rows], archive.reward[rows][:, None]], axis=1
    )
    prediction = predict(ensemble, archive.obs[rows], archive.act[rows])
    error = (np.asarray(prediction.mean) - truth[None]) / np.asarray(ensemble.target.std)
    np.testing.assert_allclose((error**2).mean(axis=(1, 2)), report.holdout_error, rtol=1e-3)
    best = np.argsort(report.holdout_error)[:2]
    np.testing.assert_array_equal(ensemble.elites, best)


def test_weights_that_only_got_worse_are_not_kept(fitted):
    archive, ensemble, opt_state, report = fitted
    wild = jax.jit(partial(whole_fit, fit=replace(FIT, learning_rate=10.0, patience=3)))
    after, worse = wild(ensemble, opt_state, archive, max_epochs=20, key=jax.random.key(2))
    np.testing.assert_array_equal(worse.epochs, 3)
    np.testing.assert_allclose(worse.holdout_error, report.holdout_error, rtol=1e-3)
    for old, new in zip(
        jax.tree.leaves(ensemble.members), jax.tree.leaves(after.members), strict=True
    ):
        np.testing.assert_allclose(old, new, rtol=1e-4, atol=1e-5)


def test_networks_start_different():
    weights = untrained().members.layers[0].weight
    for m in range(3):
        for n in range(m):
            assert np.abs(weights[m] - weights[n]).mean() > 0.1


def test_networks_that_start_alike_see_the_rows_in_orders_of_their_own(fitted):
    archive, *_ = fitted
    ensemble = untrained()
    alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), ensemble.members)
    ensemble = eqx.tree_at(lambda e: e.members, ensemble, alike)
    start = optimiser(ensemble.members)
    ensemble, _ = fit(ensemble, start, archive, max_epochs=2, key=jax.random.key(9))
    prediction = predict(ensemble, archive.obs[:100], archive.act[:100])
    assert np.ptp(np.asarray(prediction.mean), axis=0).mean() > 1e-4


def test_networks_differ_and_disagree_more_where_there_was_no_data(fitted):
    archive, ensemble, _, _ = fitted
    seen = predict(ensemble, archive.obs[:500], archive.act[:500])
    far = predict(ensemble, 10.0 * archive.obs[:500], archive.act[:500])
    for prediction in (seen, far):
        for m in range(3):
            for n in range(m):
                assert np.abs(prediction.mean[m] - prediction.mean[n]).max() > 1e-3
    ratio = disagreement(far).mean() / disagreement(seen).mean()
    assert ratio > 20.0


def test_disagreement_ranks_true_errors_in_and_beyond_the_data(fitted):
    _, ensemble, _, _ = fitted
    wider = linear_system(1500, seed=11, scale=3.0)
    found = jax.jit(reliability)(ensemble, wider)
    rows, used = (np.asarray(x) for x in holdout_rows(wider))
    rows = rows[used]
    prediction = predict(ensemble, wider.obs[rows], wider.act[rows])
    truth = np.concatenate([wider.next_obs - wider.obs, wider.reward[:, None]], axis=1)[rows]
    error = (np.asarray(prediction.mean).mean(axis=0) - truth) / np.asarray(ensemble.target.std)
    value = np.asarray(disagreement(prediction))
    expected = np.asarray(scipy.stats.spearmanr(value, (error**2).mean(axis=1)))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert float(found) > 0.5


def fitted_once(ensemble: Ensemble) -> Ensemble:
    """The same networks, whose weights count as learned."""
    return eqx.tree_at(lambda e: e.fits, ensemble, jnp.array(1))


NEW_INPUT = Normaliser(jnp.linspace(-1.0, 1.0, 5), jnp.linspace(0.6, 1.8, 5))
NEW_TARGET = Normaliser(jnp.linspace(0.5, -0.5, 4), jnp.linspace(1.5, 0.7, 4))


def test_other_units_leave_predictions_as_they_were():
    ensemble = fitted_once(untrained())
    changed = renormalise(ensemble, NEW_INPUT, NEW_TARGET)
    np.testing.assert_array_equal(changed.target.std, NEW_TARGET.std)
    obs, act = jnp.array([0.3, -2.0, 1.0]), jnp.array([0.5, -0.2])
    before, after = predict(ensemble, obs, act), predict(changed, obs, act)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.variance, before.variance, rtol=1e-4)


def test_an_ensemble_never_fitted_keeps_its_weights_in_other_units():
    ensemble = untrained()
    changed = renormalise(ensemble, NEW_INPUT, NEW_TARGET)
    for old, new in zip(
        jax.tree.leaves(ensemble.members), jax.tree.leaves(changed.members), strict=True
    ):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(changed.input.std, NEW_INPUT.std)


def test_weights_of_an_input_that_was_constant_do_not_blow_up():
    ensemble = fitted_once(untrained())
    ensemble = eqx.tree_at(lambda e: e.input.std, ensemble, jnp.full(5, 1e-4))
    changed = renormalise(ensemble, Normaliser(jnp.zeros(5), jnp.ones(5)), ensemble.target)
    np.testing.assert_allclose(
        changed.members.layers[0].weight, MOST_GROWTH * ensemble.members.layers[0].weight
    )


def test_no_state_is_imagined_farther_than_eight_deviations_from_the_data():
    ensemble = eqx.tree_at(
        lambda e: e.input,
        untrained(),
        Normaliser(jnp.array([1.0, 0.0, -1.0, 9.0, 9.0]), jnp.array([0.5, 1.0, 2.0, 9.0, 9.0])),
    )
    obs = jnp.array([[1.0, 2.0, 3.0], [-2.0, 0.0, 0.0]])
    delta = jnp.array([[10.0, 1.0, -30.0], [-2.0, -9.0, 0.5]])
    expected = [[5.0, 3.0, -17.0], [-3.0, -8.0, 0.5]]
    np.testing.assert_allclose(moved(ensemble, obs, delta), expected)


def test_one_impact_does_not_rule_the_hold_out_error(fitted):
    archive, ensemble, opt_state, report = fitted
    held, _ = holdout_rows(archive)
    struck = archive.next_obs.at[held[0], 1].add(1000.0)
    struck = eqx.tree_at(lambda a: a.next_obs, archive, struck)
    # Unbounded it is 39 deviations away, which alone makes a mean square of 1.3.
    _, later = fit(ensemble, opt_state, struck, max_epochs=3, key=jax.random.key(3))
    rest, alone = float(report.holdout_error.max()), 8.0**2 / (N_OBS + 1) / 300
    assert float(later.holdout_error.max()) < rest + 2 * alone


def test_a_batch_goes_through_a_network_as_its_rows_do():
    net = one_network(untrained())
    x = jax.random.normal(jax.random.key(0), (20, N_OBS + N_ACT))
    np.testing.assert_allclose(forward(net, x), jax.vmap(net)(x), rtol=1e-4, atol=1e-5)


def test_data_on_another_scale_do_not_throw_a_fitted_ensemble_off(fitted):
    _, ensemble, opt_state, _ = fitted
    wider = linear_system(2000, seed=5, scale=1.5)
    after, later = fit(ensemble, opt_state, wider, max_epochs=3, key=jax.random.key(3))
    assert float(later.holdout_error.max()) < 0.03
    np.testing.assert_allclose(after.input.std[:N_OBS], 1.5, rtol=0.1)
    assert int(after.fits) == int(ensemble.fits) + 1


@pytest.mark.slow
def test_networks_side_by_side_learn_what_they_learn_one_by_one(fitted, monkeypatch):
    archive, *_ = fitted
    ensemble = untrained()
    start = optimiser(ensemble.members)

    def learn():
        jitted = jax.jit(partial(whole_fit, fit=FIT))
        return jitted(ensemble, start, archive, max_epochs=3, key=jax.random.key(8))[1]

    one_by_one = learn()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    side_by_side = learn()
    np.testing.assert_allclose(side_by_side.holdout_error, one_by_one.holdout_error, rtol=0.02)
    np.testing.assert_array_equal(side_by_side.epochs, one_by_one.epochs)


def test_an_archive_too_large_to_walk_is_refused():
    ensemble = untrained()
    archive = jax.eval_shape(lambda: archives.empty(3_000_000, N_OBS, N_ACT, 1))
    with pytest.raises(ValueError, match="3000000 rows"):
        fit(
            ensemble,
            optimiser(ensemble.members),
            archive,
            max_epochs=1,
            key=jax.random.key(0),
        )
