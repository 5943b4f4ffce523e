from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

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


def test_any_network_with_its_noise_may_end_a_trajectory(policy):
    ensemble = ensemble_of([0.0, 0.3, -0.4, -0.6])
    one = step(World(ensemble, None, Known(), True), policy)
    any_ = step(World(ensemble, None, Known(), True, end_over_members=True), policy)
    expected = predict(ensemble, jnp.zeros((1, N_OBS)), jnp.zeros((1, N_ACT)))
    alone = norm.cdf(-1.0, expected.mean[:, 0, 0], np.sqrt(expected.variance[:, 0, 0]))
    p = 1.0 - np.prod(1.0 - alone)
    assert 0.1 < p < 0.9
    assert not bool(one.terminated.any())
    assert float(any_.terminated.mean()) == pytest.approx(p, abs=4.0 * np.sqrt(p / LANES))
    for name in ("act", "next_obs", "reward", "disagreement"):
        np.testing.assert_array_equal(getattr(any_, name), getattr(one, name))
    goes_on = ~np.asarray(any_.terminated)
    np.testing.assert_array_equal(any_.cost[goes_on], one.cost[goes_on])


def test_a_step_that_ends_costs_what_the_states_cost_that_it_ends_in(policy):
    @dataclass(frozen=True)
    class EndsAreDear(Known):
        def costs(self, obs, act, next_obs):
            ended = self.terminated(obs, act, next_obs)
            return jnp.where(ended[..., None], jnp.array([1.0, 3.0]), 0.0)

    world = World(ensemble_of([0.0, 0.3, -0.4, -0.6]), None, EndsAreDear(), True, True)
    moves = step(world, policy)
    ended = np.asarray(moves.terminated)
    assert 0.1 < ended.mean() < 0.9
    np.testing.assert_allclose(moves.cost[ended], [[1.0, 3.0]] * int(ended.sum()), rtol=1e-6)
    np.testing.assert_array_equal(moves.cost[~ended], 0.0)


def test_any_network_of_the_cost_model_may_end_a_trajectory(policy):
    cost_model = cost_model_of(end=-100.0)
    bias = cost_model.members.layers[0].bias.at[0, -1].set(np.log(0.3 / 0.7))
    cost_model = eqx.tree_at(lambda h: h.members.layers[0].bias, cost_model, bias)
    world = World(ensemble_of(OFFSETS), cost_model, Unknown(), True, end_over_members=True)
    moves = step(world, policy)
    assert float(moves.terminated.mean()) == pytest.approx(0.3, abs=4.0 * np.sqrt(0.3 / LANES))


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
