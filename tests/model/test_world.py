from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from cmbpo.model.ensemble import Ensemble, predict
from cmbpo.model.learned_cost import CostModel
from cmbpo.model.world import Moves, World
from cmbpo.networks import Policy

N_OBS, N_ACT, MEMBERS, LANES = 2, 1, 4, 4000


@dataclass(frozen=True)
class Known:
    """Costs 1 for a step to the right of 1; ends to the left of −1."""

    def costs(self, obs, act, next_obs):
        return (next_obs[..., :1] > 1.0).astype(jnp.float32)

    def terminated(self, obs, act, next_obs):
        return next_obs[..., 0] < -1.0


@dataclass(frozen=True)
class Unknown(Known):
    """The same, that cannot say so."""

    def costs(self, obs, act, next_obs):
        raise AssertionError("asked for what the task does not know")

    def terminated(self, obs, act, next_obs):
        raise AssertionError("asked for what the task does not know")


def ensemble_of(offsets: list[float]) -> Ensemble:
    """Networks Δs = (offset, 0), whatever the action."""
    ensemble = Ensemble(
        N_OBS, N_ACT, hidden=(), members=MEMBERS, elites=MEMBERS, key=jax.random.key(0)
    )
    layer = ensemble.members.layers[0]
    bias = jnp.zeros_like(layer.bias).at[:, 0].set(jnp.array(offsets))
    return eqx.tree_at(
        lambda e: (e.members.layers[0].weight, e.members.layers[0].bias, e.input.std),
        ensemble,
        (jnp.zeros_like(layer.weight), bias, jnp.full(N_OBS + N_ACT, 1e3)),
    )


def cost_model_of(*, n_cost: int = 1, ends: bool = True, end: float = 0.0) -> CostModel:
    """Networks that say of the cost what `Known` does, and that a step ends with odds e^end."""
    cost_model = CostModel(
        N_OBS,
        N_ACT,
        n_cost=n_cost,
        ends=ends,
        hidden=(),
        members=MEMBERS,
        key=jax.random.key(1),
    )
    layer = cost_model.members.layers[0]
    weight, bias = jnp.zeros_like(layer.weight), jnp.zeros_like(layer.bias)
    if n_cost:
        weight = weight.at[:, 0, N_OBS + N_ACT].set(100.0)
        bias = bias.at[:, 0].set(-100.0)
    if ends:
        bias = bias.at[:, -1].set(end)
    return eqx.tree_at(
        lambda h: (h.members.layers[0].weight, h.members.layers[0].bias), cost_model, (weight, bias)
    )


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(
        N_OBS, N_ACT, hidden=(4,), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(2)
    )


move = jax.jit(lambda world, policy, obs, key: world.step(policy, obs, key=key))


def step(world: World, policy: Policy, seed: int = 3) -> Moves:
    obs = jnp.zeros((LANES, N_OBS))
    return move(world, policy, obs, jax.random.key(seed))


OFFSETS = [2.0, 0.0, -2.0, -2.0]


@pytest.mark.parametrize("over_members", [True, False])
def test_a_learned_cost_is_taken_where_a_known_one_would_be(policy, over_members):
    ensemble = ensemble_of(OFFSETS)
    known = step(World(ensemble, None, Known(), over_members), policy)
    learned = step(World(ensemble, cost_model_of(), Unknown(), over_members), policy)
    np.testing.assert_allclose(learned.cost, known.cost, atol=1e-6)
    assert set(np.unique(known.cost)) == ({0.25} if over_members else {0.0, 1.0})
    for name in ("act", "next_obs", "reward", "disagreement"):
        np.testing.assert_array_equal(getattr(learned, name), getattr(known, name))


def test_learned_ends_come_as_often_as_they_are_likely(policy):
    for p in (0.02, 0.3):
        cost_model = cost_model_of(end=np.log(p / (1.0 - p)))
        share = step(
            World(ensemble_of(OFFSETS), cost_model, Unknown(), True), policy
        ).terminated.mean()
        assert float(share) == pytest.approx(p, abs=4.0 * np.sqrt(p / LANES))


def test_the_network_that_moves_the_state_says_whether_it_ends(policy):
    cost_model = cost_model_of(end=-100.0)
    bias = cost_model.members.layers[0].bias.at[2:, -1].set(100.0)
    cost_model = eqx.tree_at(lambda h: h.members.layers[0].bias, cost_model, bias)
    moves = step(World(ensemble_of(OFFSETS), cost_model, Unknown(), True), policy)
    np.testing.assert_array_equal(moves.terminated, moves.next_obs[:, 0] < -1.0)


def errors_of(*rows: tuple[float, float]) -> Float[Array, "E rows obs"]:
    """What every network missed, in units of σ."""
    return jnp.tile(jnp.array(rows), (MEMBERS, 1, 1))


def test_without_errors_next_states_are_means_to_the_bit(policy):
    ensemble = ensemble_of(OFFSETS)
    moves = step(World(ensemble, None, Known(), False), policy)
    mean = predict(ensemble, jnp.zeros((1, N_OBS)), jnp.zeros((1, N_ACT))).mean[:, 0]
    assert set(np.unique(moves.next_obs[:, 0])) == set(np.unique(mean[:, 0]))
    no_errors = step(World(ensemble, None, Known(), False, errors_of((0.0, 0.0))), policy)
    jax.tree.map(np.testing.assert_array_equal, no_errors, moves)


@pytest.mark.parametrize("learned", [False, True])
def test_cost_and_end_are_judged_where_the_errors_lead(policy, learned):
    """From 0 a step without errors neither costs nor ends; each error leads to one of both."""
    ensemble, errors = ensemble_of([0.0] * MEMBERS), errors_of((1.5, 0.0), (-1.5, 0.0))
    cost_model = cost_model_of(ends=False) if learned else None
    mean = step(World(ensemble, cost_model, Known(), False), policy)
    assert not mean.terminated.any()
    np.testing.assert_allclose(mean.cost, 0.0, atol=1e-6)
    moves = step(World(ensemble, cost_model, Known(), False, errors), policy)
    assert set(np.unique(moves.next_obs[:, 0])) == {-1.5, 1.5}
    np.testing.assert_allclose(moves.cost[:, 0], moves.next_obs[:, 0] > 1.0, atol=1e-6)
    np.testing.assert_array_equal(moves.terminated, moves.next_obs[:, 0] < -1.0)
    for name in ("act", "reward", "disagreement"):
        np.testing.assert_array_equal(getattr(moves, name), getattr(mean, name))


@pytest.mark.parametrize("learned", [False, True])
def test_a_cost_over_networks_is_of_one_event(policy, learned):
    """Were the errors drawn for each network, some steps would cost ¼, ½ or ¾."""
    errors = errors_of((1.5, 0.0), (-1.5, 0.0))
    cost_model = cost_model_of(ends=False) if learned else None
    moves = step(World(ensemble_of([0.0] * MEMBERS), cost_model, Known(), True, errors), policy)
    assert set(np.unique(moves.cost.round(5))) == {0.0, 1.0}
    assert float(moves.cost.mean()) == pytest.approx(0.5, abs=4.0 * np.sqrt(0.25 / LANES))


def test_only_what_the_task_does_not_know_is_asked_of_the_cost_model(policy):
    @dataclass(frozen=True)
    class KnowsCost(Unknown):
        def costs(self, obs, act, next_obs):
            return Known().costs(obs, act, next_obs)

    @dataclass(frozen=True)
    class KnowsEnd(Unknown):
        def terminated(self, obs, act, next_obs):
            return Known().terminated(obs, act, next_obs)

    ensemble = ensemble_of(OFFSETS)
    known = step(World(ensemble, None, Known(), True), policy)
    no_cost = step(World(ensemble, cost_model_of(n_cost=0, end=100.0), KnowsCost(), True), policy)
    np.testing.assert_array_equal(no_cost.cost, known.cost)
    assert bool(no_cost.terminated.all())
    no_end = step(World(ensemble, cost_model_of(ends=False), KnowsEnd(), True), policy)
    np.testing.assert_allclose(no_end.cost, known.cost, atol=1e-6)
    np.testing.assert_array_equal(no_end.terminated, known.terminated)
