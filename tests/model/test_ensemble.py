from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data.archive import Archive
from cmbpo.trajectory import Steps
from cmbpo.data.data_split import holdout_rows
from cmbpo.model import ensemble
from cmbpo.model.disagreement import disagreement, reliability
from cmbpo.model.ensemble import Ensemble
from cmbpo.model.ensemble_fit import FitConfig
from cmbpo.networks import Gaussian, Normaliser

N_OBS, N_ACT = 3, 2
DRIFT = np.array([[-0.1, 0.2, 0.0], [0.0, -0.2, 0.1], [0.05, 0.0, -0.1]], np.float32)
PUSH = np.array([[0.3, 0.0], [0.0, 0.2], [0.1, -0.1]], np.float32)
FIT = FitConfig(
    learning_rate=3e-3,
    batch_size=256,
    weight_decay=1e-6,
    holdout=0.2,
    max_holdout=400,
    subsample=0.8,
    patience=5,
)


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


def untrained(*, members: int = 3, elites: int = 2, **kwargs) -> Ensemble:
    key = jax.random.key(7)
    return Ensemble(
        N_OBS, N_ACT, hidden=(32, 32), members=members, elites=elites, key=key, **kwargs
    )


traces = []


def traced_fit(*args, **kwargs):
    traces.append(kwargs)
    return fit_ensemble(*args, fit=FIT, **kwargs)


# One program for the whole file.
fit = jax.jit(traced_fit)
predict = jax.jit(ensemble.predict)


@pytest.fixture(scope="module")
def fitted():
    archive = linear_system(1500, seed=0)
    ensemble = untrained()
    start = ensemble_optimiser(ensemble)
    ensemble, opt_state, report = fit(
        ensemble, start, archive, max_epochs=120, key=jax.random.key(0)
    )
    return archive, ensemble, opt_state, report


def numpy_outputs(net, x):
    for layer in net.layers[:-1]:
        x = x @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        x = x / (1.0 + np.exp(-x))
    x = x @ np.asarray(net.layers[-1].weight).T + np.asarray(net.layers[-1].bias)
    return np.split(x, 2, axis=-1)


def one_network(ensemble: Ensemble, member: int = 0):
    return jax.tree.map(lambda x: x[member], ensemble.members)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["regularised", "paper"])
def test_the_loss_is_its_definition(kind):
    net = one_network(untrained(variance_loss=kind))
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(50, N_OBS + N_ACT)), rng.normal(size=(50, N_OBS + 1))
    mean, raw = numpy_outputs(net, x)
    error = (mean - y) ** 2
    if kind == "paper":
        variance = np.log1p(np.exp(raw)) + 1e-3
        expected = error.mean() + ((variance - error) ** 2).mean()
    else:
        gap = (np.exp(raw) - error) ** 2
        expected = error.mean() + 0.05 * (error.mean() / gap.mean()) * gap.mean()
        expected += 0.05 * (raw**2).mean()
    squares = [0.5 * (np.asarray(layer.weight) ** 2).sum() for layer in net.layers]
    expected += 0.01 * (0.25 * squares[0] + 0.5 * squares[1] + squares[2])
    loss = jax.jit(partial(ensemble.loss, variance_loss=kind, weight_decay=0.01))
    found = loss(net, jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["regularised", "paper"])
def test_the_mean_is_learned_from_its_own_error_alone(kind):
    net = one_network(untrained(variance_loss=kind))
    x, y = jax.random.normal(jax.random.key(0), (64, 5)), jnp.ones((64, N_OBS + 1))

    def squared_error(net):
        mean, _ = ensemble._outputs(net, x, layer_norm=False)
        return jnp.mean((mean - y) ** 2)

    whole = jax.jit(jax.grad(partial(ensemble.loss, variance_loss=kind)))(net, x, y)
    whole, alone = (g.layers[-1].bias for g in (whole, jax.jit(jax.grad(squared_error))(net)))
    np.testing.assert_allclose(whole[: N_OBS + 1], alone[: N_OBS + 1], rtol=1e-5)
    assert np.abs(whole[N_OBS + 1 :]).max() > 0.0


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
        *_, report = fit(ensemble, opt_state, archive, max_epochs=epochs, key=jax.random.key(1))
        assert int(report.rows) == rows
        assert int(report.epochs.max()) == epochs
    assert len(traces) == before


def test_the_report_is_of_the_weights_that_come_back(fitted):
    archive, ensemble, _, report = fitted
    rows, used = holdout_rows(archive, holdout=0.2, max_holdout=400)
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
    wild = jax.jit(partial(fit_ensemble, fit=replace(FIT, learning_rate=10.0, patience=3)))
    after, _, worse = wild(ensemble, opt_state, archive, max_epochs=20, key=jax.random.key(2))
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


def test_networks_that_start_alike_on_the_same_rows_still_see_them_in_orders_of_their_own(fitted):
    archive, *_ = fitted
    ensemble = untrained()
    alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), ensemble.members)
    ensemble = eqx.tree_at(lambda e: e.members, ensemble, alike)
    whole = jax.jit(partial(fit_ensemble, fit=replace(FIT, subsample=1.0)))
    start = ensemble_optimiser(ensemble)
    ensemble, *_ = whole(ensemble, start, archive, max_epochs=2, key=jax.random.key(9))
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


def test_disagreement_ranks_true_errors(fitted):
    archive, ensemble, _, _ = fitted
    found = jax.jit(partial(reliability, holdout=0.2, max_holdout=400))(ensemble, archive)
    assert 0.2 < float(found.rank_correlation) <= 1.0
    assert 0.0 < float(found.disagreement) < 0.1


@pytest.mark.parametrize("layer_norm", [False, True])
def test_other_units_leave_predictions_as_they_were(layer_norm):
    ensemble = untrained(layer_norm=layer_norm)
    ensemble = eqx.tree_at(lambda e: e.fits, ensemble, jnp.array(1))
    new_input = Normaliser(jnp.linspace(-1.0, 1.0, 5), jnp.linspace(0.6, 1.8, 5))
    new_target = Normaliser(jnp.linspace(0.5, -0.5, 4), jnp.linspace(1.5, 0.7, 4))
    moved = ensemble.renormalise(ensemble, new_input, new_target)
    obs, act = jnp.array([0.3, -2.0, 1.0]), jnp.array([0.5, -0.2])
    before, after = predict(ensemble, obs, act), predict(moved, obs, act)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.variance, before.variance, rtol=1e-4)


def test_weights_of_an_input_that_was_constant_do_not_blow_up():
    ensemble = eqx.tree_at(lambda e: e.fits, untrained(), jnp.array(1))
    ensemble = eqx.tree_at(lambda e: e.input.std, ensemble, jnp.full(5, 1e-4))
    moved = ensemble.renormalise(ensemble, Normaliser(jnp.zeros(5), jnp.ones(5)), ensemble.target)
    largest = jnp.abs(ensemble.members.layers[0].weight).max()
    assert jnp.abs(moved.members.layers[0].weight).max() <= 2.0 * largest


def test_data_on_another_scale_do_not_throw_a_fitted_ensemble_off(fitted):
    _, ensemble, opt_state, _ = fitted
    wider = linear_system(2000, seed=5, scale=1.5)
    after, _, later = fit(ensemble, opt_state, wider, max_epochs=3, key=jax.random.key(3))
    assert float(later.holdout_error.max()) < 0.03
    np.testing.assert_allclose(after.input.std[:N_OBS], 1.5, rtol=0.1)
    assert int(after.fits) == int(ensemble.fits) + 1


def test_the_papers_variance_has_a_floor_and_its_fit_stays_finite():
    archive = linear_system(600, seed=6)
    # A contact: rare, large errors, which enter this loss by their fourth power.
    jolted = eqx.tree_at(lambda a: a.next_obs, archive, archive.next_obs.at[::50].mul(100.0))
    ensemble = untrained(variance_loss="paper")
    start = ensemble_optimiser(ensemble)
    ensemble, _, report = fit(ensemble, start, jolted, max_epochs=20, key=jax.random.key(4))
    assert np.isfinite(report.holdout_error).all()
    variance = predict(ensemble, archive.obs[:600], archive.act[:600]).variance
    assert (np.asarray(variance / ensemble.target.std[None, None] ** 2) >= 1e-3 * 0.999).all()


def test_networks_side_by_side_learn_what_they_learn_one_by_one(fitted, monkeypatch):
    archive, *_ = fitted
    ensemble = untrained()
    start = ensemble_optimiser(ensemble)

    def learn():
        jitted = jax.jit(partial(fit_ensemble, fit=FIT))
        return jitted(ensemble, start, archive, max_epochs=3, key=jax.random.key(8))[2]

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
            ensemble_optimiser(ensemble),
            archive,
            max_epochs=1,
            key=jax.random.key(0),
        )
