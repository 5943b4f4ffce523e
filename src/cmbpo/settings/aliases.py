"""Settings as older versions called them, so that their run folders still open."""

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "mixing": "real_share",
    "constraint": "cost_estimate",
    "dynamics": "ensemble",
    # The terminal steps of the tasks that had it all cost 1.
    "advantage.terminal_cost_value": "advantage.terminal_cost_steps",
}
"""Groups, or single settings by their dotted names, as they were called."""

CONSTANTS: dict[str, Any] = {
    "ensemble.head_hidden": [128, 128],
    "ensemble.learning_rate": 1e-3,
    "ensemble.weight_decay": 1e-6,
    "ensemble.layer_norm": False,
    "ensemble.variance_loss": "regularised",
    "ensemble.holdout": 0.2,
    "ensemble.max_holdout": 5000,
    "ensemble.subsample": 1.0,
    "ensemble.first_epochs": 200,
    "ensemble.patience": 5,
    "rollout.quantile": 0.75,
    "rollout.recalibrate": False,
    "rollout.end_over_members": False,
    "trust_region.cg_iterations": 10,
    "trust_region.cg_damping": 0.1,
    "trust_region.backtrack": 0.8,
    "trust_region.backtracks": 10,
    "trust_region.barrier_weight": 0.1,
    "clipped.clip": 0.2,
    "lagrangian.first": 1.0,
    "lagrangian.learning_rate": 0.05,
}
"""What was a setting once, and the one value that is left of it."""

LATER: dict[str, Any] = {"policy.quiet_end": 0.0, "advantage.apart": False}
"""Settings that older versions did not know, and what these did: their runs are no seeds of an arm
that does otherwise."""

DERIVED = {"rollout.probe": "half of rollout.lanes"}
"""What was a setting and now follows from others."""


def renamed(name: str) -> str:
    """The dotted name of a setting today."""
    group, dot, rest = name.partition(".")
    whole = RENAMED.get(group, group) + dot + rest
    return RENAMED.get(name, RENAMED.get(whole, whole))


def is_older(name: str) -> bool:
    """Whether only older versions have a setting of this name."""
    return renamed(name) != name or name in CONSTANTS or name in DERIVED


def by_todays_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted names, renamed where they have been, with those that came later."""
    return {**LATER, **{renamed(name): value for name, value in values.items()}}


def upgraded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted names, as an older version wrote them, by the names they have today.

    What has become a constant is dropped where it had that value, and kept under its name where
    not: whoever goes on with such a run has to be told.
    """
    today = by_todays_names(values)
    same = {name for name, value in today.items() if CONSTANTS.get(name, ...) == value}
    return {n: v for n, v in today.items() if n not in same and n not in DERIVED}
