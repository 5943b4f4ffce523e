"""Constrained model-based policy optimisation: safe continuous control from few real samples.

What is listed here is public; everything else may change from one version to the next.
"""

from typing import TYPE_CHECKING, Any

from cmbpo import tasks
from cmbpo.settings.presets import preset
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks import registration

if TYPE_CHECKING:
    from cmbpo.agent import Agent, load

__version__ = "0.1.0"
__all__ = ["Agent", "TrainSettings", "__version__", "load", "preset", "tasks"]

registration.register()


def __getattr__(name: str) -> Any:
    """`Agent` and `load` on first use, so that `import cmbpo` stays instant."""
    if name in ("Agent", "load"):
        from cmbpo import agent

        return getattr(agent, name)
    raise AttributeError(f"module 'cmbpo' has no attribute {name!r}")
