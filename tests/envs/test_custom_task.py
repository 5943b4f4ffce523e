"""Any environment with Box spaces and a cost is a task; any other is refused with what to do."""

import subprocess
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from cmbpo.envs.adapter import adapt
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.envs.making import maker, time_limit
from cmbpo.envs.spaces import action_refusal, observation_refusal, rescaled
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.environment import ToSafetyGymnasium


class Cart(gymnasium.Env):
    """A cart on a rail, pushed with −1 to 3 N; fast and far each have a cost."""

    def __init__(self, observation_space=None, action_space=None):
        self.observation_space = observation_space or Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = action_space or Box(-1.0, 3.0, (1,), np.float32)
        self.pushed = np.zeros(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=2)
        return self.state.astype(np.float32), {}

    def step(self, action):
        self.pushed = action
        self.state = self.state + 0.1 * np.array([self.state[1], action[0]])
        obs = self.state.astype(np.float32)
        info = {"cost": float(abs(obs[1]) > 1.0), "far": float(abs(obs[0]) > 1.0)}
        return obs, float(obs[0]), bool(abs(obs[0]) > 4.0), False, info


class Knowing(Cart):
    """The same, which says of observations what costs and what ends."""

    def cost(self, obs, act, next_obs):
        return abs(next_obs[..., 1]) > 1.0

    def terminated(self, obs, act, next_obs):
        return abs(next_obs[..., 0]) > 4.0


class Pushing(Knowing):
    """Costs what it is pushed with, in newtons."""

    def cost(self, obs, act, next_obs):
        return act[..., 0]

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, info | {"cost": float(action[0])}


class Wrong(Knowing):
    """Its function forgets that speed has two directions."""

    def cost(self, obs, act, next_obs):
        return next_obs[..., 1] > 1.0


class Accounting(Cart):
    """Has methods and numbers of these names for purposes of its own."""

    terminated = False

    def cost(self, currency):
        return f"12 {currency}"


class NumpyOnly(Knowing):
    """Its function cannot take JAX arrays."""

    def cost(self, obs, act, next_obs):
        return np.where(np.asarray(next_obs)[..., 1] > 1.0, 1.0, 0.0)


def limited(kind, *args, steps=50):
    return gymnasium.wrappers.TimeLimit(kind(*args), steps)


def task_of(kind, limits=(5.0,), **settings):
    return CustomTask(
        lambda: limited(kind), name="Cart", cost_limits=limits, settings=EnvSettings(**settings)
    )


def test_a_task_has_the_environments_sizes_limits_and_time():
    task = task_of(Cart, (5.0, 2.0), cost_key=("cost", "far"))
    assert (len(task.obs_names), len(task.act_names), task.horizon) == (2, 1, 50)
    assert (task.cost_names, task.cost_limits) == (("cost", "far"), (5.0, 2.0))
    assert (task.knows_cost, task.knows_termination) == (False, False)
    assert task_of(Cart, horizon=20).horizon == 20


@pytest.mark.parametrize("xp", [np, jnp])
def test_actions_are_rescaled_to_the_bounds_and_clipped_there(xp):
    bounds = Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]), dtype=np.float64)
    act = xp.asarray([[[-1.0, 1.0], [0.0, 0.0], [9.0, -9.0]]])
    np.testing.assert_allclose(rescaled(act, bounds), [[[-1.0, 0.5], [1.0, 0.25], [3.0, 0.0]]])


def test_the_environment_receives_its_own_units_and_type():
    env = adapt(limited(Cart), ("cost",))
    env.reset(seed=0)
    env.step(np.array([0.5]))
    pushed = env.get_wrapper_attr("pushed")
    assert pushed == 2.0
    assert pushed.dtype == np.float32


def test_costs_are_taken_in_the_order_of_their_names():
    env = adapt(limited(Cart), ("far", "cost"))
    env.reset(seed=0)
    env.set_wrapper_attr("state", np.array([3.0, 0.0]))
    assert env.step(np.zeros(1))[4]["cost"].tolist() == [1.0, 0.0]


def test_six_tuples_of_safety_gymnasium_are_understood():
    six = ToSafetyGymnasium(Cart())
    five = adapt(Cart(), ("cost",))
    adapted = adapt(six, ("cost",))
    for env in (five, adapted):
        env.reset(seed=3)
    for a, b in zip(five.step(np.ones(1)), adapted.step(np.ones(1)), strict=True):
        np.testing.assert_equal(a, b)


def test_the_environments_functions_are_used_on_any_leading_axes():
    task = task_of(Knowing)
    assert (task.knows_cost, task.knows_termination) == (True, True)
    task.verify()
    next_obs = jnp.array([[[0.0, 0.5], [0.0, -1.5]], [[5.0, 0.0], [jnp.nan, 0.0]]])
    cost = jax.jit(task.costs)(next_obs, next_obs[..., :1], next_obs)
    assert cost.tolist() == [[[0.0], [1.0]], [[0.0], [1.0]]]
    assert cost.dtype == jnp.float32
    ended = jax.jit(task.terminated)(next_obs, next_obs[..., :1], next_obs)
    assert ended.tolist() == [[False, False], [True, True]]


def test_what_cannot_be_called_with_two_observations_and_an_action_is_not_the_function():
    task = task_of(Accounting)
    assert (task.knows_cost, task.knows_termination) == (False, False)
    task.verify()


def test_the_environments_functions_see_its_own_units():
    task = task_of(Pushing)
    task.verify()
    assert task.costs(np.zeros((1, 2)), np.array([[0.0]]), np.zeros((1, 2))) == 1.0


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Wrong, r"cost\(obs, act, next_obs\) differs from the environment on .*% of 300 steps"),
        (NumpyOnly, r"cost\(obs, act, next_obs\) fails on JAX arrays .*__array_namespace__"),
    ],
)
def test_functions_that_cannot_be_used_are_refused_before_training(kind, sentence):
    with pytest.raises(ValueError, match=sentence):
        task_of(kind).verify()


@pytest.mark.parametrize(
    ("space", "advice"),
    [
        (Dict(a=Discrete(3)), "'a' cannot be used: .* Discrete.*FlattenObservation"),
        (Dict(a=Dict(b=Box(-1, 1, (4, 2)))), r"'a.b' cannot be used: .*\(4, 2\).*Flatten"),
        (Discrete(3), "Discrete.*FlattenObservation"),
        (Box(0, 255, (32, 32, 3), np.uint8), "image.*TransformObservation"),
        (Box(0, 255, (32, 32), np.uint8), "image.*TransformObservation"),
        (Box(0, 1, (32, 32, 3)), "image.*TransformObservation"),
        (Box(-1, 1, (4, 2)), r"\(4, 2\).*FlattenObservation"),
    ],
)
def test_observations_that_are_no_vector_are_refused_with_what_to_wrap_them_with(space, advice):
    with pytest.raises(ValueError, match=advice):
        adapt(Cart(observation_space=space), ("cost",))
    if "FlattenObservation" in advice:
        flat = gymnasium.wrappers.FlattenObservation(Cart(observation_space=space))
        assert observation_refusal(flat.observation_space) is None


class Sensors(Cart):
    """The cart, which observes a Dict."""

    def __init__(self, lost: bool = False):
        inner = Dict({"velocity": Box(-np.inf, np.inf, (1,)), "clock": Box(0.0, np.inf, ())})
        super().__init__(Dict({"position": Box(-np.inf, np.inf, (1,)), "inner": inner}))
        self.lost = lost

    def _told(self, obs):
        inner = {"clock": np.float32(0.5), "velocity": obs[1:]}
        return {"inner": inner} if self.lost else {"position": obs[:1], "inner": inner}

    def reset(self, *, seed=None, options=None) -> Any:
        obs, info = super().reset(seed=seed)
        return self._told(obs), info

    def step(self, action) -> Any:
        obs, *rest = super().step(action)
        return self._told(obs), *rest


def test_the_entries_of_a_dict_stand_in_a_row_in_the_order_of_its_space():
    task = task_of(Sensors)
    assert task.obs_names == ("inner.clock_0", "inner.velocity_0", "position_0")
    adapted = adapt(Sensors(), ("cost",))
    plain = adapt(Cart(), ("cost",))
    (obs, _), (flat, _) = adapted.reset(seed=3), plain.reset(seed=3)
    np.testing.assert_array_equal(obs, [0.5, flat[1], flat[0]])
    step, same = adapted.step(np.array([0.3])), plain.step(np.array([0.3]))
    np.testing.assert_array_equal(step[0], [0.5, same[0][1], same[0][0]])
    many = {
        "inner": {"clock": np.full(4, 0.5), "velocity": np.full((4, 1), 2.0)},
        "position": np.full((4, 1), 3.0),
    }
    np.testing.assert_array_equal(task.as_rows(many), [[0.5, 2.0, 3.0]] * 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"position": None}, r"'position' of the observation is missing; allowed: \(1,\)"),
        ({"position": [1.0, 2.0]}, r"'position' of the observation has the shape \(2,\); allowed"),
        ({"inner": {"clock": 0.5, "velocity": []}}, r"'inner.velocity' of .* the shape \(0,\)"),
        ({"position": np.ones((4, 1))}, r"different numbers of rows, \(\), \(\), \(4,\); allowed"),
    ],
)
def test_entries_of_other_shapes_are_refused_even_if_they_fill_a_row_together(change, said):
    whole = {"inner": {"clock": 0.5, "velocity": [2.0]}, "position": [3.0]}
    task = task_of(Sensors)
    np.testing.assert_array_equal(task.as_rows(whole), [0.5, 2.0, 3.0])
    with pytest.raises(ValueError, match=said):
        task.as_rows(whole | change)


def test_an_entry_that_is_missing_is_named():
    with pytest.raises(EnvironmentFailure, match=r"'position' of an observation is None; allowed"):
        adapt(Sensors(lost=True), ("cost",)).reset(seed=0)


@pytest.mark.parametrize(
    ("space", "advice"),
    [
        (Discrete(3), "Discrete.*TransformAction"),
        (Box(0, 5, (2,), np.int64), "int64.*TransformAction"),
        (Box(-1, 1, (2, 2)), r"\(2, 2\).*TransformAction"),
        (Box(-np.inf, np.inf, (2,)), "action 0 has no finite bounds.*TransformAction"),
        (Box(0, 0, (2,)), r"low and high of the action space are both \[0. 0.\]; allowed: a width"),
        (Box(0, 1, (0,)), "the action has no entries; allowed: at least one"),
    ],
)
def test_actions_that_have_no_scale_are_refused_with_what_to_wrap_them_with(space, advice):
    with pytest.raises(ValueError, match=advice):
        adapt(Cart(action_space=space), ("cost",))


def test_the_advised_wrapper_makes_discrete_actions_usable():
    wrapped = gymnasium.wrappers.TransformAction(
        Cart(action_space=Discrete(3)), lambda a: int(a[0] > 0), Box(-1.0, 1.0, (1,))
    )
    assert action_refusal(wrapped.action_space) is None


def test_a_missing_cost_is_named_with_what_there_is():
    with pytest.raises(ValueError, match=r"Cart: .*no 'costs', but 'cost', 'far' .*--env.cost-key"):
        task_of(Cart, cost_key=("costs",))


def test_a_time_limit_is_needed_and_found_wherever_it_is():
    assert time_limit(limited(Cart, steps=7)) == 7
    assert time_limit(gymnasium.make("Pendulum-v1")) == 200
    with pytest.raises(ValueError, match=r"has no time limit; give it one with --env.horizon"):
        CustomTask(Cart, name="Cart", cost_limits=(1.0,), settings=EnvSettings())
    with pytest.raises(ValueError, match=r"env.horizon is 60; allowed: at most 50"):
        task_of(Cart, horizon=60)


def test_copies_come_from_an_id_a_function_or_an_environment():
    env = limited(Cart)
    assert str(maker("Pendulum-v1")().unwrapped) == "<PendulumEnv<Pendulum-v1>>"
    assert isinstance(maker(Cart)(), Cart)
    assert maker(env)() is not env


def test_a_module_of_the_working_folder_is_found(tmp_path):
    (tmp_path / "robots.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
        "gymnasium.register('Mine-v0', entry_point=PendulumEnv, max_episode_steps=9)\n"
    )
    code = (
        "from cmbpo.envs.making import maker\n"
        "print(maker('robots:Mine-v0')().spec.max_episode_steps)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "9"
