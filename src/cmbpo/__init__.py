"""Constrained model-based policy optimisation: safe continuous control from few real samples."""

from typing import TYPE_CHECKING, Any

from cmbpo import registration

if TYPE_CHECKING:
    from cmbpo.agent import Agent, load

__version__ = "0.1.0"
__all__ = ["Agent", "__version__", "load"]

registration.register()


def __getattr__(name: str) -> Any:
    """`Agent` and `load` on first use, so that `import cmbpo` stays instant."""
    if name in ("Agent", "load"):
        from cmbpo import agent

        return getattr(agent, name)
    raise AttributeError(f"module 'cmbpo' has no attribute {name!r}")
