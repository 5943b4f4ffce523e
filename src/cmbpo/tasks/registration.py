"""Registers the tasks with Gymnasium as soon as it is imported, without importing it first.

Gymnasium takes longer to import than `cmbpo --help` may take to answer.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from cmbpo.tasks import names


class _AfterGymnasium:
    """Finds Gymnasium where it is, and registers the tasks once it has run."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _register_all()

        spec.loader.exec_module = exec_module
        return spec


def register() -> None:
    """Now, if Gymnasium has been imported; otherwise when it is."""
    if "gymnasium" in sys.modules:
        _register_all()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


def _register_all() -> None:
    import gymnasium

    for name in names():
        if f"cmbpo/{name}" not in gymnasium.registry:
            gymnasium.register(
                f"cmbpo/{name}",
                entry_point="cmbpo.tasks.environment:TaskEnv",
                kwargs={"task": name},
                max_episode_steps=1000,
            )
