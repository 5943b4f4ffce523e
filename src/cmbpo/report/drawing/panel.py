"""What a figure shows before anything is drawn: lines, bands and marks with their axes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float

from cmbpo.report.arms import ArmRuns
from cmbpo.report.drawing.axes import Axis, spanning

Weight = Literal["main", "seed"]
Curve = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Line:
    """A curve of one arm: `main` is what counts, `seed` stands thin behind it."""

    arm: ArmRuns
    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " n"]
    weight: Weight
    note: str
    dashed: bool = False


@dataclass(frozen=True)
class Band:
    """The interval around a main line."""

    arm: ArmRuns
    x: Float[np.ndarray, " n"]
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Mark:
    """A point with an error bar."""

    arm: ArmRuns
    x: float
    y: float
    error: float
    note: str


@dataclass(frozen=True)
class Quoted:
    """A number that the paper reports for an algorithm, and an arm whose colour it has, if any."""

    arm: ArmRuns | None
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Rule:
    """A line across the panel at a value of y, or the diagonal where that is None."""

    y: float | None
    note: str
    dashed: bool = True


@dataclass(frozen=True)
class Panel:
    """One figure."""

    title: str
    x: Axis
    y: Axis
    lines: list[Line] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    quoted: list[Quoted] = field(default_factory=list)
    """From left to right."""


def spread(places: Sequence[float], *, gap: float, end: float) -> list[float]:
    """Ascending places moved apart until none is nearer than `gap` to the next or beyond `end`."""
    spots: list[float] = []
    for place in places:
        spots.append(max(place, spots[-1] + gap) if spots else place)
    for i in reversed(range(len(spots))):
        spots[i] = min(spots[i], spots[i + 1] - gap if i + 1 < len(spots) else end)
    return spots


def steps_axis(lines: Sequence[Line]) -> Axis:
    """The log axis of environment steps under these lines."""
    values = np.concatenate([line.x for line in lines]) if lines else np.zeros(0)
    return spanning("environment steps", values, kind="log")


def _grid(low: float, high: float, points: int) -> np.ndarray:
    return np.geomspace(max(low, 1.0), max(high, 1.0), points)


def resample(x: np.ndarray, y: np.ndarray, points: int) -> Curve:
    """The curve at `points` places that are even on a log axis, or as it is where it has fewer."""
    if len(x) <= points:
        return x, y
    grid = _grid(x[0], x[-1], points)
    return grid, np.interp(grid, x, y)


def thin_out(x: np.ndarray, y: np.ndarray, points: int) -> Curve:
    """At most `points` of the curve's own points."""
    keep = np.unique(np.linspace(0, len(x) - 1, points).astype(int))
    return x[keep], y[keep]


def common_grid(curves: Sequence[Curve], points: int) -> np.ndarray | None:
    """Places between the last start and the first end: where every seed has a value."""
    low = max(x[0] for x, _ in curves)
    high = min(x[-1] for x, _ in curves)
    return _grid(low, high, points) if low < high else None


def stretches(x: np.ndarray, y: np.ndarray, points: int) -> Curve:
    """Means of a curve in stretches that are even on a log axis; or as it is where it has few."""
    if len(x) <= points:
        return x, y
    edges = _grid(x.min(), x.max() * (1 + 1e-9), points + 1)
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, points - 1)
    count = np.bincount(place, minlength=points)
    filled = count > 0
    means = [np.bincount(place, v, points)[filled] / count[filled] for v in (x, y)]
    return means[0], means[1]


def mean_of_seeds(curves: Sequence[Curve], points: int) -> Curve:
    """The mean over seeds at each place, of curves in `stretches`, as far as all of them go.

    Were their points put into one row instead, it would jump from seed to seed. A seed of a single
    point says nothing yet; where no place is common to the others, the longest stands for all.
    """
    drawn = [stretches(x, y, points) for x, y in curves if len(x) > 1]
    common = common_grid(drawn, points) if drawn else None
    if common is None:
        return max((stretches(x, y, points) for x, y in curves), key=lambda curve: len(curve[0]))
    return common, np.mean([np.interp(common, x, y) for x, y in drawn], axis=0)
