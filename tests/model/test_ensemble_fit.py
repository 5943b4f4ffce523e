"""Early stopping on networks whose errors are known beforehand, and who sees which rows."""

from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data.data_split import MOST_ROWS, is_held_out
from cmbpo.model.ensemble_fit import FitConfig, FitState, begin, fit_members, for_each_member
from cmbpo.networks import Mlp
from tests.data.test_data_split import archive_of

ROWS, CAPACITY, BATCH = 100, 128, 16
FIT = FitConfig(batch_size=BATCH, patience=3)
ARCHIVE = archive_of(ROWS, capacity=CAPACITY)
HELD = np.asarray(is_held_out(ARCHIVE))
LEARNED = ROWS - int(HELD.sum())
STEPS = -(-LEARNED // BATCH)
"""Gradient steps of an epoch."""


@dataclass(frozen=True)
class Counted:
    """A network is one number x, to which each step adds one, and whose error is a function of it.

    The optimiser's state counts how often each row was seen. The loss is x before the step.
    """

    error: str
    """`valley`: (x − 4 epochs)² + 1; `creeping`: falls by a thousandth of the first each epoch;
    `falling`: −x."""

    def step(self, net: Mlp, opt_state, rows, fit: FitConfig):
        assert rows.shape == (fit.batch_size,)
        x = net.layers[0].bias
        longer = eqx.tree_at(lambda n: n.layers[0].bias, net, x + 1.0)
        return longer, opt_state.at[rows].add(1), x[0]

    def holdout_error(self, net: Mlp):
        x = net.layers[0].bias[0]
        return {
            "valley": (x - 4.0 * STEPS) ** 2 + 1.0,
            "creeping": 1.0 - 0.001 * x / STEPS,
            "falling": -x,
        }[self.error]


def begun(error: str, starts: jax.Array, seed: int = 0) -> FitState:
    nets = jax.vmap(lambda k: Mlp((1, 1), activation=jnp.tanh, key=k))(
        jax.random.split(jax.random.key(0), len(starts))
    )
    nets = eqx.tree_at(lambda n: n.layers[0].bias, nets, starts[:, None])
    seen = jnp.zeros((len(starts), CAPACITY), jnp.int32)
    return begin(nets, seen, Counted(error), key=jax.random.key(seed))


@partial(jax.jit, static_argnames="error")
def go_on(error: str, state: FitState, max_epochs: int) -> FitState:
    return fit_members(state, ARCHIVE, Counted(error), FIT, max_epochs=max_epochs)


def fit(error: str, starts: jax.Array, max_epochs: int, seed: int = 0) -> FitState:
    return go_on(error, begun(error, starts, seed), max_epochs)


def best_numbers(state: FitState) -> np.ndarray:
    return np.asarray(state.best[0].layers[0].bias)[:, 0]


def test_each_network_stops_after_its_own_patience_and_keeps_what_did_best():
    """The first is best after four epochs, the second after one, the third never got better."""
    starts = jnp.array([0.0, 3.0 * STEPS, 9.0 * STEPS])
    found = fit("valley", starts, 50)
    np.testing.assert_array_equal(found.epochs, [4 + 3, 1 + 3, 3])
    np.testing.assert_array_equal(best_numbers(found), [4.0 * STEPS, 4.0 * STEPS, 9.0 * STEPS])
    np.testing.assert_array_equal(found.best_error, [1.0, 1.0, (5.0 * STEPS) ** 2 + 1.0])
    # The optimiser's state that comes back is of the same moment.
    np.testing.assert_array_equal(found.best[1].sum(axis=1), np.array([4, 1, 0]) * STEPS * BATCH)


@pytest.mark.parametrize("error", ["valley", "creeping", "falling"])
def test_in_parts_a_fit_is_what_it_is_in_one(error):
    starts = jnp.array([0.0, 3.0 * STEPS, 9.0 * STEPS])
    state = begun(error, starts)
    for until in (1, 2, 2, 5, 9, 12):
        state = go_on(error, state, until)
    whole = fit(error, starts, 12)
    jax.tree.map(np.testing.assert_array_equal, state.best, whole.best)
    np.testing.assert_array_equal(state.epochs, whole.epochs)
    np.testing.assert_array_equal(state.train_loss, whole.train_loss)
    np.testing.assert_array_equal(state.best_error, whole.best_error)


def test_gains_of_less_than_a_hundredth_are_kept_but_do_not_prolong():
    found = fit("creeping", jnp.array([0.0]), 50)
    np.testing.assert_array_equal(found.epochs, [3])
    np.testing.assert_array_equal(best_numbers(found), [3.0 * STEPS])


@pytest.mark.parametrize("epochs", [0, 1, 6])
def test_there_are_no_more_epochs_than_allowed(epochs):
    found = fit("falling", jnp.array([0.0, 5.0]), epochs)
    np.testing.assert_array_equal(found.epochs, epochs)
    np.testing.assert_array_equal(best_numbers(found), np.array([0.0, 5.0]) + epochs * STEPS)


def test_an_epoch_sees_every_row_that_is_not_held_out_and_no_other():
    found = fit("falling", jnp.array([0.0, 0.0]), 1)
    seen = np.asarray(found.best[1])
    learned = (np.arange(CAPACITY) < ROWS) & ~HELD
    assert 0 < HELD.sum() < ROWS
    np.testing.assert_array_equal(seen > 0, np.broadcast_to(learned, seen.shape))
    # The last batch is filled up with rows from the start of the same order.
    assert seen.max() <= 2
    np.testing.assert_array_equal(seen.sum(axis=1), STEPS * BATCH)
    assert STEPS * BATCH > LEARNED
    assert (seen[0] != seen[1]).any()


def test_the_loss_told_is_the_mean_over_the_last_epoch():
    found = fit("falling", jnp.array([0.0, 7.0]), 3)
    last = np.arange(2 * STEPS, 3 * STEPS).mean()
    np.testing.assert_allclose(found.train_loss, [last, last + 7.0], rtol=1e-6)


def test_one_by_one_is_what_side_by_side_is(monkeypatch):
    def twice(net: Mlp, x):
        return net(x) * 2.0

    nets = jax.vmap(lambda k: Mlp((3, 4, 2), activation=jnp.tanh, key=k))(
        jax.random.split(jax.random.key(0), 5)
    )
    x = jax.random.normal(jax.random.key(1), (5, 3))
    one_by_one = for_each_member(twice)(nets, x)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    side_by_side = for_each_member(twice)(nets, x)
    assert one_by_one.shape == (5, 2)
    np.testing.assert_allclose(one_by_one, side_by_side, rtol=1e-5)


def test_an_archive_too_large_to_walk_is_refused():
    nets = jax.vmap(lambda k: Mlp((1, 1), activation=jnp.tanh, key=k))(
        jax.random.split(jax.random.key(0), 2)
    )
    large = jax.eval_shape(lambda: archives.empty(3_000_000, 2, 2, 1))
    state = begin(nets, jnp.zeros((2, 1)), Counted("falling"), key=jax.random.key(0))
    with pytest.raises(ValueError, match=f"3000000 rows; allowed: at most {MOST_ROWS}"):
        jax.eval_shape(
            lambda archive: fit_members(state, archive, Counted("falling"), FIT, max_epochs=1),
            large,
        )
