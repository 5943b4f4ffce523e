"""Whole steps: they stay in their region and within limits, and searches that must fail."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.networks import Policy
from cmbpo.policy.directions import CASES
from cmbpo.policy.surrogate import flatten, surrogate
from cmbpo.policy.trust_region import (
    BARRIER_WEIGHT,
    Region,
    barrier_step,
    cpo_step,
    steered_step,
    trust_region_step,
)
from cmbpo.trajectory import Samples

MAX_KL = 0.01
OBS, ACT, ROWS = 3, 2, 400
REGION = Region(max_kl=MAX_KL, horizon=1000.0)


def setting(n_cost=1, seed=0) -> tuple[Policy, Samples]:
    keys = jax.random.split(jax.random.key(seed), 3)
    policy = Policy(OBS, ACT, hidden=(16,), log_std=-0.5, last_layer_scale=0.5, key=keys[0])
    obs = jax.random.normal(keys[1], (ROWS, OBS))
    act = jax.vmap(policy)(obs).sample(key=keys[2])
    advantage = act[:, 0] * jnp.sign(obs[:, 0]) + act[:, 1]
    cost = jnp.stack([0.02 * act[:, 1], 0.02 * act[:, 0]], axis=1)[:, :n_cost]
    samples = Samples(
        obs=obs,
        act=act,
        advantage=advantage - advantage.mean(),
        cost_advantage=cost - cost.mean(axis=0, keepdims=True),
        target=jnp.zeros(ROWS),
        cost_target=jnp.zeros((ROWS, n_cost)),
        valid=jnp.ones(ROWS, bool),
    )
    return policy, samples


run_cpo = jax.jit(partial(cpo_step, region=REGION))
run_trpo = jax.jit(partial(trust_region_step, region=REGION))
run_steered = jax.jit(partial(steered_step, region=REGION))
run_barrier = jax.jit(partial(barrier_step, region=REGION, cost_gain=1.0, hysteresis=0.8))
OFF, ON = jnp.array([False]), jnp.array([True])


def same(policy, other):
    return bool((flatten(policy)[0] == flatten(other)[0]).all())


@pytest.mark.parametrize("excess", [-100.0, -1.0, 1.0, 100.0])
def test_a_cpo_step_keeps_what_its_report_says(excess):
    policy, samples = setting()
    new, report = run_cpo(policy, samples, jnp.array([excess]))
    model = surrogate(policy, samples, horizon=REGION.horizon)
    truth = model.predict(flatten(new)[0])
    assert bool(report.accepted)
    assert 0.0 < float(report.kl) <= MAX_KL
    np.testing.assert_allclose(report.kl, truth.kl, rtol=1e-3)
    np.testing.assert_allclose(report.cost_change, truth.cost, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(report.reward_change, truth.reward, rtol=1e-3, atol=1e-5)
    assert float(report.cost_change[0]) <= max(-excess, 0.0)
    case = int(report.case)
    assert case == {-100.0: 3, -1.0: 2, 1.0: 1, 100.0: 0}[excess]
    assert float(report.reward_change) >= 0.0 or case <= 1


def test_with_room_to_spare_cpo_takes_the_step_of_trpo():
    policy, samples = setting()
    new, _ = run_cpo(policy, samples, jnp.array([-100.0]))
    plain, report = run_trpo(policy, samples)
    np.testing.assert_allclose(flatten(new)[0], flatten(plain)[0], rtol=1e-4, atol=1e-5)
    assert CASES[int(report.case)] == "unconstrained"


def test_trpo_pays_any_cost():
    policy, samples = setting()
    _, report = run_trpo(policy, samples)
    assert float(report.cost_change[0]) > 1.0
    assert float(report.kl) <= MAX_KL


def test_two_limits_are_both_kept():
    policy, samples = setting(n_cost=2)
    excess = jnp.array([-1.0, 0.5])
    _, report = run_cpo(policy, samples, excess)
    assert bool(report.accepted)
    assert float(report.cost_change[0]) <= 1.0
    assert float(report.cost_change[1]) <= 0.0


@pytest.mark.parametrize("step", ["cpo", "trpo", "barrier"])
def test_a_search_that_fails_gives_the_old_policy_back_bit_for_bit(step):
    policy, samples = setting()
    broken = eqx.tree_at(lambda s: s.advantage, samples, samples.advantage.at[0].set(jnp.nan))
    if step == "cpo":
        new, report = run_cpo(policy, broken, jnp.array([-2.0]))
    elif step == "trpo":
        new, report = run_trpo(policy, broken)
    else:
        new, _, report = run_barrier(policy, broken, jnp.array([-2.0]), jnp.array([7.0]), OFF)
    assert not bool(report.accepted)
    assert same(new, policy)
    assert float(report.kl) == 0.0
    assert float(report.cost_change[0]) == 0.0


def test_the_barrier_keeps_a_distance_that_cpo_does_not():
    policy, samples = setting()
    excess, target = jnp.array([-2.0]), jnp.array([7.0])
    _, _, careful = run_barrier(policy, samples, excess, target, OFF)
    _, bold = run_cpo(policy, samples, excess)
    assert bool(careful.accepted)
    assert CASES[int(careful.case)] == "constrained"
    assert 0.0 < float(careful.cost_change[0]) < float(bold.cost_change[0]) <= 2.0
    y = 1.0 - float(careful.cost_change[0]) / 2.0
    assert float(careful.kl) + BARRIER_WEIGHT * (y - 1.0 - np.log(y)) <= MAX_KL


def test_a_reward_that_lowers_the_cost_meets_no_barrier():
    """Where earning more also costs less, the step is TRPO's, however near the limit is."""
    policy, samples = setting()
    agreeing = eqx.tree_at(lambda s: s.cost_advantage, samples, -samples.cost_advantage)
    new, _, report = run_barrier(policy, agreeing, jnp.array([-0.1]), jnp.array([7.0]), OFF)
    plain, _ = run_trpo(policy, agreeing)
    assert float(report.cost_change[0]) < -1.0
    np.testing.assert_allclose(flatten(new)[0], flatten(plain)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("excess", "before", "after"),
    [(-2.0, False, False), (-1.0, True, True), (-2.0, True, False), (0.1, False, True)],
)
def test_recovery_begins_at_the_target_and_ends_at_the_hysteresis(excess, before, after):
    """Target 7, hysteresis 0.8: recovery ends when J_c < 5.6, an excess of −1.4."""
    policy, samples = setting()
    _, recovering, report = run_barrier(
        policy, samples, jnp.array([excess]), jnp.array([7.0]), jnp.array([before])
    )
    assert bool(recovering[0]) == after
    assert (CASES[int(report.case)] == "recovery") == after
    if after:
        assert float(report.cost_change[0]) < 0.0
        assert float(report.kl) > 0.5 * MAX_KL


def test_recovery_of_one_cost_does_not_break_the_other():
    policy, samples = setting(n_cost=2)
    _, recovering, report = run_barrier(
        policy,
        samples,
        jnp.array([3.0, -1.0]),
        jnp.array([7.0, 7.0]),
        jnp.array([False, False]),
    )
    np.testing.assert_array_equal(recovering, [True, False])
    assert float(report.cost_change[0]) < 0.0
    assert float(report.cost_change[1]) <= 1.0


def test_some_rows_are_enough_for_the_fisher_matrix():
    policy, samples = setting()
    region = Region(max_kl=MAX_KL, horizon=1000.0, fisher_share=0.5)
    _, report = jax.jit(partial(trust_region_step, region=region))(policy, samples)
    assert bool(report.accepted)
    assert 0.5 * MAX_KL < float(report.kl) <= MAX_KL


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_steered_step_lowers_the_cost_by_its_share_of_what_the_region_holds(share):
    policy, samples = setting()
    room, aim = jnp.array([1.0]), jnp.array([7.0])
    _, used, report = run_steered(policy, samples, jnp.array([share]), room, aim)
    assert float(used[0]) == pytest.approx(share)
    reach = np.sqrt(2.0 * MAX_KL * np.asarray(report.s))
    assert bool(report.accepted)
    np.testing.assert_allclose(report.cost_change, -share * reach, rtol=0.2, atol=0.02 * reach[0])


def test_a_cost_that_no_step_changes_by_anything_shortens_none():
    """What is left of a gradient without cost is rounding error, in any direction."""
    policy, samples = setting()
    noise = 1e-6 * jax.random.normal(jax.random.key(5), (ROWS, 1))
    free = eqx.tree_at(lambda s: s.cost_advantage, samples, noise)
    room, aim = jnp.array([0.0]), jnp.array([7.0])
    _, _, report = run_steered(policy, free, jnp.array([0.02]), room, aim)
    _, trpo = run_trpo(policy, samples)
    assert float(report.kl) == pytest.approx(float(trpo.kl), rel=0.05)
    assert float(report.reward_change) == pytest.approx(float(trpo.reward_change), rel=0.05)


@pytest.mark.parametrize("n_cost", [1, 2])
def test_a_cost_that_three_whole_steps_leave_below_its_aim_binds_nothing(n_cost):
    policy, samples = setting(n_cost=n_cost)
    share, aim = jnp.full(n_cost, 0.3), jnp.full(n_cost, 1000.0)
    _, _, report = run_steered(policy, samples, share, jnp.zeros(n_cost), aim)
    reach = jnp.sqrt(2.0 * MAX_KL * report.s)
    near = 2.9 * reach
    far = near.at[0].set(3.1 * reach[0])
    _, held, _ = run_steered(policy, samples, share, near, aim)
    np.testing.assert_array_equal(held, share)
    new, used, _ = run_steered(policy, samples, share, far, aim)
    np.testing.assert_array_equal(used, share.at[0].set(-1.0))
    if n_cost == 1:
        plain, _ = run_trpo(policy, samples)
        np.testing.assert_allclose(flatten(new)[0], flatten(plain)[0], rtol=1e-4, atol=1e-5)
