"""Algorithms of the user's own: registered by a module, which is found by its name or installed.

An algorithm of the user's is called `module:name` everywhere: on the command line, in config.json
and in Python, where `name` will do once it is registered. The module is imported because the user
says its name, because a run folder that is trusted does, or because a package that is installed
declares it as an entry point `cmbpo.algorithms`; never because a run folder of somebody else's asks
for it.
"""

import importlib
import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

from cmbpo.settings import overrides
from cmbpo.settings.registry import (
    ALGORITHMS,
    EPISODES,
    ESTIMATE,
    ON_POLICY,
    AlgorithmRow,
    algorithm_name,
)

GROUP = "cmbpo.algorithms"
"""The entry points of installed packages that name a module which registers an algorithm."""

_MODEL = (*EPISODES, "archive_size", "ensemble", "rollout", "real_share", "cost_estimate")


def register_algorithm(
    name: str,
    *,
    module: str,
    label: str | None = None,
    data: Literal["real", "real and imagined"] = "real",
    reads: Sequence[str] = (),
    **more: Any,
) -> str:
    """Make an algorithm known, and return what it is called: `module:name`.

    `module` is the one whose `ALGORITHM` it is and that calls this: `module=__name__`. `reads` are
    the settings, or groups of them, that it reads beside those of batches, policy, critics,
    advantages and the cost estimate (with imagined data, also of the model). The rest is
    `AlgorithmRow`'s (docs/extending.md).
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"the name is {name!r}; allowed: small letters, digits and dashes")
    full = f"{module}:{name}"
    plain = name.replace("-", "")
    for other, row in ALGORITHMS.items():
        if other != full and plain in (other.replace("-", ""), *row.spellings):
            raise ValueError(f"the name {name!r} is taken by {other}; allowed: another")
    _require_module(module)
    _require_reads(reads)
    own = (*ON_POLICY, *(ESTIMATE if data == "real" else _MODEL), *reads)
    more.setdefault("spellings", ())
    more["spellings"] = (plain, *more["spellings"])
    ALGORITHMS[full] = AlgorithmRow(
        label=label or name, data=data, module=module, reads=own, **more
    )
    return full


def _require_module(module: str) -> None:
    """Refuse a module that is not there to be imported; it is not imported for that."""
    try:
        there = module in sys.modules or find_spec(module) is not None
    except (AttributeError, ImportError, TypeError, ValueError):  # such as a name that is none
        there = False
    if not there:
        raise ValueError(
            f"module is {module!r}, which is not here or installed; allowed: module=__name__"
        )


def _require_reads(names: Sequence[str]) -> None:
    """Refuse what is neither a setting nor a group of settings."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"reads is {names!r}; allowed: several names of settings or of their groups, as in"
            ' ("lagrangian", "trust_region.max_kl")'
        )
    groups = {name.partition(".")[0] for name in overrides.names()}
    for name in names:
        if name not in groups:
            try:
                overrides.require_known(name)
            except ValueError as error:
                raise ValueError(f"reads has {name!r}: {error}") from None


def asked_for(spelling: str) -> str:
    """The name of an algorithm that the user names; a module of theirs is imported for it."""
    try:
        return algorithm_name(spelling)
    except ValueError as unknown:
        module, colon, name = str(spelling).rpartition(":")
        if not colon:
            declared = [point for point in _installed() if point.name == name]
            if not declared:
                raise
            module = declared[0].module
        _import(module, unknown)
    try:
        return algorithm_name(f"{module}:{name}")
    except ValueError:
        raise ValueError(
            f"the module {module!r} registers no algorithm {name!r}; allowed: one that calls"
            f" cmbpo.register_algorithm({name!r}, module=__name__, …)"
        ) from None


def if_installed(name: Any) -> None:
    """Import the module of an algorithm that a run folder names where its package declares it."""
    module = name.rpartition(":")[0] if isinstance(name, str) else ""
    if not module or name in ALGORITHMS:
        return
    if any(point.module == module for point in _installed()):
        importlib.import_module(module)


def _installed() -> list[Any]:
    from importlib.metadata import entry_points  # takes longer than help may

    return list(entry_points(group=GROUP))


def _import(module: str, unknown: ValueError) -> None:
    if module == "__main__":
        raise ValueError(
            f"{unknown}; it was registered in a script: put it in a module of its own"
        ) from None
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module!r} is no name of a module; allowed: as in my_module:name")
    # `cmbpo` is a script in a folder of its own: modules of the working folder are not on its path.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"there is no module {module!r} here or installed") from None
