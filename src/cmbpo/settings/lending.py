"""Whether a run can begin with what another has learned, as far as their settings say it."""

from operator import attrgetter
from typing import Any

from cmbpo.settings.registry import reads
from cmbpo.settings.schema import TrainSettings

SAME = (
    *("policy.hidden", "policy.compress", "critic.hidden", "critic.members"),
    *("ensemble.hidden", "ensemble.members", "ensemble.elites", "archive_size", "replay.size"),
)
"""Settings that say what the arrays are that are lent, and what they mean."""


def require_fit(settings: TrainSettings, theirs: TrainSettings, folder: str) -> None:
    """Refuse a run of another algorithm, or with other sizes of what is lent."""
    if theirs.algo != settings.algo:
        raise ValueError(
            f"init_from is {folder!r}, a run of {theirs.algo}; allowed for"
            f" {settings.algo}: a run of the same algorithm"
        )
    for name in SAME:
        here, there = attrgetter(name)(settings), attrgetter(name)(theirs)
        if reads(settings.algo, name) and here != there:
            raise ValueError(
                f"{name} is {_shown(here)}; allowed with init_from {folder!r}:"
                f" {_shown(there)}, as that run has"
            )


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
