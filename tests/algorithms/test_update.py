"""Every algorithm that learns from batches of its newest policy: it improves, and says how."""

from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.algorithms.update import Algorithm, Constraint, PolicyStep, algorithm, region
from cmbpo.networks import Policy
from cmbpo.policy.surrogate import flatten, surrogate
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.trajectory import Samples
from tests.tiny import tiny

ON_POLICY = [name for name, row in ALGORITHMS.items() if row.data != "replay"]
OBS, ACT, ROWS, HORIZON = 3, 2, 400, 1000
TARGET = 7.0


def setting(n_cost: int = 1) -> tuple[Policy, Samples]:
    """The second action earns and costs, the first earns where the first observation says."""
    keys = jax.random.split(jax.random.key(0), 3)
    policy = Policy(OBS, ACT, hidden=(16,), log_std=-0.5, last_layer_scale=0.5, key=keys[0])
    obs = jax.random.normal(keys[1], (ROWS, OBS))
    act = jax.vmap(policy)(obs).sample(key=keys[2])
    advantage = act[:, 0] * jnp.sign(obs[:, 0]) + act[:, 1]
    cost = jnp.stack([0.02 * act[:, 1], 0.02 * act[:, 0]], axis=1)[:, :n_cost]
    samples = Samples(
        obs=obs,
        act=act,
        advantage=(advantage - advantage.mean()) / advantage.std(),
        cost_advantage=cost - cost.mean(axis=0, keepdims=True),
        target=jnp.zeros(ROWS),
        cost_target=jnp.zeros((ROWS, n_cost)),
        valid=jnp.ones(ROWS, bool),
    )
    return policy, samples


def constraint(excess: float, n_cost: int = 1) -> Constraint:
    target, over = jnp.full(n_cost, TARGET), jnp.full(n_cost, excess)
    return Constraint(over, target, spent=target + over, episodes=jnp.ones(()))


@cache
def compiled(name: str, settings: TrainSettings):
    made = algorithm(name)

    def improve(policy, state, samples, constraint):
        return made.improve(
            policy,
            state,
            samples,
            constraint,
            settings=settings,
            horizon=HORIZON,
            key=jax.random.key(1),
        )

    return jax.jit(improve)


def update(name: str, excess: float, *, n_cost: int = 1, **changes):
    """Old and new policy, old and new state, and what the update did."""
    settings = tiny(name, **changes).for_programs()
    policy, samples = setting(n_cost)
    state = algorithm(name).start(policy, n_cost, settings)
    new, after, step = compiled(name, settings)(policy, state, samples, constraint(excess, n_cost))
    return policy, new, state, after, step


def test_every_row_that_learns_from_batches_has_a_module_with_an_algorithm_of_its_own():
    found = {name: algorithm(name) for name in ON_POLICY}
    assert all(isinstance(made, Algorithm) for made in found.values())
    assert len({made.improve for made in found.values()}) == len(ON_POLICY)


@pytest.mark.parametrize("n_cost", [2])
@pytest.mark.parametrize("name", ON_POLICY)
def test_an_update_with_room_to_spare_earns_more_and_says_what_it_did(name, n_cost):
    policy, new, before, after, step = update(name, -100.0, n_cost=n_cost)
    truth = surrogate(policy, setting(n_cost)[1], horizon=float(HORIZON)).predict(flatten(new)[0])
    assert float(truth.reward) > 0.01
    assert float(truth.kl) > 1e-4
    np.testing.assert_allclose(step.kl, truth.kl, rtol=1e-2)
    np.testing.assert_allclose(step.cost_change, truth.cost, rtol=1e-2, atol=1e-2)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)


@pytest.mark.parametrize("name", ON_POLICY)
def test_the_fields_of_a_step_have_the_shapes_of_the_costs_and_none_where_it_cannot_say(name):
    *_, step = update(name, -100.0, n_cost=2)
    assert isinstance(step, PolicyStep)
    assert (step.kl.shape, step.reward_change.shape, step.cost_change.shape) == ((), (), (2,))
    clipped, penalised = name.startswith("ppo"), name.endswith("lag")
    assert (step.trust_region is None) == clipped
    assert (step.passes is not None) == (step.loss is not None) == clipped
    assert (step.multiplier is not None) == penalised
    if step.trust_region is not None:
        assert (step.trust_region.nu.shape, step.trust_region.q.shape) == ((2,), ())
        assert float(step.trust_region.kl) == float(step.kl)
    if step.multiplier is not None:
        assert step.multiplier.shape == (2,)


@pytest.mark.parametrize("name", ["cpo", "cmbpo"])
def test_a_broken_limit_makes_a_step_that_costs_less(name):
    *_, step = update(name, 100.0)
    assert bool(step.trust_region.accepted)
    assert float(step.cost_change[0]) < -1.0


def test_trpo_takes_the_same_step_whatever_it_costs():
    found = [flatten(update("trpo", excess)[1])[0] for excess in (-100.0, 100.0)]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("name", ["cpo", "cmbpo"])
def test_a_broken_limit_that_no_step_changes_leaves_the_policy_as_it_is(name):
    """With a zero gradient of the cost nothing can be repaired, and nothing may be earned."""
    settings = tiny(name, **({"trust_region__step": "cpo"} if name == "cmbpo" else {}))
    settings = settings.for_programs()
    policy, samples = setting()
    blind = eqx.tree_at(lambda s: s.cost_advantage, samples, jnp.zeros((ROWS, 1)))
    state = algorithm(name).start(policy, 1, settings)
    new, _, step = compiled(name, settings)(policy, state, blind, constraint(1.0))
    np.testing.assert_array_equal(flatten(new)[0], flatten(policy)[0])
    assert float(step.trust_region.cost_gradient_norm[0]) == 0.0
    assert float(step.trust_region.step_norm) == 0.0
    assert int(step.trust_region.case) == 0
    np.testing.assert_allclose([step.kl, step.reward_change], 0.0, atol=1e-7)
    # Within the limit the same batch is TRPO's.
    new, _, step = compiled(name, settings)(policy, state, blind, constraint(-1.0))
    assert int(step.trust_region.case) == 4
    assert float(step.kl) > 0.1 * settings.trust_region.max_kl


def test_cmbpo_takes_cpos_step_the_barriers_or_the_steered_one():
    cpo = flatten(update("cpo", -1.0)[1])[0]
    of_cpo = tiny("cpo").trust_region
    same: dict[str, Any] = {
        "trust_region__max_kl": of_cpo.max_kl,
        "trust_region__fisher_share": of_cpo.fisher_share,
    }
    found = {
        step: flatten(update("cmbpo", -1.0, trust_region__step=step, **same)[1])[0]
        for step in ("cpo", "barrier", "steered")
    }
    np.testing.assert_array_equal(found["cpo"], cpo)
    assert np.abs(found["barrier"] - cpo).max() > 1e-4
    assert np.abs(found["steered"] - cpo).max() > 1e-4


def test_the_barrier_step_remembers_which_constraints_are_in_recovery():
    *_, before, after, step = update("cmbpo", 1.0, trust_region__step="barrier")
    assert (before.tolist(), after.tolist()) == ([False], [True])
    assert int(step.trust_region.case) == 0


def test_the_steered_step_lowers_the_cost_by_the_share_that_its_controller_says():
    *_, dear = update("cmbpo", 10.0 * TARGET, trust_region__step="steered")
    *_, cheap = update("cmbpo", -TARGET, trust_region__step="steered")
    for step in (dear, cheap):
        reach = np.sqrt(2.0 * tiny("cmbpo").trust_region.max_kl * step.trust_region.s[0])
        assert float(step.cost_change[0]) <= max(-float(step.share[0]) * 0.3, 0.3) * reach
    assert float(dear.share[0]) > 0.5 > 0.1 > float(cheap.share[0])
    assert float(dear.cost_change[0]) < float(cheap.cost_change[0])
    assert float(dear.reward_change) < float(cheap.reward_change)


@pytest.mark.parametrize("name", ["trpo-lag", "ppo-lag"])
def test_the_multiplier_moves_before_the_step(name):
    (_, _, _, _, above), (_, _, _, _, below) = update(name, 100.0), update(name, -100.0)
    assert float(above.multiplier[0]) > 1.0 > float(below.multiplier[0])
    assert float(above.cost_change[0]) < float(below.cost_change[0])


def test_the_region_is_that_of_the_settings_over_the_horizon():
    settings = tiny("cpo")
    asked = replace(settings.trust_region, max_kl=0.02, fisher_share=0.4)
    found = region(replace(settings, trust_region=asked), 250)
    assert (found.horizon, found.max_kl, found.fisher_share) == (250.0, 0.02, 0.4)
