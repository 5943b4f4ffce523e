"""What values a setting may have: its type, its choices and its range, checked in one place."""

import dataclasses
import math
import os
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; `above` and `below` leave out the ends themselves."""

    low: float | int = -math.inf
    high: float | int = math.inf
    above: bool = False
    below: bool = False

    def holds(self, value: float | int) -> bool:
        """Whether a number is in the range; infinite ones and those that are none never are."""
        from_low = value > self.low if self.above else value >= self.low
        to_high = value < self.high if self.below else value <= self.high
        return math.isfinite(value) and from_low and to_high

    def __str__(self) -> str:
        """In words, as in `above 0, up to 1`."""
        if not math.isfinite(self.low):
            return "finite"
        if not math.isfinite(self.high):
            return f"above {self.low:,}" if self.above else f"{self.low:,} or more"
        if self.above:
            return f"above {self.low:,}, {'below' if self.below else 'up to'} {self.high:,}"
        return f"{self.low:,} to {'below ' if self.below else ''}{self.high:,}"


MOST = 16
"""Numbers that a setting of several may have: networks are not deeper, constraints not more."""

Count = Annotated[int, Range(1, 2**31 - 1)]
Widths = Annotated[tuple[int, ...], Range(1, 2**16)]
Number = Annotated[float, Range()]
NotNegative = Annotated[float, Range(0.0)]
Positive = Annotated[float, Range(0.0, above=True)]
Share = Annotated[float, Range(0.0, 1.0, above=True)]
Fraction = Annotated[float, Range(0.0, 1.0)]
Discount = Annotated[float, Range(0.0, 1.0, below=True)]


class Group:
    """Settings that are checked when they are made: by type, choice and range."""

    PREFIX = ""
    """What stands before the names of this group, as in `policy.`."""

    def __post_init__(self) -> None:
        """Check every value; a list is taken for a tuple, and a dict for a group of settings."""
        for name, kind in kinds(type(self)).items():
            value = fitted(getattr(self, name), kind, f"{self.PREFIX}{name}")
            object.__setattr__(self, name, value)
            if not dataclasses.is_dataclass(kind) and not _allowed(value, kind):
                raise ValueError(f"{self.PREFIX}{name} is {value!r}; allowed: {words(kind)}")


@cache
def kinds(group: type) -> dict[str, Any]:
    """The types of a group's settings, with their ranges."""
    hints = typing.get_type_hints(group, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(group)}  # pyright: ignore


def fitted(value: Any, kind: Any, name: str) -> Any:
    """A value as a setting of this type holds it.

    `64` and `[64, 64]` are tuples of widths too, NumPy's numbers and `1e6` numbers, paths texts,
    and a dict of settings is their group.
    """
    try:
        return _as(value, kind)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; allowed: {words(kind)}") from None


def _as(value: Any, kind: Any) -> Any:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _as(value, inside[0])
    if origin is Literal and value in inside:
        return value
    if origin is types.UnionType or origin is typing.Union:
        for one in inside:
            with suppress(TypeError):
                return _as(value, one)
    if origin is tuple:
        several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        items = value if several else (value,)
        each = inside[:1] * len(items) if inside[-1] is Ellipsis else inside
        if len(items) == len(each):
            return tuple(map(_as, items, each))
    if type(value) is kind:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return kind(**{str(name): inner for name, inner in value.items()})
    return _as_plain(value, kind)


def _as_plain(value: Any, kind: Any) -> Any:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if kind is float and number:
        return float(value)
    if kind is int and number and (isinstance(value, Integral) or float(value).is_integer()):
        return int(value)
    if kind is str and isinstance(value, os.PathLike):
        return str(os.fspath(value))
    raise TypeError


def _allowed(value: Any, kind: Any) -> bool:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        numbers = value if isinstance(value, tuple) else (value,)
        ranges = [extra for extra in inside[1:] if isinstance(extra, Range)]
        known = _allowed(value, inside[0])
        return known and all(r.holds(x) for r in ranges for x in numbers)
    if origin is types.UnionType or origin is typing.Union:
        return any(_allowed(value, one) for one in inside)
    if origin is Literal:
        return value in inside
    if origin is tuple:
        if not isinstance(value, tuple) or not value:
            return False
        each = inside[:1] * min(len(value), MOST) if inside[-1] is Ellipsis else inside
        return len(value) == len(each) and all(map(_allowed, value, each))
    if kind is float:
        return type(value) in (float, int)
    return type(value) is kind


def words(kind: Any) -> str:
    """What a setting of this type may be, for a sentence."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        limits = [str(extra) for extra in inside[1:] if isinstance(extra, Range)]
        return ", ".join([words(inside[0]), *limits])
    if origin is types.UnionType or origin is typing.Union:
        return " or ".join(words(one) for one in inside)
    if origin is Literal:
        return ", ".join(map(str, inside))
    if origin is tuple:
        many = inside[-1] is Ellipsis
        return f"one to {MOST} of {words(inside[0])}" if many else f"{len(inside)} numbers"
    if dataclasses.is_dataclass(kind):
        return f"a dict of settings, such as {', '.join(list(kinds(typing.cast(type, kind)))[:3])}"
    plain = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return plain.get(kind, "None" if kind is type(None) else str(kind))
