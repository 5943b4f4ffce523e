"""The tasks: constrained robots as Gymnasium environments, and the known part of each.

Importing this package registers the environments and imports neither MuJoCo nor JAX.
"""

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from cmbpo.tasks.task import SimulatedTask

_TASKS = {
    "AntSafe-v0": "ant_safe:AntSafe",
    "HalfCheetahSafe-v0": "half_cheetah_safe:HalfCheetahSafe",
    "AntCircle-v0": "ant_circle:AntCircle",
    "PointCircle-v0": "point_circle:PointCircle",
}


def names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(_TASKS)


def get(name: str, **options: Any) -> "SimulatedTask":
    """The task of this name (`AntSafe`, `AntSafe-v0`, `cmbpo/AntSafe-v0`) with its options set."""
    full = name.removeprefix("cmbpo/")
    full = full if "-v" in full else f"{full}-v0"
    if full not in _TASKS:
        raise ValueError(f"there is no task {name!r}; allowed: {', '.join(_TASKS)}")
    module, kind = _TASKS[full].split(":")
    task = getattr(importlib.import_module(f"cmbpo.tasks.{module}"), kind)
    allowed = {field.name: field.default for field in dataclasses.fields(task)}
    for option, value in options.items():
        if option not in allowed:
            raise ValueError(
                f"{full} has no option {option!r}; allowed: {', '.join(allowed) or 'none'}"
            )
        is_switch = isinstance(allowed[option], bool)
        if is_switch != isinstance(value, bool) or not isinstance(value, int | float):
            kind = "True, False" if is_switch else "a number"
            raise ValueError(f"{option} is {value!r}; allowed: {kind}")
    return task(**options)


def _register() -> None:
    for name in _TASKS:
        if f"cmbpo/{name}" not in gymnasium.registry:
            gymnasium.register(
                f"cmbpo/{name}",
                entry_point="cmbpo.tasks.environment:TaskEnv",
                kwargs={"task": name},
                max_episode_steps=1000,
            )


_register()
