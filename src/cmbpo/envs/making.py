"""From what the user gives, an id, a function or an environment, to what makes copies of it."""

import copy
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from cmbpo.envs.failures import EnvironmentFailure, place
from cmbpo.settings.registry import TASKS

Environment = str | gymnasium.Env | Callable[..., gymnasium.Env]


def require_environment(env: object) -> None:
    """Refuse what is no environment, and names and makes none."""
    if not isinstance(env, str | gymnasium.Env) and (
        isinstance(env, gymnasium.vector.VectorEnv) or not callable(env)
    ):
        raise EnvironmentFailure(
            f"env is {_called(env)}; allowed: the id of a task or of an environment, an environment"
            " of Gymnasium's, or a function that makes one"
        )


def require_made(env: object) -> None:
    """Refuse what a function made that is no environment."""
    if not isinstance(env, gymnasium.Env):
        raise EnvironmentFailure(
            f"what makes it returned {_called(env)}; allowed: an environment of Gymnasium's"
        )


def _called(value: object) -> str:
    if isinstance(value, gymnasium.vector.VectorEnv):
        return f"a {type(value).__name__}, several environments at once"
    return f"{value!r:.80}"


def maker(env: Environment) -> Callable[..., gymnasium.Env]:
    """A function that makes copies of an environment: given its id, a function, or one of them."""
    require_environment(env)
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
        raise EnvironmentFailure(
            f"{env_id!r} cannot be made: {str(error).rstrip('.?')}. There are the tasks"
            f" {', '.join(TASKS)}, what is registered with Gymnasium, and your own as"
            " module:Name-v0"
        ) from None
    except ModuleNotFoundError as error:
        # Gymnasium raises one of its own, without a name, from the one that says what is missing.
        missing = error.__cause__ if error.name is None else error
        if not isinstance(missing, ModuleNotFoundError) or missing.name is None:
            raise
        raise EnvironmentFailure(f"{env_id!r} cannot be made: {_absent(env_id, missing)}") from None


def _absent(env_id: str, missing: ModuleNotFoundError) -> str:
    """Which module is not there: the user's own, or one that it imports."""
    module, name = env_id.partition(":")[0], str(missing.name)
    if module == name or module.startswith(f"{name}."):
        return f"there is no module {module!r} here or installed"
    return f"its module needs {name!r}, which is not here or installed,{place(missing)}"


def _copied(env: gymnasium.Env) -> gymnasium.Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever the environment holds decides what is raised
        raise EnvironmentFailure(
            f"{env} cannot be copied ({error}); allowed then: a function that makes it, as in"
            " lambda: gymnasium.make(…)"
        ) from error


def horizon_of(env: gymnasium.Env, name: str, asked: int | None) -> int:
    """The steps of an episode: those that are asked for, or else those of its time limit."""
    own = time_limit(env)
    if asked is None and own is None:
        raise ValueError(
            f"{name} has no time limit; give it one with --env.horizon, with max_episode_steps"
            " where it is registered, or with gymnasium.wrappers.TimeLimit"
        )
    if asked is not None and own is not None and asked > own:
        raise ValueError(f"env.horizon is {asked}; allowed: at most {own}, the limit of {name}")
    return asked or own or 0


def time_limit(env: gymnasium.Env) -> int | None:
    """The steps after which an environment truncates its episodes, if it says so."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None
