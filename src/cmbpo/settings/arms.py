"""The arms of the paper's figures: an algorithm, and what it changes in its preset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cmbpo.settings.registry import ALGORITHMS


@dataclass(frozen=True)
class Arm:
    """One curve of a figure: an algorithm, and what it changes in the settings of its preset."""

    algo: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    label: str = ""
    """What the paper calls the changes."""

    def changes_on(self, task: str) -> dict[str, Any]:
        """All that it changes in the preset of a task."""
        return {**self.changes, **self.by_task.get(task, {})}


ABLATIONS = {
    # Within its own bounds the default preset would take as many real samples as ever.
    "cmbpo-no-alpha": Arm(
        "cmbpo",
        {
            "real_share.rule": "constant",
            "real_share.first_alpha": 0.05,
            "real_share.min_real": 500,
            "real_share.max_real": 50_000,
        },
        by_task={"AntCircle": {"real_share.first_alpha": 0.03}},
        label="no α(π)",
    ),
    "cmbpo-schedule1": Arm(
        "cmbpo",
        {"rollout.cut": "schedule", "rollout.schedule": (3, 15, 1000)},
        label="schedule 1",
    ),
    "cmbpo-schedule2": Arm(
        "cmbpo",
        {"rollout.cut": "schedule", "rollout.schedule": (5, 25, 1000)},
        label="schedule 2",
    ),
}
"""Figure 3: CMBPO without one of its two ideas."""


def every_arm() -> dict[str, Arm]:
    """Everything that an experiment can run, by name: each algorithm, and the ablations."""
    return {algo: Arm(algo) for algo in ALGORITHMS} | ABLATIONS
