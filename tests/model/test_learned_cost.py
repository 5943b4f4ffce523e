from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data.archive import Archive
from cmbpo.model import learned_cost
from cmbpo.model.ensemble import Ensemble, begin_ensemble, fit_ensemble
from cmbpo.model.ensemble_fit import FitConfig, optimiser
from cmbpo.model.learned_cost import CostModel, begin_cost_model, fit_cost_model
from cmbpo.model.learned_cost_quality import Quality, calibrate_probabilities, parts
from cmbpo.networks import Gaussian, Mlp
from cmbpo.trajectory import Steps

N_OBS, N_ACT, MEMBERS = 3, 2, 2
ROWS, CAPACITY = 5000, 8192
FIT = FitConfig(learning_rate=5e-3, batch_size=512)


class Moves:
    """Random steps of s' = 0.9 s + 0.3 a. They cost beyond a line, and end where they go far."""

    def __init__(self, rows: int, *, seed: int, line: float = 1.2, far: float = 2.3):
        rng = np.random.default_rng(seed)
        self.obs = rng.normal(size=(rows, N_OBS)).astype(np.float32)
        self.act = rng.uniform(-1.5, 1.5, size=(rows, N_ACT)).astype(np.float32)
        clipped = np.clip(self.act, -1.0, 1.0)
        push = clipped @ np.eye(N_ACT, N_OBS, dtype=np.float32)
        self.next_obs = 0.9 * self.obs + 0.3 * push
        beyond = (np.abs(self.next_obs[:, 0]) > line).astype(np.float32)
        effort = (clipped**2).sum(axis=1) + 2.0 * np.maximum(self.next_obs[:, 1], 0.0)
        self.cost = np.stack([beyond, effort], axis=1)
        self.terminated = np.linalg.norm(self.next_obs, axis=1) > far

    def archive(self) -> Archive:
        rows = len(self.obs)
        act = jnp.asarray(self.act)
        steps = Steps(
            obs=jnp.asarray(self.obs),
            act=act,
            next_obs=jnp.asarray(self.next_obs),
            reward=jnp.zeros(rows),
            cost=jnp.asarray(self.cost),
            terminated=jnp.asarray(self.terminated),
            last=jnp.zeros(rows, bool),
            valid=jnp.ones(rows, bool),
        )
        empty = archives.empty(CAPACITY, N_OBS, N_ACT, 2)
        return archives.add(empty, steps, Gaussian(act, act), 0)


@partial(jax.jit, static_argnames=("n_cost", "ends", "seed"))
def untrained(*, n_cost: int = 2, ends: bool = True, seed: int = 0) -> CostModel:
    return CostModel(
        N_OBS,
        N_ACT,
        n_cost=n_cost,
        ends=ends,
        hidden=(48, 48),
        members=MEMBERS,
        key=jax.random.key(seed),
    )


traces = []


def traced_learn(cost_model: CostModel, opt_state, archive: Archive, epochs, key):
    """An ensemble and a cost model, fitted, and the cost model calibrated."""
    traces.append(epochs)
    ensemble = Ensemble(
        N_OBS, N_ACT, hidden=(32,), members=MEMBERS, elites=MEMBERS, key=jax.random.key(7)
    )
    start = optimiser(ensemble.members)
    begun = begin_ensemble(ensemble, start, archive, key=key)
    ensemble, _ = fit_ensemble(ensemble, begun, archive, FIT, max_epochs=20)
    begun = begin_cost_model(cost_model, opt_state, archive, key=key)
    cost_model, state = fit_cost_model(cost_model, begun, archive, FIT, max_epochs=epochs)
    cost_model, quality = calibrate_probabilities(cost_model, ensemble, archive)
    return cost_model, state.best[1], quality


learn = jax.jit(traced_learn)
data_of = jax.jit(learned_cost._fit_data)
judge = jax.jit(learned_cost.judge)


def by_all(cost_model: CostModel, moves: Moves) -> np.ndarray:
    """The mean judgement of steps with their real next states."""
    next_obs = jnp.broadcast_to(moves.next_obs, (MEMBERS, *moves.next_obs.shape))
    return np.asarray(judge(cost_model, moves.obs, moves.act, next_obs).mean(axis=0))


@pytest.fixture(scope="module")
def learned() -> tuple[CostModel, Quality]:
    cost_model = untrained()
    start = optimiser(cost_model.members)
    cost_model, _, quality = learn(
        cost_model, start, Moves(ROWS, seed=0).archive(), 60, jax.random.key(1)
    )
    return cost_model, quality


@pytest.fixture(scope="module")
def fresh() -> Moves:
    return Moves(20_000, seed=1)


def test_the_kind_of_each_cost_is_seen_from_the_data(learned):
    cost_model, _ = learned
    np.testing.assert_array_equal(cost_model.logistic, [True, False, True])


def test_learned_rates_are_the_true_ones(learned, fresh):
    cost_model, _ = learned
    found = by_all(cost_model, fresh).mean(axis=0)
    truth = [*fresh.cost.mean(axis=0), fresh.terminated.mean()]
    assert 0.02 < truth[2] < 0.2
    np.testing.assert_allclose(found, truth, rtol=0.05)


def test_a_cost_of_any_size_is_learned_as_it_is(learned, fresh):
    cost_model, _ = learned
    error = by_all(cost_model, fresh)[:, 1] - fresh.cost[:, 1]
    assert np.sqrt((error**2).mean()) < 0.1 * fresh.cost[:, 1].std()


def test_probabilities_are_right_wherever_they_are(learned, fresh):
    cost_model, _ = learned
    found = by_all(cost_model, fresh)
    for column, truth in ((0, fresh.cost[:, 0]), (2, fresh.terminated)):
        p = found[:, column]
        for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
            inside = (low <= p) & (p < high)
            noise = 3.0 * np.sqrt(0.25 / inside.sum())
            assert p[inside].mean() == pytest.approx(truth[inside].mean(), abs=0.12 + noise)


def test_the_quality_is_told_of_costs_and_end(learned):
    costs, end = parts(*learned)
    assert costs is not None
    assert end is not None
    assert costs.auc.shape == (2,)
    assert float(costs.auc[0]) > 0.99
    assert float(end.auc) > 0.99
    assert 0.7 < float(end.recall) <= 1.0
    np.testing.assert_allclose(costs.rate, costs.true_rate, rtol=0.1)
    data = Moves(ROWS, seed=0)
    np.testing.assert_array_equal(costs.examples, (data.cost > 0.0).sum(axis=0, dtype=np.float32))
    assert float(end.examples) == data.terminated.sum()
    assert float(costs.error[1]) < 0.1 * data.cost[:, 1].std()


def test_rare_classes_keep_their_rate():
    # About 1 % each: some 80 examples, of which 16 are held out.
    line, far = 2.35, 3.0
    rare, fresh = (
        Moves(8000, seed=3, line=line, far=far),
        Moves(50_000, seed=4, line=line, far=far),
    )
    cost_model = untrained(seed=3)
    cost_model, _, quality = learn(
        cost_model, optimiser(cost_model.members), rare.archive(), 60, jax.random.key(2)
    )
    found = by_all(cost_model, fresh)[:, [0, 2]].mean(axis=0)
    truth = np.array([fresh.cost[:, 0].mean(), fresh.terminated.mean()])
    assert (truth < 0.015).all()
    np.testing.assert_allclose(found, truth, rtol=0.3)
    assert float(quality.auc[0]) > 0.98


def test_what_never_happens_is_not_expected():
    never = Moves(ROWS, seed=5, line=100.0, far=100.0)
    cost_model = untrained(seed=5)
    cost_model, _, quality = learn(
        cost_model, optimiser(cost_model.members), never.archive(), 30, jax.random.key(3)
    )
    found = by_all(cost_model, Moves(2000, seed=6))[:, [0, 2]]
    assert found.max() < 0.01
    assert not np.isfinite(quality.auc[0])
    np.testing.assert_array_equal(quality.examples[jnp.array([0, 2])], 0.0)


def test_other_units_and_rates_leave_judgements_as_they_were(learned, fresh):
    cost_model, _ = learned
    # Twice as many costly rows change the class weights, but not what was learned.
    other = Moves(4000, seed=8, line=0.8)
    moved, _ = data_of(cost_model, other.archive())
    assert abs(float(moved.output.mean[0] - cost_model.output.mean[0])) > 0.3
    few = Moves(500, seed=9)
    moved = eqx.tree_at(
        lambda h: (h.lowest, h.highest), moved, (cost_model.lowest, cost_model.highest)
    )
    np.testing.assert_allclose(by_all(moved, few), by_all(cost_model, few), rtol=1e-3, atol=1e-3)


def test_a_cost_that_turns_out_not_to_be_0_or_1_starts_anew():
    plain, later = Moves(ROWS, seed=10), Moves(ROWS, seed=11)
    plain.cost[:, 1] = plain.cost[:, 0]
    cost_model = untrained(seed=10)
    cost_model, opt_state, _ = learn(
        cost_model, optimiser(cost_model.members), plain.archive(), 30, jax.random.key(4)
    )
    assert bool(cost_model.logistic.all())
    cost_model, _, _ = learn(cost_model, opt_state, later.archive(), 60, jax.random.key(5))
    np.testing.assert_array_equal(cost_model.logistic, [True, False, True])
    error = by_all(cost_model, later)[:, 1] - later.cost[:, 1]
    assert np.sqrt((error**2).mean()) < 0.15 * later.cost[:, 1].std()


def test_a_cost_stays_in_the_range_that_was_seen(learned):
    cost_model, _ = learned
    moves, data = Moves(500, seed=12), Moves(ROWS, seed=0)
    moves.obs, moves.next_obs = 20.0 * moves.obs, 20.0 * moves.next_obs
    found = by_all(cost_model, moves)
    assert found[:, 1].min() >= data.cost[:, 1].min()
    assert found[:, 1].max() <= data.cost[:, 1].max() * (1.0 + 1e-6)
    assert ((found[:, [0, 2]] >= 0.0) & (found[:, [0, 2]] <= 1.0)).all()


def test_networks_judge_the_next_states_that_are_their_own(learned):
    cost_model, _ = learned
    obs, act = jnp.array([[1.33, 0.0, 0.0]]), jnp.zeros((1, N_ACT))
    inside, outside = jnp.array([[1.0, 0.0, 0.0]]), jnp.array([[1.4, 0.0, 0.0]])
    one = judge(cost_model, obs, act, jnp.stack([inside, outside]))[:, 0, 0]
    other = judge(cost_model, obs, act, jnp.stack([outside, inside]))[:, 0, 0]
    assert one[0] < other[0]
    assert other[1] < one[1]


def test_the_loss_weighs_both_classes_alike():
    archive = Moves(ROWS, seed=0).archive()
    cost_model, data = data_of(untrained(), archive)
    rate = np.asarray(cost_model.truth(archive)[:ROWS].mean(axis=0))
    for column in (0, 2):
        positive, negative = float(data.positive[column]), float(data.negative[column])
        assert positive * rate[column] == pytest.approx(negative * (1.0 - rate[column]), rel=1e-4)
        assert positive * rate[column] == pytest.approx(0.5, rel=1e-4)
        assert float(cost_model.output.mean[column]) == pytest.approx(-np.log(positive / negative))


@pytest.mark.usefixtures("x64")
def test_the_error_is_the_weighted_logistic_loss_or_the_square():
    y = jnp.array([[1.0, 0.5], [0.0, -1.0]])
    data = learned_cost._FitData(
        x=jnp.array([[0.3], [-2.0]]),
        y=y,
        held=jnp.array([0, 1]),
        is_held=jnp.array([True, False]),
        logistic=jnp.array([True, False]),
        positive=jnp.array([5.0, 1.0]),
        negative=jnp.array([0.6, 1.0]),
    )
    net = Mlp((1, 2), activation=jax.nn.silu, key=jax.random.key(0))
    net = eqx.tree_at(
        lambda n: (n.layers[0].weight, n.layers[0].bias),
        net,
        (jnp.array([[2.0], [1.0]]), jnp.array([0.1, 0.0])),
    )
    first = 0.5 * (5.0 * np.log1p(np.exp(-0.7)) + (0.3 - 0.5) ** 2)
    second = 0.5 * (0.6 * np.log1p(np.exp(-3.9)) + (-2.0 + 1.0) ** 2)
    np.testing.assert_allclose(data.errors(net, jnp.array([0, 1])), [first, second], rtol=1e-10)
    np.testing.assert_allclose(data.holdout_error(net), first, rtol=1e-10)


def test_only_what_is_unknown_is_learned():
    archive = Moves(100, seed=0).archive()
    costs, end = untrained(ends=False).truth(archive), untrained(n_cost=0).truth(archive)
    np.testing.assert_array_equal(costs, archive.cost)
    np.testing.assert_array_equal(end[:, 0], archive.terminated)


def test_one_program_serves_all_archives(learned):
    del learned
    before = len(traces)
    cost_model = untrained()
    for rows in (200, 7000):
        learn(
            cost_model,
            optimiser(cost_model.members),
            Moves(rows, seed=rows).archive(),
            1,
            jax.random.key(0),
        )
    assert len(traces) == before
