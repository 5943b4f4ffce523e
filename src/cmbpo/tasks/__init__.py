"""The tasks: constrained robots as Gymnasium environments, and the known part of each.

`settings.registry.TASKS` lists them. Importing this package imports neither Gymnasium nor MuJoCo.
"""

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from cmbpo.settings.registry import TASKS, is_built_in, task_name

if TYPE_CHECKING:
    from cmbpo.tasks.simulated import SimulatedTask


def names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(f"{name}-v0" for name in TASKS)


def get(name: str, **options: Any) -> "SimulatedTask":
    """The task of this name (`AntSafe`, `AntSafe-v0`, `cmbpo/AntSafe-v0`) with its options set."""
    if not is_built_in(name):
        raise ValueError(f"there is no task {name!r}; allowed: {', '.join(names())}")
    module, kind = TASKS[task_name(name)].split(":")
    task = getattr(importlib.import_module(module), kind)
    allowed = {field.name: field.default for field in dataclasses.fields(task)}
    for option, value in options.items():
        if option not in allowed:
            raise ValueError(
                f"{task.name} has no option {option!r}; allowed: {', '.join(allowed) or 'none'}"
            )
        is_switch = isinstance(allowed[option], bool)
        if is_switch != isinstance(value, bool) or not isinstance(value, int | float):
            kind = "True, False" if is_switch else "a number"
            raise ValueError(f"{option} is {value!r}; allowed: {kind}")
    return task(**options)
