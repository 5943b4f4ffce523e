"""Any Gymnasium environment with Box spaces that reports a cost, in the form it is stepped here."""

import copy
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float

from cmbpo.settings.registry import TASKS
from cmbpo.tasks.environment import FromSafetyGymnasium

Environment = str | gymnasium.Env | Callable[..., gymnasium.Env]


class EnvAdapter(gymnasium.Wrapper):
    """An environment as this package steps it.

    Actions within [−1, 1] are rescaled to the environment's bounds, observations are doubles, and
    `info` holds one array, the costs.
    """

    def __init__(self, env: gymnasium.Env, cost_key: tuple[str, ...]):
        """Put around `env`, whose spaces `refusal` has passed."""
        super().__init__(env)
        assert isinstance(env.observation_space, Box)
        assert isinstance(env.action_space, Box)
        self.bounds = env.action_space
        self.cost_key = cost_key
        self.observation_space = Box(-np.inf, np.inf, env.observation_space.shape, np.float64)
        self.action_space = Box(-1.0, 1.0, env.action_space.shape, np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        """Start an episode."""
        obs = _begun(self.env, seed, options)
        return _observed(obs, self.observation_space.shape), {}

    def step(
        self, action: Any
    ) -> tuple[Float[np.ndarray, " obs"], float, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        act = rescaled(np.asarray(action), self.bounds).astype(self.bounds.dtype)
        obs, reward, terminated, truncated, info = self.env.step(act)
        for key in self.cost_key:
            if key not in info:
                there = ", ".join(map(repr, info)) or "nothing"
                raise ValueError(
                    f"a step reports no cost: info has no {key!r}, but {there}"
                    " (--env.cost-key names another)"
                )
        costs = np.array([_number(f"info[{key!r}]", info[key]) for key in self.cost_key])
        seen = _observed(obs, self.observation_space.shape)
        earned = _number("the reward of a step", reward)
        return seen, earned, bool(terminated), bool(truncated), {"cost": costs}


def _number(name: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"{name} is {value!r}; allowed: a number")
    return float(array.item())


def _observed(obs: Any, shape: tuple[int, ...] | None) -> Float[np.ndarray, " obs"]:
    seen = np.asarray(obs)
    if seen.shape != shape or seen.dtype.kind not in "biuf":
        got = f"{seen.dtype} of shape {seen.shape}" if seen.dtype.kind != "O" else repr(obs)
        raise ValueError(
            f"an observation is {got}; allowed: numbers of shape {shape}, as its space says"
        )
    return np.array(seen, np.float64)


def rescaled(act: Float[Any, "*batch act"], bounds: Box) -> Float[Any, "*batch act"]:
    """From [−1, 1], where it is clipped to, to the bounds: low + ½(a + 1)(high − low)."""
    xp = act.__array_namespace__()
    shape = (1,) * (act.ndim - 1) + bounds.shape
    low = xp.asarray(bounds.low, dtype=act.dtype).reshape(shape)
    high = xp.asarray(bounds.high, dtype=act.dtype).reshape(shape)
    share = 0.5 * (xp.clip(act, -1.0, 1.0) + 1.0)
    # Clipped again: rounding may leave the bounds by one digit, which some robots refuse.
    return xp.clip(low + share * (high - low), low, high)


def observation_refusal(space: gymnasium.Space) -> str | None:
    """Why observations cannot be used, and what to wrap the environment with; None if they can."""
    flatten = "gymnasium.wrappers.FlattenObservation makes it one"
    if not isinstance(space, Box):
        return f"the observation space is {type(space).__name__}; allowed: a vector. {flatten}"
    if len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8):
        return (
            f"the observation is an image of shape {space.shape}; allowed: a vector. Observe the"
            " state, or encode the image with gymnasium.wrappers.TransformObservation"
        )
    if len(space.shape) != 1 or space.shape[0] == 0:
        return f"the observation has shape {space.shape}; allowed: a vector. {flatten}"
    return None


def action_refusal(space: gymnasium.Space) -> str | None:
    """Why actions cannot be used, and what to wrap the environment with; None if they can."""
    wrapper = "gymnasium.wrappers.TransformAction(env, function, Box(…))"
    if not isinstance(space, Box):
        return (
            f"the action space is {type(space).__name__}; allowed: a Box of real numbers."
            f" {wrapper} can choose one of these actions by a vector"
        )
    if len(space.shape) != 1 or space.dtype.kind != "f":
        return (
            f"the actions are {space.dtype} of shape {space.shape}; allowed: a vector of real"
            f" numbers. {wrapper} makes them of one"
        )
    if space.shape[0] == 0:
        return "the action has no entries; allowed: at least one"
    if (space.low == space.high).all():
        return (
            f"low and high of the action space are both {space.low}; allowed: a width above 0,"
            " since no action would differ from another"
        )
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    if not bounded.all():
        return (
            f"action {np.flatnonzero(~bounded)[0]} has no finite bounds; allowed: finite ones,"
            f" since they say its scale. {wrapper} gives them"
        )
    return None


def adapt(env: gymnasium.Env, cost_key: tuple[str, ...]) -> EnvAdapter:
    """The environment in the form it is stepped here, be it Gymnasium's or Safety-Gymnasium's."""
    problem = observation_refusal(env.observation_space) or action_refusal(env.action_space)
    if problem is not None:
        raise ValueError(problem)
    try:
        inspect.signature(env.unwrapped.reset).bind(seed=0, options=None)
    except TypeError as error:
        raise ValueError(
            f"reset() cannot be called with seed and options ({error}); allowed:"
            " reset(self, *, seed=None, options=None)"
        ) from error
    return EnvAdapter(_with_five_parts(env), cost_key)


def _with_five_parts(env: gymnasium.Env) -> gymnasium.Env:
    """The same with Gymnasium's steps; a translation is put around what makes six parts.

    Wrappers of Gymnasium's around that, such as the time limit of `gymnasium.make`, take five only.
    """
    try:
        step = _first_step(env)
    except (ValueError, gymnasium.error.Error):
        if not isinstance(env, gymnasium.Wrapper):
            raise
        env.env = _with_five_parts(env.env)
        step = _first_step(env)
    if len(step) == 6:
        _number("the cost of a step, its third part,", step[2])
        return FromSafetyGymnasium(env)
    return env


def _first_step(env: gymnasium.Env) -> tuple[Any, ...]:
    _begun(env, 0, None)
    step: Any = env.step(env.action_space.sample())
    if not (isinstance(step, tuple) and len(step) in (5, 6) and isinstance(step[-1], dict)):
        raise ValueError(
            f"step() returned {_kinds(step)}; allowed: (observation, reward, terminated, truncated,"
            " info), or with the cost after the reward, as Safety-Gymnasium does"
        )
    return step


def _begun(env: gymnasium.Env, seed: int | None, options: dict[str, Any] | None) -> Any:
    start: Any = env.reset(seed=seed, options=options)
    if not (isinstance(start, tuple) and len(start) == 2 and isinstance(start[1], dict)):
        raise ValueError(f"reset() returned {_kinds(start)}; allowed: (observation, info)")
    return start[0]


def _kinds(value: Any) -> str:
    if not isinstance(value, tuple):
        return type(value).__name__
    return f"({', '.join(type(part).__name__ for part in value)})"


def maker(env: Environment) -> Callable[..., gymnasium.Env]:
    """A function that makes copies of an environment: given its id, a function, or one of them."""
    if isinstance(env, str):
        return partial(_make, env)
    if isinstance(env, gymnasium.Env):
        return partial(_copied, env)
    return env


def _make(env_id: str, **options: Any) -> gymnasium.Env:
    # `cmbpo` is a script in a folder of its own: modules of the working folder are not on its path.
    if ":" in env_id and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **options)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"{env_id!r} cannot be made: {str(error).rstrip('.')}. There are the tasks"
            f" {', '.join(TASKS)}, what is registered with Gymnasium, and your own as"
            " module:Name-v0"
        ) from None
    except ModuleNotFoundError as error:
        # Gymnasium raises one of its own, without the name, where it does not find the module.
        if error.name is not None:
            raise
        module = env_id.partition(":")[0]
        raise ValueError(
            f"{env_id!r} cannot be made: there is no module {module!r} here or installed"
        ) from None


def _copied(env: gymnasium.Env) -> gymnasium.Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever the environment holds decides what is raised
        raise ValueError(
            f"{env} cannot be copied ({error}); allowed then: a function that makes it, as in"
            " lambda: gymnasium.make(…)"
        ) from error


def time_limit(env: gymnasium.Env) -> int | None:
    """The steps after which an environment truncates its episodes, if it says so."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


class Transitions(NamedTuple):
    """Steps of one copy, one after the other; those that are not `sound` are terminal."""

    obs: Float[np.ndarray, "n obs"]
    act: Float[np.ndarray, "n act"]
    next_obs: Float[np.ndarray, "n obs"]
    reward: Float[np.ndarray, " n"]
    cost: Float[np.ndarray, "n cost"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]

    @property
    def sound(self) -> Bool[np.ndarray, " n"]:
        """Where observation, reward and costs are finite."""
        finite = np.isfinite(self.next_obs).all(axis=1) & np.isfinite(self.cost).all(axis=1)
        return finite & np.isfinite(self.reward)


def random_steps(env: EnvAdapter, steps: int, *, horizon: int, seed: int) -> Transitions:
    """Steps with actions uniform in [−1, 1], episodes begun anew after `horizon` steps at most."""
    random = np.random.default_rng(seed)
    acts = random.uniform(-1.0, 1.0, (steps, *env.bounds.shape))
    rows = []
    obs, _ = env.reset(seed=seed)
    age = 0
    for act in acts:
        next_obs, reward, terminated, truncated, info = env.step(act)
        age += 1
        truncated = truncated or age == horizon
        terminated |= not all(np.isfinite(x).all() for x in (next_obs, reward, info["cost"]))
        rows.append((obs, act, next_obs, reward, info["cost"], terminated, truncated))
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset(seed=int(random.integers(2**31)))
            age = 0
    return Transitions(*(np.array(column) for column in zip(*rows, strict=True)))
