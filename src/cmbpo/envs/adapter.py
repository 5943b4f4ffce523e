"""Any Gymnasium environment with plain spaces that reports a cost, as it is stepped here."""

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float

from cmbpo.envs.failures import EnvironmentFailure, Guard, Hung, moment, told
from cmbpo.envs.making import require_made
from cmbpo.envs.spaces import action_refusal, entries, entry_names, observation_refusal, rescaled
from cmbpo.tasks.environment import FromSafetyGymnasium


class EnvAdapter(gymnasium.Wrapper):
    """An environment as this package steps it.

    Actions within [−1, 1] are rescaled to the environment's bounds, observations are rows of
    doubles, those of a Dict one after the other, and `info` holds one array, the costs. What goes
    wrong inside is an `EnvironmentFailure`.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        cost_key: tuple[str, ...],
        *,
        copy: int | None = None,
        timeout: float | None = None,
    ):
        """Put around `env`, whose spaces have passed; it is the copy of this number, if of many."""
        super().__init__(env)
        assert isinstance(env.action_space, Box)
        self.bounds = env.action_space
        self.cost_key = cost_key
        self.obs_names = entry_names(env.observation_space)
        self.observation_space = Box(-np.inf, np.inf, (len(self.obs_names),), np.float64)
        self.action_space = Box(-1.0, 1.0, env.action_space.shape, np.float64)
        self._copy, self._timeout = copy, timeout
        self._seed: int | None = None
        self._age, self._act = 0, None
        self._guard = Guard(timeout, lambda: moment(copy, self._seed, self._age, self._act))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        """Start an episode."""
        self._seed, self._age, self._act = seed, 0, None
        with self._guard("reset()"):
            obs, _ = _checked_start(self.env.reset(seed=seed, options=options))
            return in_a_row(obs, self.env.observation_space), {}

    def step(
        self, action: Any
    ) -> tuple[Float[np.ndarray, " obs"], float, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        act = rescaled(np.asarray(action), self.bounds).astype(self.bounds.dtype)
        self._age, self._act = self._age + 1, act
        with self._guard("step()"):
            obs, reward, terminated, truncated, info = self.env.step(act)
            for key in self.cost_key:
                if key not in info:
                    raise EnvironmentFailure(f"a step reports no cost: {_without(key, info)}")
            costs = np.array([_number(f"info[{key!r}]", info[key]) for key in self.cost_key])
            seen = in_a_row(obs, self.env.observation_space)
            earned = _number("the reward", reward)
            ended, out = _flag("terminated", terminated), _flag("truncated", truncated)
            return seen, earned, ended, out, {"cost": costs}

    def close(self) -> None:
        """Close the environment; what goes wrong then is a failure of it too."""
        with Guard(self._timeout, lambda: _number_of(self._copy))("close()"):
            self.env.close()


class Parts(gymnasium.Wrapper):
    """Directly around the user's environment, below every wrapper: what it returns has its form.

    Gymnasium's wrappers would otherwise fail on it with words about their own code.
    """

    def __init__(self, env: gymnasium.Env):
        """How many parts its steps have is seen with the first."""
        super().__init__(env)
        self._parts: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        return _checked_start(self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        """Advance by one step."""
        step = _checked_step(self.env.step(action), self._parts)
        self._parts = len(step)
        return step


def _without(key: str, info: dict[str, Any]) -> str:
    if not info:
        return f"its info is empty; allowed: info with {key!r}, a number"
    there = ", ".join(map(repr, info))
    return f"info has no {key!r}, but {there} (--env.cost-key names another)"


def _checked_start(start: Any) -> tuple[Any, dict[str, Any]]:
    if not (isinstance(start, tuple) and len(start) == 2 and isinstance(start[1], dict)):
        raise EnvironmentFailure(f"reset() returned {_kinds(start)}; allowed: (observation, info)")
    return start


def _checked_step(step: Any, parts: int | None = None) -> tuple[Any, ...]:
    numbers = (5, 6) if parts is None else (parts,)
    if not (isinstance(step, tuple) and len(step) in numbers and isinstance(step[-1], dict)):
        cost = ", or with the cost after the reward, as Safety-Gymnasium does"
        allowed = {5: "", 6: f"{cost}: six parts, as the first step had"}
        raise EnvironmentFailure(
            f"step() returned {_kinds(step)}; allowed: (observation, reward, terminated, truncated,"
            f" info){allowed.get(parts or 0, cost)}"
        )
    return step


def _kinds(value: Any) -> str:
    if not isinstance(value, tuple):
        return type(value).__name__
    return f"({', '.join(type(part).__name__ for part in value)})"


def _number(name: str, value: Any) -> float:
    return float(_scalar(name, value, "a number"))


def _flag(name: str, value: Any) -> bool:
    return bool(value) if isinstance(value, bool) else bool(_scalar(name, value, "true or false"))


def _scalar(name: str, value: Any, allowed: str) -> Any:
    if type(value) is float:
        return value
    array = _array(value)
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        raise EnvironmentFailure(f"{name} is {value!r:.200}; allowed: {allowed}")
    return array.item()


def in_a_row(obs: Any, space: gymnasium.Space) -> Float[np.ndarray, " obs"]:
    """The numbers of an observation of this space, as doubles."""
    seen = [_observed(part, inner.shape, name) for name, part, inner in entries(obs, space)]
    return seen[0] if len(seen) == 1 else np.concatenate(seen)


def _observed(obs: Any, shape: tuple[int, ...], name: str) -> Float[np.ndarray, " obs"]:
    seen = _array(obs)
    if seen is None or seen.shape != shape or seen.dtype.kind not in "biuf":
        got = f"{obs!r:.200}"
        if seen is not None and seen.dtype.kind != "O":
            got = f"{seen.dtype} of shape {seen.shape}"
        what = "an observation" if name == "obs" else f"{name!r} of an observation"
        raise EnvironmentFailure(
            f"{what} is {got}; allowed: numbers of shape {shape}, as its space says"
        )
    return np.array(seen, np.float64).reshape(-1)


def _array(value: Any) -> np.ndarray | None:
    """The value as an array, or None where it can be none, such as rows of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        return None


def adapted(
    make: Callable[..., gymnasium.Env],
    cost_key: tuple[str, ...],
    *,
    copy: int | None = None,
    timeout: float | None = None,
    **options: Any,
) -> EnvAdapter:
    """A new copy in the form it is stepped here; `options` go to what makes it."""
    with Guard(timeout, lambda: _number_of(copy))("Making it"):
        env = make(**options)
        require_made(env)
    return adapt(env, cost_key, copy=copy, timeout=timeout)


def adapt(
    env: gymnasium.Env,
    cost_key: tuple[str, ...],
    *,
    copy: int | None = None,
    timeout: float | None = None,
) -> EnvAdapter:
    """The environment in the form it is stepped here, be it Gymnasium's or Safety-Gymnasium's."""
    problem = observation_refusal(env.observation_space) or action_refusal(env.action_space)
    if problem is not None:
        raise EnvironmentFailure(problem)
    try:
        inspect.signature(env.unwrapped.reset).bind(seed=0, options=None)
    except TypeError as error:
        raise EnvironmentFailure(
            f"reset() cannot be called with seed and options ({error}); allowed:"
            " reset(self, *, seed=None, options=None)"
        ) from error
    guard = Guard(timeout, lambda: told("It was the first call", _number_of(copy)))
    five = _with_five_parts(_with_checked_parts(env), guard)
    return EnvAdapter(five, cost_key, copy=copy, timeout=timeout)


def _number_of(copy: int | None) -> str:
    return "" if copy is None else f"It was copy {copy}"


def _with_checked_parts(env: gymnasium.Env) -> gymnasium.Env:
    if isinstance(env, gymnasium.Wrapper):
        env.env = _with_checked_parts(env.env)
        return env
    return Parts(env)


def _with_five_parts(env: gymnasium.Env, guard: Guard) -> gymnasium.Env:
    """The same with Gymnasium's steps; a translation is put around what makes six parts.

    Wrappers of Gymnasium's around that, such as the time limit of `gymnasium.make`, take five only.
    """
    try:
        step = _first_step(env, guard)
    except Hung:
        raise
    except EnvironmentFailure:
        if not isinstance(env, gymnasium.Wrapper) or isinstance(env, Parts):
            raise
        env.env = _with_five_parts(env.env, guard)
        step = _first_step(env, guard)
    if len(step) == 6:
        with guard("step()"):
            _number("the cost of a step, its third part,", step[2])
        return FromSafetyGymnasium(env)
    return env


def _first_step(env: gymnasium.Env, guard: Guard) -> tuple[Any, ...]:
    with guard("reset()"):
        _checked_start(env.reset(seed=0, options=None))
    with guard("step()"):
        return _checked_step(env.step(env.action_space.sample()))
