"""Arms: runs that are seeds of one another, with a name that says how arms differ."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cmbpo.report.reading.recorded import Recorded, flat
from cmbpo.settings.arms import ABLATIONS
from cmbpo.settings.overrides import short, spelt
from cmbpo.settings.presets import preset as make_preset
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import BOOKKEEPING

INCIDENTAL = ("seed", *BOOKKEEPING)
"""Settings in which seeds of one arm may differ."""


@dataclass(frozen=True, eq=False)
class ArmRuns:
    """Runs that differ in nothing but their seed and their task."""

    label: str
    algo: str
    colour: int
    ablation: str
    """The name of one of Figure 3's arms, or empty."""
    runs: dict[str, list[Recorded]]
    """The runs of each task."""


Changes = tuple[tuple[str, str], ...]
"""Settings, with their values, in which an arm departs from the plain form of its algorithm."""


def arms(runs: Sequence[Recorded]) -> list[ArmRuns]:
    """Group runs that differ only in seed and task; the plain form of an algorithm comes first.

    Ablations come last. What one changes by its name is part of it, though it differs by task.
    Arms of a grid are named by what of the grid differs, and by nothing else where all are.
    """
    groups: dict[tuple[str, int, str, str, Changes, Changes], list[Recorded]] = {}
    for run in sorted(runs, key=lambda run: run.name):
        ablation = _ablation(run)
        named = ABLATIONS[ablation].changes_on(run.task) if ablation else {}
        apart = {*named, *run.grid}
        changes = tuple(change for change in _changes(run, runs) if change[0] not in apart)
        key = (ablation, _rank(run.algo), run.algo, run.preset, _point(run, runs), changes)
        groups.setdefault(key, []).append(run)
    grouped: list[ArmRuns] = []
    alone = all(point for *_, point, _ in groups) and len({key[:4] for key in groups}) == 1
    for key in sorted(groups, key=_order):
        by_task: dict[str, list[Recorded]] = {}
        for run in groups[key]:
            by_task.setdefault(run.task, []).append(run)
        ablation, _, algo, preset, point, changes = key
        several = len({run.preset for run in runs if run.algo == algo}) > 1
        label = _label(algo, preset if several else "", ablation, point, changes)
        if alone and not changes:
            label = _words(point)
        same = sum(arm.label.split(" #")[0] == label for arm in grouped)
        label = f"{label} #{same + 1}" if same else label
        grouped.append(ArmRuns(label, algo, len(grouped), ablation, by_task))
    return grouped


def _order(key: tuple[str, int, str, str, Changes, Changes]) -> tuple[Any, ...]:
    """By algorithm, then by the numbers of the grid, as numbers."""
    *first, point, changes = key
    values = [(name, _number(value), value) for name, value in point]
    return (first, len(changes), len(point), values, changes)


def _number(text: str) -> float:
    try:
        return float(text.split("x")[0])
    except ValueError:
        return 0.0


def _point(run: Recorded, runs: Sequence[Recorded]) -> Changes:
    """What of its grid differs among the runs of its algorithm and preset."""
    alike = [r for r in runs if (r.algo, r.preset) == (run.algo, run.preset)]
    differing = [
        name
        for name in run.grid
        if len({spelt(r.settings[name]) for r in alike if name in r.settings}) > 1
    ]
    return tuple((short(name), spelt(run.settings[name])) for name in differing)


def _ablation(run: Recorded) -> str:
    """Which of Figure 3's arms the run is of; empty for any other."""
    for name, arm in ABLATIONS.items():
        named = arm.changes_on(run.task)
        has = (text(run.settings.get(key, "unknown")) == text(x) for key, x in named.items())
        if named and arm.algo == run.algo and all(has):
            return name
    return ""


def _rank(algo: str) -> int:
    return list(ALGORITHMS).index(algo) if algo in ALGORITHMS else len(ALGORITHMS)


def label_of(algo: str) -> str:
    """What papers call an algorithm."""
    return ALGORITHMS[algo].label if algo in ALGORITHMS else algo


def _label(algo: str, preset: str, ablation: str, point: Changes, changes: Changes) -> str:
    label = f"{label_of(algo)} {preset}".strip()
    if ablation:
        label = f"{label}, {ABLATIONS[ablation].label}"
    shown = _words((*point, *changes[:3]))
    return f"{label} ({shown}{', …' if len(changes) > 3 else ''})" if shown else label


def _words(changes: Changes) -> str:
    return ", ".join(f"{name} {_shortened(value)}" for name, value in changes)


def _shortened(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:39]}…"


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
        preset = make_preset(first.algo, first.task, first.preset)
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
