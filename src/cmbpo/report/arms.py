"""Arms: runs that are seeds of one another, with a name that says how arms differ."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cmbpo import presets
from cmbpo.report.recorded import Recorded, flat

ALGORITHMS = {
    "cmbpo": "CMBPO",
    "cpo": "CPO",
    "ppo-lag": "PPO-L",
    "trpo-lag": "TRPO-L",
    "trpo": "TRPO",
}
"""The paper's names of the algorithms, in its order."""

INCIDENTAL = ("seed", "total_steps", "log_dir", "device", "checkpoint_every", "wandb")
"""Settings in which seeds of one arm may differ."""


@dataclass(frozen=True, eq=False)
class Arm:
    """Runs that differ in nothing but their seed and their task."""

    label: str
    algo: str
    colour: int
    runs: dict[str, list[Recorded]]
    """The runs of each task."""


Changes = tuple[tuple[str, str], ...]
"""Settings, with their values, in which an arm departs from the plain form of its algorithm."""


def arms(runs: Sequence[Recorded]) -> list[Arm]:
    """Group runs that differ only in seed and task; the plain form of an algorithm comes first."""
    groups: dict[tuple[int, str, str, Changes], list[Recorded]] = {}
    for run in sorted(runs, key=lambda run: run.name):
        key = (_rank(run.algo), run.algo, run.preset, _changes(run, runs))
        groups.setdefault(key, []).append(run)
    found: list[Arm] = []
    for key in sorted(groups, key=lambda key: (key[:3], len(key[3]), key[3])):
        by_task: dict[str, list[Recorded]] = {}
        for run in groups[key]:
            by_task.setdefault(run.task, []).append(run)
        _, algo, preset, changes = key
        several = len({run.preset for run in runs if run.algo == algo}) > 1
        label = _label(algo, preset if several else "", changes)
        same = sum(arm.label.split(" #")[0] == label for arm in found)
        found.append(Arm(f"{label} #{same + 1}" if same else label, algo, len(found), by_task))
    return found


def _rank(algo: str) -> int:
    return list(ALGORITHMS).index(algo) if algo in ALGORITHMS else len(ALGORITHMS)


def _label(algo: str, preset: str, changes: Changes) -> str:
    label = f"{ALGORITHMS.get(algo, algo)} {preset}".strip()
    shown = ", ".join(f"{name} {value}" for name, value in changes[:3])
    return f"{label} ({shown}{', …' if len(changes) > 3 else ''})" if changes else label


def _changes(run: Recorded, runs: Sequence[Recorded]) -> Changes:
    """How the run departs from the plain one among its like.

    A run of an older version lacks settings that came later. That alone makes no difference, unless
    such a setting is varied among the others.
    """
    alike = [r for r in runs if (r.task, r.algo, r.preset) == (run.task, run.algo, run.preset)]
    plain = _plain(alike).settings
    changes = []
    for name in dict.fromkeys(name for r in alike for name in r.settings):
        known = {text(r.settings[name]) for r in alike if name in r.settings}
        here, there = (text(s.get(name, "unknown")) for s in (run.settings, plain))
        if name not in INCIDENTAL and len(known) > 1 and here != there:
            changes.append((name, here))
    return tuple(changes)


def _plain(runs: Sequence[Recorded]) -> Recorded:
    """The run nearest to its preset, or the first where there is no such preset."""
    first = runs[0]
    try:
        preset = presets.preset(first.algo, first.task, first.preset)
    except ValueError:
        return first
    reference = {n: x for n, x in flat(asdict(preset)).items() if n not in INCIDENTAL}

    def distance(run: Recorded) -> int:
        return sum(
            text(run.settings.get(name, "unknown")) != text(x) for name, x in reference.items()
        )

    return min(runs, key=lambda run: (distance(run), run.name))


def text(value: Any) -> str:
    """A setting as it is given on the command line."""
    if isinstance(value, tuple | list):
        return " ".join(text(x) for x in value)
    return "–" if value is None else str(value)
