"""The multipliers on a problem of many steps that is solved on paper, whose advantages shrink.

A speed within [0, 1] changes by a fifth of the action, v' = v + 0.2·a; reward v', cost v'², at most
25 in 100 steps. Since v² is convex, the best is a constant speed: v = 1/2, which earns 50, less the
first two steps, in which it is reached. While the policy grows surer its advantages shrink, and no
multiplier may have to grow for that.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.settings.overrides import with_values
from cmbpo.settings.presets import preset
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training import learner
from cmbpo.trajectory import Steps

HORIZON, COPIES = 100, 20
LIMIT, BEST = 25.0, 49.8


class Speed(PointCircle):
    """A task only as far as a learner asks for its sizes; `episodes` is what is stepped."""

    obs_names, act_names = ("speed",), ("push",)
    cost_limits = (LIMIT,)


def episodes(policy, key, *, unit):
    """An episode of every copy from rest, with cost in another unit."""

    def step(v, key):
        pi = jax.vmap(policy)(v[:, None])
        act = pi.mean + jnp.exp(pi.log_std) * jax.random.normal(key, (COPIES, 1))
        faster = jnp.clip(v + 0.2 * jnp.clip(act[:, 0], -1.0, 1.0), 0.0, 1.0)
        return faster, (v[:, None], act, faster)

    keys = jax.random.split(key, HORIZON)
    obs, act, speed = jax.lax.scan(step, jnp.zeros(COPIES), keys)[1]
    nowhere = jnp.zeros((HORIZON, COPIES), bool)
    return Steps(
        obs=obs,
        act=act,
        next_obs=speed[..., None],
        reward=speed,
        cost=unit * speed[..., None] ** 2,
        terminated=nowhere,
        last=nowhere.at[-1].set(True),
        valid=~nowhere,
    )


def trained(algo, *, unit, updates):
    """Return, cost in units of 1, and multiplier of each update."""
    small = {
        "num_envs": COPIES,
        "batch_size": COPIES * HORIZON,
        "policy.hidden": (16,),
        "policy.log_std": -0.5,
        "critic.hidden": (16,),
        "critic.batch_size": 500,
        "critic.epochs": 5,
        "cost_estimate.target": 1.0,
        "trust_region.fisher_share": 1.0,
    }
    settings = with_values(preset(algo, "HalfCheetahVelocity-v0"), small)
    static = settings.for_programs()
    limit = jnp.array([unit * LIMIT])

    def update(now, key):
        key_real, key_improve, key_critic = jax.random.split(key, 3)
        real = episodes(now.policy, key_real, unit=unit)
        samples, _ = learner.gather(now.critic, now.cost_critic, [real], static)
        seen, cost = learner.measure_cost(now.real_cost, real, None, static, HORIZON)
        policy, improvement, step, _ = learner.improve(
            now.policy,
            now.improvement,
            samples,
            cost,
            limit,
            key_improve,
            settings=static,
            horizon=HORIZON,
        )
        fitted, _ = learner.fit_critics(now, samples, key_critic, static)
        now = replace(now, policy=policy, improvement=improvement, real_cost=seen, **fitted)
        earned = real.reward.sum() / COPIES
        return now, (earned, cost.real[0] / unit, step.multiplier[0])

    start = learner.start(settings, Speed())
    keys = jax.random.split(jax.random.key(0), updates)
    return map(np.asarray, jax.jit(lambda now: jax.lax.scan(update, now, keys)[1])(start))


@pytest.mark.usefixtures("compiled_fast")
@pytest.mark.parametrize(
    ("algo", "unit", "updates"),
    [pytest.param("trpo-lag", 1.0, 300, marks=pytest.mark.slow), ("ppo-lag", 100.0, 200)],
)
def test_the_limit_is_held_while_the_policy_grows_surer(algo, unit, updates):
    earned, cost, multiplier = trained(algo, unit=unit, updates=updates)
    # with λ in units of a reward that shrinks it was 28 to 33, or 16 and 20
    assert cost[-100:].mean() == pytest.approx(LIMIT, rel=0.08)
    assert earned[-50:].mean() == pytest.approx(BEST, rel=0.05)
    assert multiplier[-100:].max() < 2.0
