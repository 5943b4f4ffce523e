"""The task of a run: one of this package, or one made of the user's environment."""

from dataclasses import fields

import gymnasium
import numpy as np

from cmbpo import tasks
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.making import Environment, maker
from cmbpo.settings.registry import is_built_in
from cmbpo.settings.schema import EnvSettings, TrainSettings
from cmbpo.tasks.task import Task

IN_PYTHON = "python:"
"""What the `env_id` of a run begins with whose environment was handed over in Python."""


def find_task(settings: TrainSettings, env: Environment | None = None) -> Task:
    """The task of a run: one of this package, or one made of the user's environment."""
    if env is None and is_built_in(settings.env_id):
        for field in fields(EnvSettings):
            if (value := getattr(settings.env, field.name)) != field.default:
                raise ValueError(
                    f"env.{field.name} is {value!r}; allowed for {settings.env_id}:"
                    f" {field.default!r}, since it is a task of this package"
                )
        return tasks.get(settings.env_id)
    name = settings.env_id.removeprefix(IN_PYTHON)
    if env is None and settings.env_id.startswith(IN_PYTHON):
        raise ValueError(
            f"the environment of this run, {name}, was made in Python; hand it over again, as in"
            " cmbpo.load(run, env=…)"
        )
    limits, costs = settings.cost_limit, settings.env.cost_key
    task = CustomTask(
        maker(settings.env_id if env is None else env),
        name=name,
        cost_limits=limits or (np.inf,) * len(costs),
        settings=settings.env,
    )
    if limits is None or len(limits) != len(costs):
        raise ValueError(
            f"cost_limit is {limits}; allowed for {name}: a number for each cost"
            f" ({', '.join(costs)}), as in --cost-limit {' '.join(['25'] * len(costs))}"
        )
    return task


def name_of(env: Environment) -> str:
    """The `env_id` of an environment: itself if it is one, else a name marked as made in Python."""
    if isinstance(env, str):
        return env
    if isinstance(env, gymnasium.Env):
        name = type(env.unwrapped).__name__ if env.spec is None else env.spec.name
    else:
        name = getattr(env, "__name__", type(env).__name__)
    return IN_PYTHON + name.replace("<lambda>", "lambda")
