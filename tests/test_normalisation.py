"""Statistics against NumPy, and networks that say in other units what they said before."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.networks import Linear, Mlp, Normaliser
from cmbpo.normalisation import (
    STD_FLOOR,
    for_new_inputs,
    for_new_outputs,
    ratio,
    statistics,
    with_more,
    with_weights,
)

N_IN, N_OUT, MEMBERS = 4, 3, 2


def data(seed: int, rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Rows of very different scales, and which of them count."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, N_IN)) * [1e-3, 1.0, 30.0, 500.0] + [0.0, 5.0, -20.0, 1e3]
    return x, rng.random(rows) < 0.7


def test_statistics_are_mean_and_deviation_of_the_counted_rows(x64):
    x, counted = data(0)
    found = statistics(jnp.asarray(x), jnp.asarray(counted))
    np.testing.assert_allclose(found.mean, x[counted].mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.std, x[counted].std(axis=0), rtol=1e-10)


@pytest.mark.parametrize("floor", [STD_FLOOR, 0.5])
def test_no_deviation_is_below_the_floor(x64, floor):
    x, counted = data(1)
    x[:, 1] = 7.0
    found = statistics(jnp.asarray(x), jnp.asarray(counted), floor=floor)
    np.testing.assert_allclose(found.std, np.maximum(x[counted].std(axis=0), floor), rtol=1e-10)


def test_no_row_at_all_has_the_statistics_of_nothing():
    found = statistics(jnp.ones((5, N_IN)), jnp.zeros(5, bool))
    np.testing.assert_array_equal(found.mean, 0.0)
    np.testing.assert_array_equal(found.std, jnp.full(N_IN, STD_FLOOR))


def test_statistics_with_more_rows_are_those_of_all_rows(x64):
    (x, counted), (y, also) = data(2), data(3, rows=70)
    y = 2.0 * y + 1.0
    first = statistics(jnp.asarray(x), jnp.asarray(counted))
    found = with_more(first, jnp.array(float(counted.sum())), jnp.asarray(y), jnp.asarray(also))
    every = np.concatenate([x[counted], y[also]])
    np.testing.assert_allclose(found.mean, every.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.std, every.std(axis=0), rtol=1e-9)


def test_no_more_rows_change_no_statistics():
    x, counted = data(4)
    old = statistics(jnp.asarray(x, jnp.float32), jnp.asarray(counted))
    found = with_more(old, jnp.array(50.0), jnp.full((6, N_IN), 1e3), jnp.zeros(6, bool))
    np.testing.assert_allclose(found.mean, old.mean, rtol=1e-6)
    np.testing.assert_allclose(found.std, old.std, rtol=1e-6)


def test_a_ratio_is_bounded_in_both_directions_or_not_at_all():
    new, old = jnp.array([1.0, 1.0, 1.0, 1.0, 1.0]), jnp.array([1e-4, 0.4, 0.8, 2.5, 1e4])
    np.testing.assert_allclose(ratio(new, old, most=2.0), [2.0, 2.0, 1.25, 0.5, 0.5])
    np.testing.assert_allclose(ratio(new, old), [1e4, 2.5, 1.25, 0.4, 1e-4], rtol=1e-6)


def networks() -> Mlp:
    def one(key):
        return Mlp((N_IN, 8, N_OUT), activation=jnp.tanh, key=key)

    return jax.vmap(one)(jax.random.split(jax.random.key(0), MEMBERS))


def units(seed: int, n: int) -> Normaliser:
    rng = np.random.default_rng(seed)
    return Normaliser(jnp.asarray(rng.normal(size=n)), jnp.asarray(np.exp(rng.normal(size=n))))


def say(nets: Mlp, inner: Normaliser, outer: Normaliser, x: jax.Array) -> jax.Array:
    """What every network says of rows, in the units of the data."""

    def one(net: Mlp):
        return jax.vmap(lambda row: outer.undo(net(inner(row))))(x)

    return jax.vmap(one)(nets)


def with_layers(nets: Mlp, first: Linear, last: Linear) -> Mlp:
    return eqx.tree_at(lambda n: n.layers, nets, (first, last))


X = np.random.default_rng(9).normal(size=(20, N_IN))


def test_networks_moved_to_other_units_say_what_they_said(x64):
    nets, x = networks(), jnp.asarray(X)
    inner, outer, new_inner, new_outer = (
        units(0, N_IN),
        units(1, N_OUT),
        units(2, N_IN),
        units(3, 3),
    )
    first, last = nets.layers
    before = say(nets, inner, outer, x)
    moved = with_layers(
        nets, for_new_inputs(first, inner, new_inner), for_new_outputs(last, outer, new_outer)
    )
    np.testing.assert_allclose(say(moved, new_inner, new_outer, x), before, rtol=1e-9, atol=1e-12)
    assert np.abs(say(nets, new_inner, outer, x) - before).max() > 0.1
    assert np.abs(say(nets, inner, new_outer, x) - before).max() > 0.1


def test_within_the_bound_on_their_growth_it_changes_nothing(x64):
    first, last = networks().layers
    inner, new_inner = units(0, N_IN), units(0, N_IN)
    new_inner = Normaliser(new_inner.mean + 1.0, 1.9 * new_inner.std)
    outer, new_outer = units(1, N_OUT), units(1, N_OUT)
    new_outer = Normaliser(new_outer.mean - 2.0, 0.6 * new_outer.std)
    for free, bounded in (
        (
            for_new_inputs(first, inner, new_inner),
            for_new_inputs(first, inner, new_inner, most=2.0),
        ),
        (
            for_new_outputs(last, outer, new_outer),
            for_new_outputs(last, outer, new_outer, most=2.0),
        ),
    ):
        np.testing.assert_array_equal(free.weight, bounded.weight)
        np.testing.assert_array_equal(free.bias, bounded.bias)


def test_weights_on_what_was_constant_grow_at_most_so_far(x64):
    first, last = networks().layers
    tiny = Normaliser(jnp.zeros(N_IN), jnp.full(N_IN, 1e-4))
    whole = Normaliser(jnp.zeros(N_IN), jnp.ones(N_IN))
    np.testing.assert_allclose(
        for_new_inputs(first, tiny, whole, most=2.0).weight, 2 * first.weight
    )
    np.testing.assert_allclose(
        for_new_inputs(first, whole, tiny, most=2.0).weight, first.weight / 2
    )
    tiny, whole = (Normaliser(n.mean[:N_OUT], n.std[:N_OUT]) for n in (tiny, whole))
    np.testing.assert_allclose(for_new_outputs(last, whole, tiny, most=2.0).weight, 2 * last.weight)
    np.testing.assert_allclose(for_new_outputs(last, tiny, whole, most=2.0).weight, last.weight / 2)


def test_other_weights_are_of_the_same_layer():
    layer = networks().layers[0]
    found = with_weights(layer, 2.0 * layer.weight, layer.bias + 1.0)
    assert type(found) is type(layer)
    np.testing.assert_array_equal(found.weight, 2.0 * layer.weight)
    np.testing.assert_array_equal(found.bias, layer.bias + 1.0)
