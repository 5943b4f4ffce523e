"""SAC-L on problems with known answers: its multiplier, its critics, and all of it together."""

from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo.agent import Agent
from cmbpo.algorithms.sac_lagrangian import Batch, Pressure, critic_step, follow, improve, start
from cmbpo.policy.cost_estimate import estimate, nothing_seen, observe
from cmbpo.policy.lagrangian import pid_multiplier
from cmbpo.settings.presets import preset
from cmbpo.settings.schema import TrainSettings
from tests.tiny import tiny

HORIZON, LIMIT = 100, 25.0
PRESET = preset("sac-lag", "PointCircle")
GAINS, FADING = PRESET.lagrangian.gains, PRESET.cost_estimate.time_constant


@pytest.mark.parametrize("first", [0.1, 1.0, 5.0])
def test_the_multiplier_settles_where_the_best_answer_to_it_costs_the_limit(first):
    """Who earns v and pays λv² chooses v = 1/(2λ), at a cost of 100 v²: of 25 where λ = 1."""

    def update(carry, _):
        multiplier, seen = carry
        cost = jnp.minimum(0.5 / jnp.maximum(multiplier.value, 1e-3), 1.0) ** 2
        steps = jnp.broadcast_to(cost, (1000, 1, 1))
        seen = observe(seen, steps, jnp.ones((1000, 1), bool), time_constant=FADING)
        measured = estimate(seen, horizon=float(HORIZON)).mean
        target = jnp.full(1, LIMIT)
        after = follow(multiplier, measured, target, horizon=HORIZON, gains=GAINS)
        return (after, seen), after.value[0]

    began = pid_multiplier(1, first=first), nothing_seen(1)
    _, values = jax.jit(lambda c: jax.lax.scan(update, c, length=600))(began)
    np.testing.assert_allclose(values[-50:], 1.0, atol=0.02)


def test_two_multipliers_follow_a_cost_each():
    cost, target = jnp.array([50.0, 10.0]), jnp.array([25.0, 25.0])
    found = follow(pid_multiplier(2), cost, target, horizon=HORIZON, gains=GAINS).value
    assert float(found[0]) > 1.0 > float(found[1])


def test_a_limit_of_nothing_can_be_followed():
    found = follow(pid_multiplier(1), jnp.zeros(1), jnp.zeros(1), horizon=HORIZON, gains=GAINS)
    assert np.isfinite(found.value).all()
    dear = follow(pid_multiplier(1), jnp.ones(1), jnp.zeros(1), horizon=HORIZON, gains=GAINS)
    assert float(dear.value[0]) > float(found.value[0])


def settings_of(**changes) -> TrainSettings:
    return tiny("sac-lag", policy__hidden=(16,), critic__hidden=(16,), **changes).for_programs()


def of_one_state(act: jax.Array, *, terminated: bool) -> Batch:
    """Reward 1 and cost ½, whatever is done in the only state there is."""
    rows = len(act)
    return Batch(
        obs=jnp.zeros((rows, 1)),
        act=act,
        next_obs=jnp.zeros((rows, 1)),
        signal=jnp.tile(jnp.array([[1.0, -0.5]]), (rows, 1)),
        terminated=jnp.full(rows, terminated),
    )


def test_the_critics_learn_that_a_reward_ends_with_the_episode_and_a_cost_does_not():
    """Where every step ends it: Q = 1, and −Q_c = ½ + γ_c·c̄/(1 − γ_c) with c̄ = 0.02."""
    settings = settings_of()
    learner = start(1, 1, 1, settings, key=jax.random.key(0))
    pressure = Pressure(jnp.ones(1), jnp.array([0.02]))
    gamma = settings.advantage.cost_discount
    act = jnp.linspace(-1.0, 1.0, 64)[:, None]

    def fit(learner, key):
        batch = of_one_state(act, terminated=True)
        return critic_step(learner, batch, pressure, settings=settings, key=key)

    fit_all = jax.jit(lambda l, keys: jax.lax.scan(fit, l, keys))
    learner, steps = fit_all(learner, jax.random.split(jax.random.key(1), 1500))
    said = jax.vmap(lambda a: learner.critics(jnp.zeros(1), a))(act)
    expected = np.array([1.0, -(0.5 + gamma * 0.02 / (1.0 - gamma))])
    np.testing.assert_allclose(said.mean(axis=(0, 2)), expected, rtol=0.05)
    np.testing.assert_allclose(steps.target[-1], expected, rtol=1e-5)
    assert float(steps.critic_loss[-1].max()) < float(steps.critic_loss[0].max())


@pytest.mark.parametrize("ratio", [1, 3])
def test_each_real_step_is_so_many_steps_of_the_critics_and_one_of_the_policy(ratio):
    settings = settings_of(replay__ratio=ratio)
    learner = start(1, 1, 1, settings, key=jax.random.key(0))
    act = jnp.linspace(-1.0, 1.0, 8)[:, None]
    after, step = improve(
        learner,
        lambda key: of_one_state(act, terminated=False),
        Pressure(jnp.ones(1), jnp.ones(1)),
        settings=settings,
        real_steps=4,
        key=jax.random.key(0),
    )
    counts = [after.critics_opt[0].count, after.policy_opt[0].count, after.temperature_opt[0].count]
    assert [int(count) for count in counts] == [4 * ratio, 4, 4]
    assert step.target.shape == (2,)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((after, step)))


class Runner(gymnasium.Env):
    """v' = clip(v + 0.2·a, 0, 1); reward v', cost v'². At a limit of 25 of 100 steps: v = ½."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.speed = 0.5
        return np.array([self.speed], np.float32), {}

    def step(self, action):
        self.speed = float(np.clip(self.speed + 0.2 * float(action[0]), 0.0, 1.0))
        obs = np.array([self.speed], np.float32)
        return obs, self.speed, False, False, {"cost": self.speed**2}


def runner_settings(folder) -> TrainSettings:
    return tiny(
        "sac-lag",
        folder,
        env_id="python:Runner",
        num_envs=10,
        batch_size=200,
        initial_steps=400,
        total_steps=30_400,
        cost_limit=(LIMIT,),
        cost_estimate__target=1.0,
        policy__hidden=(32,),
        critic__hidden=(32,),
        replay__size=20_000,
        replay__batch_size=64,
        # J_c of two episodes, late by what the critics need: λ swings with the default's 0.5.
        lagrangian__gains=(2.0, 0.05, 0.0),
    )


@pytest.mark.slow
def test_it_finds_the_best_speed_that_keeps_the_limit(tmp_path):
    """By Jensen no policy earns more than 100·√(25/100) = 50 at a cost of 25: steady is best."""
    settings = replace(runner_settings(tmp_path), checkpoint_every=1000)
    rows = []
    agent = Agent.of_settings(settings, lambda: gymnasium.wrappers.TimeLimit(Runner(), HORIZON))
    found = (
        agent.learn(callback=lambda agent, row: rows.append(row)).evaluate(episodes=20).stochastic
    )
    late = rows[2 * len(rows) // 3 :]
    assert np.mean([row["Constraint/Real"] for row in late]) == pytest.approx(LIMIT, rel=0.15)
    assert found.mean_return().mean == pytest.approx(50.0, rel=0.1)
    assert found.mean_cost().mean <= 1.15 * LIMIT
    assert np.mean([row["Metrics/LagrangeMultiplier"] for row in late]) == pytest.approx(
        1.0, rel=0.2
    ), "dE[v]/dE[v²] at v = ½"
