"""A grid: every combination of the values that settings are given, each combination an arm."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from cmbpo.settings.overrides import literal, require_known


def combinations(assignments: Sequence[str]) -> list[dict[str, Any]]:
    """All that `KEY=VALUE,VALUE …` give, the last setting changing fastest; without any, one."""
    values = axes(assignments)
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def axes(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each setting; `64x64` and `(64,64)` are one value of two numbers."""
    values: dict[str, list[Any]] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(
                f"--grid {assignment!r}; allowed: KEY=VALUE,VALUE, as in"
                " trust-region.max-kl=0.01,0.02"
            )
        name = key.strip().replace("-", "_")
        require_known(name)
        if name in values:
            raise ValueError(f"--grid {name} is given twice; allowed: once, with all its values")
        values[name] = [literal(value.strip()) for value in _parts(text)]
    return values


def _parts(text: str) -> Iterator[str]:
    """What commas part, where they are not in brackets."""
    start = depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
