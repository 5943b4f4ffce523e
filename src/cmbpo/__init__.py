"""Constrained model-based policy optimisation: safe continuous control from few real samples.

What is listed here is public; everything else may change from one version to the next.
"""

import os
from typing import TYPE_CHECKING, Any

# XLA takes preferences of a processor for features that it lacks, and warns of crashes whenever it
# loads a program that it has compiled on this very machine. "1" is what JAX itself sets, also for
# the processes that its process starts.
if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from cmbpo import tasks
from cmbpo.tasks import registration
from cmbpo.tasks.drawing import window_library

if TYPE_CHECKING:
    from cmbpo.agent import Agent, load
    from cmbpo.evaluation.periodic import EvalCallback
    from cmbpo.settings.plugins import register_algorithm
    from cmbpo.settings.presets import preset
    from cmbpo.settings.schema import TrainSettings

__version__ = "1.0.0"
__all__ = [
    "Agent",
    "EvalCallback",
    "TrainSettings",
    "__version__",
    "load",
    "preset",
    "register_algorithm",
    "tasks",
]

registration.register()
window_library.name()


def __getattr__(name: str) -> Any:
    """What takes time to import on first use, so that `import cmbpo` stays instant."""
    if name in ("Agent", "load"):
        from cmbpo import agent

        return getattr(agent, name)
    if name == "EvalCallback":
        from cmbpo.evaluation import periodic

        return periodic.EvalCallback
    if name == "register_algorithm":
        from cmbpo.settings import plugins

        return plugins.register_algorithm
    if name in ("TrainSettings", "preset"):
        from cmbpo.settings import presets

        return getattr(presets, name)
    raise AttributeError(f"module 'cmbpo' has no attribute {name!r}")
