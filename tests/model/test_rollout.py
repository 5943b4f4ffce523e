from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.data import archive as archives
from cmbpo.data.archive import Archive
from cmbpo.data.start_states import Starts
from cmbpo.model.disagreement import disagreement
from cmbpo.model.ensemble import Ensemble, predict
from cmbpo.model.rollout import Cut, cut_rule, imagine, probe
from cmbpo.model.world import World
from cmbpo.networks import Gaussian, Policy
from cmbpo.trajectory import Steps

N_OBS, N_ACT, LANES, STEPS = 2, 1, 16, 40
NOTHING = jnp.array(jnp.inf)


@dataclass(frozen=True)
class Line:
    """Costs right of 1, and in the lower half; ends beyond `end`."""

    end: float = 1e6

    def costs(self, obs, act, next_obs):
        return jnp.stack([next_obs[..., 0] > 1.0, next_obs[..., 1] < 0.0], axis=-1).astype(
            jnp.float32
        )

    def terminated(self, obs, act, next_obs):
        return jnp.abs(next_obs[..., 0]) > self.end


def handmade(offsets: np.ndarray, *, slope: float = 0.0) -> Ensemble:
    """Four networks Δs = (0.1·a + offset, slope·s₁·offset), reward s₁, all with unit variance."""
    members = 4
    offsets = np.resize(offsets, members)
    ensemble = Ensemble(
        N_OBS, N_ACT, hidden=(), members=members, elites=members, key=jax.random.key(0)
    )
    weight = np.zeros((members, 2 * (N_OBS + 1), N_OBS + N_ACT), np.float32)
    weight[:, 0, 2] = 0.1
    weight[:, 1, 0] = slope * offsets
    weight[:, 2, 0] = 1.0
    bias = np.zeros((members, 2 * (N_OBS + 1)), np.float32)
    bias[:, 0] = offsets
    return eqx.tree_at(
        lambda e: (e.members.layers[0].weight, e.members.layers[0].bias, e.input.std),
        ensemble,
        (jnp.asarray(weight), jnp.asarray(bias), jnp.full(N_OBS + N_ACT, 1e3)),
    )


def scaled(ensemble: Ensemble) -> Ensemble:
    """The same networks for inputs in units of 1000, so that nothing is clipped in these tests."""
    return eqx.tree_at(
        lambda e: e.members.layers[0].weight, ensemble, 1e3 * ensemble.members.layers[0].weight
    )


def archive_of(rows: int) -> Archive:
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(rows, N_OBS)), jnp.float32)
    zeros, act = jnp.zeros(rows), jnp.zeros((rows, N_ACT))
    steps = Steps(
        obs=obs,
        act=act,
        next_obs=obs,
        reward=zeros,
        cost=jnp.zeros((rows, 2)),
        terminated=zeros.astype(bool),
        last=zeros.astype(bool),
        valid=jnp.ones(rows, bool),
    )
    return archives.add(archives.empty(64, N_OBS, N_ACT, 2), steps, Gaussian(act, act), 0)


def still_policy() -> Policy:
    """π(a|s) = N(0, 1) everywhere."""
    policy = Policy(
        N_OBS, N_ACT, hidden=(4,), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(1)
    )
    last = policy.net.layers[-1]
    return eqx.tree_at(lambda p: p.net.layers[-1].weight, policy, jnp.zeros_like(last.weight))


class Setting(NamedTuple):
    policy: Policy
    archive: Archive
    starts: Starts


@pytest.fixture(scope="module")
def setting():
    archive, policy = archive_of(50), still_policy()
    starts = Starts(jnp.ones(1), jnp.zeros(1, jnp.int32), jnp.array([50]))
    return Setting(policy, archive, starts)


run = jax.jit(partial(imagine, lanes=LANES, steps=STEPS))
spread = jax.jit(lambda *args: disagreement(predict(*args)))
measure = jax.jit(partial(probe, quantile=0.75, max_horizon=30))


def batch(setting: Setting, world: World, cut: Cut, *, rows: int = 10**6, seed: int = 3):
    return run(world, *setting, cut, rows=rows, key=jax.random.key(seed))


def length_cut(horizon: int, budget: float = np.inf) -> Cut:
    return Cut(jnp.array(horizon), jnp.array(budget, jnp.float32), NOTHING)


def trajectories(steps: Steps) -> list[np.ndarray]:
    """Row indices (t, lane) of each trajectory, from `valid` and `last` alone."""
    valid, last = np.asarray(steps.valid), np.asarray(steps.last)
    found = []
    for lane in range(valid.shape[1]):
        current = []
        for t in range(valid.shape[0]):
            if not valid[t, lane]:
                assert not current, "a trajectory ran into padding without a last row"
                continue
            current.append((t, lane))
            if last[t, lane]:
                found.append(np.array(current))
                current = []
        assert not current
    return found


def test_an_exact_ensemble_repeats_the_true_system(setting):
    world = World(scaled(handmade(np.zeros(3))), None, Line(), True)
    steps, told = batch(setting, world, length_cut(7))
    assert bool(steps.valid.all())
    np.testing.assert_allclose(
        steps.next_obs[..., 0],
        steps.obs[..., 0] + 0.1 * np.clip(steps.act[..., 0], -1.0, 1.0),
        atol=1e-5,
    )
    np.testing.assert_allclose(steps.next_obs[..., 1], steps.obs[..., 1], atol=1e-6)
    np.testing.assert_allclose(steps.reward, steps.obs[..., 0], atol=1e-5)
    np.testing.assert_array_equal(steps.cost, Line().costs(steps.obs, steps.act, steps.next_obs))
    np.testing.assert_allclose(told.cost_rate, steps.cost.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(told.reward_rate, steps.reward.mean(), rtol=1e-4)


def test_rows_of_a_trajectory_follow_each_other_and_others_start_in_the_archive(setting):
    world = World(scaled(handmade(np.array([0.1, -0.1]), slope=1.0)), None, Line(end=1.0), True)
    steps, _ = batch(setting, world, length_cut(9, budget=0.3))
    archived = {tuple(x) for x in np.asarray(setting.archive.obs[:50]).tolist()}
    obs, next_obs = np.asarray(steps.obs), np.asarray(steps.next_obs)
    paths = trajectories(steps)
    assert len(paths) > 50
    for path in paths:
        assert tuple(obs[tuple(path[0])].tolist()) in archived
        for here, there in pairwise(path):
            assert there[0] == here[0] + 1
            np.testing.assert_array_equal(next_obs[tuple(here)], obs[tuple(there)])


def test_nothing_follows_a_terminal_step(setting):
    world = World(scaled(handmade(np.array([0.1, -0.1]))), None, Line(end=1.0), True)
    steps, told = batch(setting, world, length_cut(30))
    terminated = np.asarray(steps.terminated)
    np.testing.assert_array_equal(terminated, np.abs(np.asarray(steps.next_obs[..., 0])) > 1.0)
    assert np.asarray(steps.last)[terminated].all()
    paths = trajectories(steps)
    ends = np.array([terminated[tuple(path[-1])] for path in paths])
    np.testing.assert_allclose(told.terminated, ends.mean(), rtol=1e-5)
    whole = [len(path) for path in paths if path[0][0] + 30 <= STEPS]
    assert 0 < len(whole) < len(paths)
    np.testing.assert_allclose(told.length, np.mean(whole), rtol=1e-5)


def test_no_trajectory_exceeds_its_budget_and_none_is_cut_without_need(setting):
    ensemble = scaled(handmade(np.array([0.3, -0.2, 0.1]), slope=0.5))
    cut = cut_rule("trajectory", limit=0.12, max_horizon=12, schedule=(1, 1, 1), update=0)
    steps, _ = batch(setting, World(ensemble, None, Line(), True), cut)
    value = np.asarray(spread(ensemble, steps.obs, steps.act))
    paths = trajectories(steps)
    sums = np.array([sum(value[tuple(i)] for i in path) for path in paths])
    lengths = np.array([len(path) for path in paths])
    assert (sums <= 0.12 * (1.0 + 1e-5)).all()
    assert lengths.max() <= 12
    assert 1 < len(set(lengths.tolist()))
    # After a cut the lane goes on at once: any start state here allows at least one step.
    assert not np.asarray(~steps.valid[1:] & ~steps.valid[:-1]).any()
    # Those cut short had to be: the disagreement ahead, which no action changes, was too much.
    ahead = np.asarray(spread(ensemble, steps.next_obs, steps.act))
    for path, total in zip(paths, sums, strict=True):
        if len(path) < 12 and path[-1][0] < STEPS - 1:
            assert total + ahead[tuple(path[-1])] > 0.12 * (1.0 - 1e-4)


def test_no_budget_allows_no_step(setting):
    world = World(scaled(handmade(np.array([0.1, -0.1]))), None, Line(), True)
    cut = cut_rule("trajectory", limit=0.0, max_horizon=12, schedule=(1, 1, 1), update=0)
    steps, told = batch(setting, world, cut)
    assert not bool(steps.valid.any() | steps.last.any() | steps.terminated.any())
    assert int(told.rows) == 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(told))


def test_members_that_agree_need_no_budget(setting):
    world = World(scaled(handmade(np.zeros(3))), None, Line(), True)
    steps, _ = batch(setting, world, length_cut(5, budget=0.0))
    assert bool(steps.valid.all())


def test_a_batch_has_one_horizon_from_the_quantile_of_a_probe(setting):
    ensemble = scaled(handmade(np.array([0.3, -0.3])))
    world = World(ensemble, None, Line(), True)
    per_step = float(spread(ensemble, jnp.zeros(N_OBS), jnp.zeros(N_ACT)))
    cut = cut_rule("batch", limit=6.5 * per_step, max_horizon=30, schedule=(1, 1, 1), update=0)
    found = measure(world, setting.policy, setting.archive.obs[:50], cut, key=jax.random.key(4))
    assert int(found.horizon) == 6
    np.testing.assert_allclose(found.disagreement, per_step, rtol=1e-5)
    steps, _ = batch(setting, world, eqx.tree_at(lambda c: c.horizon, cut, found.horizon))
    lengths = [len(path) for path in trajectories(steps) if path[-1][0] < STEPS - 1]
    assert set(lengths) == {6}
    assert bool(steps.valid.all())


def test_the_quantile_of_a_batch_decides_whatever_the_worst_do(setting):
    ensemble = scaled(handmade(np.array([0.3, -0.3]), slope=1.0))
    world = World(ensemble, None, Line(), True)
    # Disagreement grows with |s₁|: trajectories from afar are over the limit at once.
    calm, wild = jnp.zeros((100, N_OBS)), jnp.full((100, N_OBS), 50.0)
    cut = cut_rule("batch", limit=1.0, max_horizon=30, schedule=(1, 1, 1), update=0)

    def horizon(share: int) -> int:
        obs = jnp.concatenate([wild[:share], calm[share:]])
        found = measure(world, setting.policy, obs, cut, key=jax.random.key(5))
        return int(found.horizon)

    assert horizon(0) >= horizon(20) > 1
    assert horizon(30) == 1


def test_a_probe_measures_even_when_the_first_step_is_too_much(setting):
    ensemble = scaled(handmade(np.array([0.3, -0.3])))
    for kind in ("batch", "trajectory"):
        cut = cut_rule(kind, limit=0.0, max_horizon=30, schedule=(1, 1, 1), update=0)
        world = World(ensemble, None, Line(), True)
        found = measure(world, setting.policy, setting.archive.obs[:50], cut, key=jax.random.key(4))
        assert float(found.disagreement) > 0.0
    assert int(found.horizon) == 30


@pytest.mark.parametrize(("update", "horizon"), [(0, 3), (500, 9), (1000, 15), (5000, 15)])
def test_a_schedule_grows_linearly_and_ignores_disagreement(setting, update, horizon):
    cut = cut_rule("schedule", limit=0.0, max_horizon=30, schedule=(3, 15, 1000), update=update)
    assert int(cut.horizon) == horizon
    world = World(scaled(handmade(np.array([5.0, -5.0]))), None, Line(), True)
    steps, _ = batch(setting, world, cut)
    assert bool(steps.valid.all())
    assert max(len(path) for path in trajectories(steps)) == horizon


def test_work_ends_when_there_are_enough_rows(setting):
    world = World(scaled(handmade(np.array([0.1, -0.1]))), None, Line(), True)
    steps, told = batch(setting, world, length_cut(7), rows=100)
    rows = -(-100 // LANES) * LANES
    assert int(told.rows) == rows == int(steps.valid.sum())
    assert not bool(steps.valid[rows // LANES :].any())
    assert bool(steps.last[rows // LANES - 1].all())


@pytest.mark.parametrize(("horizon", "length"), [(7, 7.0), (33, 33.0), (41, 40.0)])
def test_the_length_told_is_not_of_trajectories_that_the_batch_cut_off(setting, horizon, length):
    """Forty steps hold five trajectories of seven and a stub, or one that would have had 41."""
    world = World(scaled(handmade(np.zeros(3))), None, Line(), True)
    _, told = batch(setting, world, length_cut(horizon))
    assert float(told.length) == length


def test_a_trajectory_over_its_budget_has_ended_by_itself(setting):
    ensemble = scaled(handmade(np.array([0.3, -0.3])))
    per_step = float(spread(ensemble, jnp.zeros(N_OBS), jnp.zeros(N_ACT)))
    _, told = batch(
        setting, World(ensemble, None, Line(), True), length_cut(30, budget=6.5 * per_step)
    )
    assert float(told.length) == 6.0


def test_the_cost_is_the_mean_over_members_or_the_chosen_ones(setting):
    ensemble = scaled(handmade(np.array([50.0, -50.0, -50.0, -50.0])))
    mean, _ = batch(setting, World(ensemble, None, Line(), True), length_cut(1))
    chosen, _ = batch(setting, World(ensemble, None, Line(), False), length_cut(1))
    np.testing.assert_allclose(mean.cost[..., 0], 0.25)
    assert set(np.unique(chosen.cost[..., 0])) == {0.0, 1.0}
    np.testing.assert_array_equal(chosen.cost[..., 0], chosen.next_obs[..., 0] > 1.0)


def test_only_elites_move_the_state(setting):
    ensemble = scaled(handmade(np.array([50.0, -50.0, -70.0, 50.0])))
    ensemble = eqx.tree_at(lambda e: e.elites, ensemble, jnp.array([2, 1, 2, 1]))
    steps, _ = batch(setting, World(ensemble, None, Line(), True), length_cut(1))
    moved = np.asarray(steps.next_obs - steps.obs)[..., 0].round(-1)
    assert set(np.unique(moved)) == {-50.0, -70.0}


def test_states_stay_where_data_could_be(setting):
    ensemble = handmade(np.array([500.0, 600.0]))
    ensemble = eqx.tree_at(lambda e: e.input.std, ensemble, jnp.ones(N_OBS + N_ACT))
    steps, _ = batch(setting, World(ensemble, None, Line(), True), length_cut(3))
    np.testing.assert_allclose(steps.next_obs[..., 0], 8.0)
