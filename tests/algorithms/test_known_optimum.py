"""CMBPO as a whole, model, imagination and constrained step, on a problem solved on paper.

A runner pushes with a ∈ [−1, 1]: v' = 0.9·v + 0.2·a, so at most v = 2. Reward v', cost 1 where
v' > 1. The best policy that never costs pushes fully until v = 1 and holds that:
v' = min(0.9·v + 0.2, 1). To stay at v = 2 would earn nearly twice as much.
"""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo.agent import Agent
from tests.tiny import tiny

HORIZON, LIMIT = 50, 5.0
REAL, UPDATES = 200, 60


class Runner(gymnasium.Env):
    """Observes its speed, and knows what costs and what ends."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.speed = self.np_random.uniform(-0.2, 0.2)
        return np.array([self.speed], np.float32), {}

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.2 * float(action[0])
        obs = np.array([self.speed], np.float32)
        return obs, self.speed, False, False, {"cost": float(self.cost(None, action, obs))}

    def cost(self, obs, act, next_obs):
        return next_obs[..., 0] > 1.0

    def terminated(self, obs, act, next_obs):
        return next_obs[..., 0] > np.inf


def best_return(start: float = 0.0) -> float:
    speeds = [start]
    for _ in range(HORIZON):
        speeds.append(min(0.9 * speeds[-1] + 0.2, 1.0))
    return sum(speeds[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_fast")
def test_cmbpo_finds_the_best_safe_policy_of_a_problem_of_many_steps(tmp_path):
    settings = tiny(
        "cmbpo",
        tmp_path,
        env_id="python:Runner",
        num_envs=10,
        batch_size=2000,
        initial_steps=500,
        archive_size=20_000,
        total_steps=500 + REAL * UPDATES,
        cost_limit=(LIMIT,),
        policy__hidden=(16,),
        policy__log_std=-1.0,
        # Units that follow so few steps move the policy further than steps of 200 samples answer.
        policy__adapt_units=False,
        critic__hidden=(16,),
        critic__members=1,
        critic__learning_rate=3e-3,
        critic__batch_size=500,
        critic__epochs=8,
        critic__bound_cost=True,
        ensemble__hidden=(32,),
        ensemble__batch_size=256,
        ensemble__epochs=3,
        ensemble__fit_every=REAL,
        rollout__lanes=60,
        real_share__min_real=REAL,
        real_share__max_real=REAL,
        trust_region__max_kl=0.02,
    )
    settings = replace(settings, checkpoint_every=UPDATES)
    rows = []
    agent = Agent.of_settings(settings, lambda: gymnasium.wrappers.TimeLimit(Runner(), HORIZON))
    found = (
        agent.learn(callback=lambda agent, row: rows.append(row))
        .evaluate(episodes=20)
        .deterministic
    )
    assert found.mean_cost().mean <= LIMIT
    assert found.mean_return().mean == pytest.approx(best_return(), rel=0.05)
    assert np.mean([row["Constraint/Real"] for row in rows[UPDATES // 2 :]]) <= LIMIT
    assert rows[-1]["Metrics/EpRet"] == pytest.approx(best_return(), rel=0.05)
