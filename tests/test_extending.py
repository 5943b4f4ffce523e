"""docs/extending.md as it stands: its algorithm reaches a known optimum, its task is the robot."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import cmbpo.tasks
from cmbpo.algorithms.update import Constraint, algorithm
from cmbpo.envs.simulator import Simulator
from cmbpo.networks import Policy
from cmbpo.settings import registry
from cmbpo.settings.overrides import changed
from cmbpo.settings.presets import preset
from cmbpo.training import loop
from cmbpo.trajectory import Samples
from tests.tiny import rows, steps, tiny

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FOCOPS, FOCOPS_ROW, SWIMMER, SWIMMER_ROW = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def as_module(monkeypatch, name: str, source: str) -> ModuleType:
    """The module that this source would be under `name`."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source, name, "exec"), vars(module))
    return module


def added(monkeypatch, table: dict, row: str) -> None:
    """Put a row of the page into a table of the registry, for the time of a test."""
    for name, value in eval("{" + row + "}", dict(vars(registry))).items():
        monkeypatch.setitem(table, name, value)


@pytest.fixture
def focops(monkeypatch):
    added(monkeypatch, registry.ALGORITHMS, FOCOPS_ROW)
    return as_module(monkeypatch, registry.ALGORITHMS["focops"].module, FOCOPS)


@pytest.fixture
def swimmer(monkeypatch):
    added(monkeypatch, registry.TASKS, SWIMMER_ROW)
    as_module(monkeypatch, registry.TASKS["SwimmerSafe"].split(":")[0], SWIMMER)
    return cmbpo.tasks.get("SwimmerSafe")


LIMIT, SIGMA, ROWS = 1.0, 0.3, 1024
STARTS = jnp.array([0.0, 2.0])


def at(mean: jax.Array) -> Policy:
    """A policy that sees nothing and acts with this mean."""
    key = jax.random.key(0)
    policy = Policy(1, 1, hidden=(), log_std=float(np.log(SIGMA)), last_layer_scale=0.0, key=key)
    return eqx.tree_at(lambda p: p.net.layers[0].bias, policy, mean[None])


def cost_of(policy: Policy):
    return policy(jnp.zeros(1)).mean ** 2 + jnp.exp(2.0 * policy.log_std)


def samples_of(policy: Policy) -> Samples:
    """Reward a, cost a²; actions at the quantiles of the policy, so that means are exact."""
    mean, std = policy(jnp.zeros(1)).mean, jnp.exp(policy.log_std)
    z = norm.ppf((jnp.arange(ROWS) + 0.5) / ROWS)[:, None]
    act = mean[None] + std[None] * z / z.std()
    return Samples(
        obs=jnp.zeros((ROWS, 1)),
        act=act,
        advantage=(act - mean[None])[:, 0] / SIGMA,
        cost_advantage=act**2 - cost_of(policy)[None],
        target=act[:, 0],
        cost_target=act**2,
        valid=jnp.ones(ROWS, bool),
    )


def probed(updates: int):
    """Mean action after each update and what its step predicted, from STARTS; σ is held."""
    settings = changed(
        preset("focops", "PointCircle"),
        {
            "clipped": {"learning_rate": 3e-3, "iterations": 10, "minibatches": 1},
            "lagrangian": {"rule": "adam"},
        },
    )
    update, target = algorithm("focops"), jnp.array([LIMIT])

    def one(carry, key):
        policy, state = carry
        cost = cost_of(policy)
        constraint = Constraint(cost - target, target, spent=cost, episodes=jnp.ones(()))
        better, state, step = update.improve(
            policy, state, samples_of(policy), constraint, settings=settings, horizon=1, key=key
        )
        better = eqx.tree_at(lambda p: p.log_std, better, policy.log_std)
        return (better, state), (better(jnp.zeros(1)).mean[0], step)

    def from_start(mean):
        first = (at(mean), update.start(at(mean), 1, settings))
        keys = jax.random.split(jax.random.key(1), updates)
        return jax.lax.scan(one, first, keys)[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(from_start))(STARTS))


@pytest.mark.usefixtures("focops")
def test_focops_reaches_the_best_safe_policy_of_a_problem_solved_on_paper():
    means, step = probed(900)
    np.testing.assert_allclose(means[:, -300:].mean(axis=1), np.sqrt(LIMIT - SIGMA**2), atol=0.03)
    assert ((means[:, -300:] ** 2).mean(axis=1) + SIGMA**2 <= 1.03 * LIMIT).all()
    assert (step.cost_change[1, 20:60] < 0.0).all(), "violated, once the multiplier has grown"
    assert step.kl.max() < 2.0 * preset("focops", "PointCircle").trust_region.max_kl


def test_no_state_beyond_the_trust_region_pulls(focops):
    one = jnp.ones(1)
    gradient = jax.grad(lambda r: focops.loss(0.03 * one, r * one, one, one, max_kl=0.02))(1.0)
    assert gradient == 0.0
    gradient = jax.grad(lambda r: focops.loss(0.01 * one, r * one, one, one, max_kl=0.02))(1.0)
    assert gradient == pytest.approx(-1.0 / focops.TEMPERATURE)


@pytest.mark.usefixtures("focops")
def test_focops_trains_with_its_own_flags_and_goes_on(tmp_path):
    settings = tiny("focops", tmp_path, total_steps=1000, policy__normalise=False)
    folder, _ = loop.run(settings)
    loop.resume(folder, total_steps=1600)
    written = rows(folder)
    assert [int(row["TotalEnvSteps"]) for row in written] == [400, 800, 1200, 1600]
    assert all(float(row["Metrics/LagrangeMultiplier"]) > 0.0 for row in written)
    with pytest.raises(ValueError, match=r"ensemble\.members is not read by focops"):
        changed(settings, {"ensemble.members": 3})


def test_the_swimmer_is_gymnasiums_with_a_threshold(swimmer):
    """Step by step from the same state, as Gymnasium's own starts its solver warm."""
    simulator = Simulator(swimmer, 3, seed=0, threads=1)
    robots: list[Any] = [
        gymnasium.make("Swimmer-v5", disable_env_checker=True).unwrapped for _ in range(3)
    ]
    random, costly = np.random.default_rng(0), 0
    for robot in robots:
        robot.reset(seed=0)
    for _ in range(200):
        before, act = simulator.state()["physics"], random.uniform(-1.0, 1.0, (3, 2))
        out = simulator.step(act)
        for i, robot in enumerate(robots):
            robot.set_state(before[i, 1:6], before[i, 6:])
            obs, reward, terminated, _, _ = robot.step(act[i])
            np.testing.assert_allclose(out.next_obs[i], obs, atol=1e-9)
            assert out.reward[i] == pytest.approx(reward, abs=1e-9)
            assert out.cost[i, 0] == float(np.hypot(obs[3], obs[4]) > 0.2282)
            assert not terminated
            assert not out.terminated[i]
            costly += int(out.cost[i, 0])
    assert 50 < costly < 550, "both sides of the threshold were seen"


@pytest.mark.usefixtures("swimmer", "compiled_fast")
@pytest.mark.slow
def test_the_swimmer_trains_in_the_world_and_in_imagination(tmp_path):
    settings = tiny("cmbpo", tmp_path, env_id="SwimmerSafe-v0", total_steps=steps(2))
    folder, policy = loop.run(settings)
    assert float(rows(folder)[-1]["Constraint/Limit"]) == 25.0
    assert policy(jnp.zeros(8)).mean.shape == (2,)
