"""What the log says of an update's values."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from cmbpo.policy import cost_estimate
from cmbpo.settings.presets import preset
from cmbpo.settings.schema import CostEstimateSettings, CriticSettings
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training import learner
from cmbpo.trajectory import Steps

ROWS, COPIES = 4, 5


def some_steps() -> Steps:
    zeros = jnp.zeros((ROWS, COPIES))
    obs = jax.random.normal(jax.random.key(0), (ROWS, COPIES, 4))
    return Steps(
        obs=obs,
        act=jnp.zeros((ROWS, COPIES, 2)),
        next_obs=obs,
        reward=zeros,
        cost=zeros[..., None],
        terminated=zeros.astype(bool),
        last=zeros.astype(bool),
        valid=zeros == 0.0,
    )


@pytest.mark.parametrize("network", [-1e4, 1e4])
@pytest.mark.parametrize("bound_cost", [True, False])
def test_v_c_is_shown_as_it_is_used_and_a_runaway_network_in_its_loss(bound_cost, network):
    settings = replace(
        preset("cpo", "PointCircle-v0"),
        batch_size=ROWS * COPIES,
        critic=CriticSettings(
            hidden=(8,), members=1, batch_size=ROWS * COPIES, epochs=1, bound_cost=bound_cost
        ),
    )
    start = learner.start(settings, PointCircle())
    runaway = eqx.tree_at(lambda c: c.output.mean, start.cost_critic, jnp.full((1, 1), network))
    fitted_before = eqx.tree_at(lambda o: o.count, start.cost_critic_opt, jnp.ones(1, jnp.int32))
    now = replace(start, cost_critic=runaway, cost_critic_opt=fitted_before)
    samples, shown = learner.gather(now.critic, runaway, [some_steps()], settings)
    bound = 1.0 / (1.0 - settings.advantage.cost_discount)
    used = min(max(network, 0.0), bound) if bound_cost else network
    for value in (shown.cost_min, shown.cost_max):
        assert float(value[0]) == pytest.approx(used, abs=1.0)
    _, told = learner.fit_critics(now, samples, jax.random.key(1), settings)
    assert (float(told.cost_loss[0]) > 1e3) == bound_cost


@pytest.mark.parametrize("apart", [True, False])
def test_advantages_are_of_one_scale_with_the_batch_or_with_their_own_kind(apart):
    """Imagined rewards are 100 larger here: together they are what is good, apart they are not."""
    start = preset("cmbpo", "PointCircle-v0")
    settings = replace(
        start, batch_size=2 * ROWS * COPIES, advantage=replace(start.advantage, apart=apart)
    )
    now = learner.start(settings, PointCircle())
    noise = jax.random.normal(jax.random.key(1), (2, ROWS, COPIES))
    parts = [
        eqx.tree_at(
            lambda s: (s.reward, s.cost, s.last),
            some_steps(),
            (noise[i] + 100.0 * i, (noise[i] + i)[..., None], jnp.ones((ROWS, COPIES), bool)),
        )
        for i in range(2)
    ]
    samples, shown = learner.gather(now.critic, now.cost_critic, parts, settings)
    real, imagined = jnp.split(samples.advantage, 2)
    of_cost = jnp.split(samples.cost_advantage[:, 0], 2)
    assert float(shown.advantage) == pytest.approx(50.0, abs=2.0), "as it is, before any scale"
    if apart:
        for part in (real, imagined):
            assert float(part.mean()) == pytest.approx(0.0, abs=1e-5)
            assert float(part.std()) == pytest.approx(1.0, abs=1e-4)
        assert [float(c.mean()) for c in of_cost] == pytest.approx([0.0, 0.0], abs=1e-5)
    else:
        assert float(real.max()) < 0.0 < float(imagined.min())
        assert float(of_cost[1].mean() - of_cost[0].mean()) > 0.5


@pytest.mark.parametrize(
    ("source", "imagined", "used"),
    [
        ("real", 0.1, 50.0),
        ("larger", 0.1, 100.0),
        ("larger", 0.01, 50.0),
        ("batch", 0.1, 75.0),
        ("larger", None, 50.0),
        ("batch", None, 50.0),
    ],
)
def test_j_c_is_of_real_steps_of_the_costlier_kind_or_of_the_batch(source, imagined, used):
    """One of 20 real steps costs; the other 20 of the batch cost what is imagined."""
    settings = replace(
        preset("cmbpo", "PointCircle-v0"),
        batch_size=2 * ROWS * COPIES,
        cost_estimate=CostEstimateSettings(source=source, time_constant=0.0),
    )
    real = eqx.tree_at(lambda s: s.cost, some_steps(), replace_fn=lambda c: c.at[1, 2].set(1.0))
    rate = None if imagined is None else jnp.array([imagined])
    _, cost = learner.measure_cost(
        cost_estimate.nothing_seen(1), real, rate, settings.for_programs(), 1000
    )
    assert float(cost.used[0]) == pytest.approx(used)
    assert float(cost.real[0]) == pytest.approx(50.0)
