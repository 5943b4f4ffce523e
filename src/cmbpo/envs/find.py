"""The task of a run: one of this package, or one made of the user's environment."""

from collections.abc import Sequence
from dataclasses import fields

import gymnasium
import numpy as np

from cmbpo import tasks
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.making import Environment, maker, require_environment
from cmbpo.settings.registry import is_built_in
from cmbpo.settings.schema import EnvSettings, TrainSettings
from cmbpo.settings.trust import IN_PYTHON, require_for_acting
from cmbpo.tasks.task import Task


def find_task(
    settings: TrainSettings, env: Environment | None = None, *, trusted: bool = False
) -> Task:
    """The task of a run: one of this package, or one made of the user's environment.

    Only settings that are `trusted`, being the user's own words or those of a run folder that the
    user trusts, have a module imported because they name it.
    """
    if env is None and is_built_in(settings.env_id):
        for field in fields(EnvSettings):
            if (value := getattr(settings.env, field.name)) != field.default:
                raise ValueError(
                    f"env.{field.name} is {value!r}; allowed for {settings.env_id}:"
                    f" {field.default!r}, since it is a task of this package"
                )
        task = tasks.get(settings.env_id)
        _require_limits(settings.cost_limit or task.cost_limits, task.cost_names, settings.env_id)
        return task
    name = settings.env_id.removeprefix(IN_PYTHON)
    if env is None and settings.env_id.startswith(IN_PYTHON):
        raise ValueError(
            f"the environment of this run, {name}, was made in Python; hand it over again, as in"
            " cmbpo.load(run, env=…)"
        )
    if env is None and not trusted:
        require_for_acting(settings)
    limits, costs = settings.cost_limit, settings.env.cost_key
    task = CustomTask(
        maker(settings.env_id if env is None else env),
        name=name,
        cost_limits=limits or (np.inf,) * len(costs),
        settings=settings.env,
        num_envs=settings.num_envs,
    )
    _require_limits(limits, costs, name)
    return task


def _require_limits(limits: Sequence[float] | None, costs: Sequence[str], name: str) -> None:
    if limits is None or len(limits) != len(costs):
        raise ValueError(
            f"cost_limit is {limits}; allowed for {name}: a number for each cost"
            f" ({', '.join(costs)}), as in --cost-limit {' '.join(['25'] * len(costs))}"
        )


def name_of(env: Environment) -> str:
    """The `env_id` of an environment: itself if it is one, else a name marked as made in Python."""
    require_environment(env)
    if isinstance(env, str):
        return env
    if isinstance(env, gymnasium.Env):
        name = type(env.unwrapped).__name__ if env.spec is None else env.spec.name
    else:
        name = getattr(env, "__name__", type(env).__name__)
    return IN_PYTHON + name.replace("<lambda>", "lambda")
