"""The real copies of a run, and the account of what they earned and cost."""

from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np
import pytest

from cmbpo import columns
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.networks import Policy
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training.real_world import RealWorld
from tests.envs.bad_environments import making
from tests.tiny import tiny

COPIES = 5


@dataclass(frozen=True, kw_only=True)
class Costly(PointCircle):
    """A short task on which every step costs."""

    horizon = 10

    def unsafe(self, obs):
        return obs[..., 0] == obs[..., 0]


def policy() -> Policy:
    return Policy(4, 2, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(1))


def world(**changes) -> RealWorld:
    return RealWorld(Costly(), tiny("cpo", **changes))


def collect(real: RealWorld, steps: int, seed: int = 0):
    return real.collect(policy(), steps=steps, rows=steps, key=jax.random.key(seed))


def test_every_real_step_is_counted_with_its_cost():
    real = world()
    collect(real, 7)
    assert real.env_steps == 7 * COPIES
    row = real.account(np.array([0.0]), steps=35)
    assert row[columns.CUMULATIVE_COST] == 35.0
    assert row[columns.COST_RATE] == 1.0


def test_the_limits_are_the_tasks_unless_the_run_has_its_own():
    assert world().limits.tolist() == [10.0]
    assert world(cost_limit=3.0).limits.tolist() == [3.0]


@pytest.mark.parametrize(("limit", "violating"), [(9.5, True), (10.0, False)])
def test_an_episode_violates_its_limit_only_above_it(limit, violating):
    real = world(cost_limit=limit)
    collect(real, 20)
    whole = [episode for episode in real.take_episodes() if episode.length == 10]
    assert len(whole) > COPIES
    assert real.violating_episodes == (len(whole) if violating else 0)
    assert real.take_episodes() == [], "they are taken once"


def test_regret_counts_cost_above_the_limit_in_whole_episodes():
    real = world()
    collect(real, 10)
    assert real.account(np.array([14.0]), steps=50)[columns.REGRET] == pytest.approx(4.0 * 5)
    assert real.account(np.array([8.0]), steps=50)[columns.REGRET] == pytest.approx(4.0 * 5)


def test_episodes_grow_while_they_are_cheap_and_shrink_when_they_are_dear():
    real = world(first_episode=4)
    assert real.simulator.episode_steps == 4.0
    real.lengthen(np.array([0.0]), np.array([7.0]), steps=1000.0)
    grown = real.simulator.episode_steps
    assert 4.0 < grown < 10.0
    real.lengthen(np.array([1000.0]), np.array([7.0]), steps=1000.0)
    assert real.simulator.episode_steps < grown
    assert real.simulator.episode_steps >= 4.0


def test_it_goes_on_from_its_state_to_the_bit():
    one, other = world(), world(seed=8)
    collect(one, 13)
    one.account(np.array([14.0]), steps=65)
    other.restore(one.state())
    assert (other.regret, other.violating_episodes) == (one.regret, one.violating_episodes)
    first, second = collect(one, 6, seed=2), collect(other, 6, seed=2)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.ledger.cost, other.ledger.cost)


def made(name: str, copies: Literal["inline", "processes"], **changes) -> RealWorld:
    """The copies of a bad environment, with one action and two observations."""
    settings = EnvSettings(copies=copies)
    task = CustomTask(making(name), name=name, cost_limits=(5.0,), settings=settings)
    return RealWorld(task, tiny("cpo", **changes))


def act(real: RealWorld, steps: int):
    small = Policy(2, 1, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(1))
    return real.collect(small, steps=steps, rows=steps, key=jax.random.key(0))


def test_a_failure_says_how_far_the_run_had_come():
    with pytest.raises(EnvironmentFailure, match=r"motor 3 .* The run had taken 115 real steps\.$"):
        act(made("raises_in_step", "inline"), 50)


def test_numbers_that_are_not_finite_are_counted_said_once_and_remembered():
    real = made("infinite_once", "inline")
    act(real, 50)
    row = real.account(np.array([0.0]), steps=250)
    assert (row[columns.NOT_FINITE], row[columns.RESTARTS]) == (COPIES, 0)
    (said,) = real.take_sentences()
    assert said.startswith("Not finite: observation[0] is inf.")
    assert said.endswith("The run had taken 115 real steps.")
    again = made("infinite_once", "inline")
    again.restore(real.state())
    assert again.account(np.array([0.0]), steps=250)[columns.NOT_FINITE] == COPIES


def test_a_blow_up_of_a_task_is_counted_and_said():
    real = world()
    real.simulator._state[1, 3] = np.inf
    collect(real, 3)
    assert real.account(np.array([0.0]), steps=15)[columns.NOT_FINITE] == 1
    (said,) = real.take_sentences()
    assert said.startswith("The physics of copy 1 blew up: ")


def test_a_lost_copy_leaves_no_row_and_no_episode_but_a_count():
    real = made("kills_itself", "processes", num_envs=2)
    steps = act(real, 30)
    real.close()
    lost = np.asarray(~steps.valid)
    assert lost.sum() == 2, "the step in which each died"
    assert np.asarray(steps.last)[lost].all()
    assert not np.asarray(steps.terminated)[lost].any()
    assert real.account(np.array([0.0]), steps=60)[columns.RESTARTS] == 2
    assert all(episode.length == 10 for episode in real.take_episodes())
    assert len(real.take_sentences()) == 2
    assert real.state()["simulator"]["restarts"] == 2
