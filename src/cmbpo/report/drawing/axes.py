"""Axes of a figure: where a value lies between both ends, and which values are written beside."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

Kind = Literal["linear", "log", "knee"]


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`.

    `knee` is linear up to ±`knee` and logarithmic beyond, with no kink between: a limit of 10 and a
    first cost of 500 can both be read.
    """

    label: str
    low: float
    high: float
    kind: Kind = "linear"
    knee: float = 1.0

    def warp(self, x: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """The value on a scale on which equal distances look equal."""
        if self.kind == "log":
            return np.asarray(np.log10(np.maximum(x, 1e-12)))
        if self.kind == "knee":
            size = np.abs(x) / self.knee
            return np.where(
                size <= 1, x / self.knee, np.sign(x) * (1 + np.log(np.maximum(size, 1)))
            )
        return np.asarray(x)

    def unwarp(self, y: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """The inverse of `warp`."""
        if self.kind == "log":
            return np.asarray(10.0**y)
        if self.kind == "knee":
            size = np.abs(y)
            beyond = np.sign(y) * np.exp(np.maximum(size, 1) - 1)
            return np.asarray(self.knee * np.where(size <= 1, y, beyond))
        return np.asarray(y)

    def fraction(self, x: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
        """Where a value lies between both ends, cut off at them."""
        low, high = self.warp(np.array([self.low, self.high]))
        return np.asarray(np.clip((self.warp(x) - low) / (high - low), 0.0, 1.0))

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the axis, about `count` of them."""
        if self.kind == "log":
            return self._log_ticks(count)
        if self.kind == "knee":
            inner = _round_values(max(self.low, -self.knee), min(self.high, self.knee), 3)
            below = [-t for t in self._beyond(-self.low)[::-1]]
            return below + inner + self._beyond(self.high)
        return _round_values(self.low, self.high, count)

    def _beyond(self, end: float) -> list[float]:
        """Ticks of the logarithmic part of a `knee` axis, from the knee to its end."""
        if end <= self.knee:
            return []
        marks = [t for t in _decades(self.knee, end, (1, 2, 5)) if t > 1.4 * self.knee]
        return _thin(marks, 4)

    def _log_ticks(self, count: int) -> list[float]:
        for digits in ((1,), (1, 3), (1, 2, 5)):
            marks = _decades(self.low, self.high, digits)
            if len(marks) >= 3:
                return _thin(marks, count + 1)
        return _round_values(self.low, self.high, 4)


def spanning(
    label: str, values: Float[np.ndarray, " n"], *, kind: Kind = "linear", knee: float = 1.0
) -> Axis:
    """An axis that shows all finite values, with a little room at both ends."""
    values = values[np.isfinite(values)]
    if kind == "log":
        values = values[values > 0]
    if values.size == 0:
        return Axis(label, 1.0, 10.0, kind, knee)
    low, high = float(values.min()), float(values.max())
    if kind == "log":
        return Axis(label, low, max(high * 1.05, low * 1.2), kind)
    if high == low:
        room = abs(high) * 0.1 or 1.0
        return Axis(label, low - room, high + room, kind, knee)
    bare = Axis(label, low, high, kind, knee)
    ends = bare.warp(np.array([low, high]))
    room = 0.04 * (ends[1] - ends[0])
    low, high = bare.unwarp(np.array([ends[0] - room, ends[1] + room]))
    return Axis(label, float(low), float(high), kind, knee)


def short(value: float) -> str:
    """A number in few letters: 20k, 1.5M, 0.02, −5."""
    if value == 0:
        return "0"
    size, sign = abs(value), "−" if value < 0 else ""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{sign}{_plain(size / unit)}{letter}"
    if size < 1e-3:
        exponent = int(np.floor(np.log10(size)))
        return f"{sign}{_plain(size / 10.0**exponent)}e−{-exponent}"
    return sign + _plain(size)


def _plain(size: float) -> str:
    return f"{size:.4g}" if size < 1000 else f"{size:.0f}"


def _round_values(low: float, high: float, count: int) -> list[float]:
    span = high - low
    if span <= 0:
        return [low]
    rough = span / count
    unit = 10.0 ** np.floor(np.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= 0.999 * rough)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(round(i * step, 12)) for i in np.arange(first, last + 1)]


def _decades(low: float, high: float, digits: tuple[int, ...]) -> list[float]:
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    values = [d * 10.0**e for e in exponents for d in digits]
    return [v for v in values if low * 0.999 <= v <= high * 1.001]


def _thin(values: list[float], count: int) -> list[float]:
    stride = -(-len(values) // count) or 1
    return values[::stride]
