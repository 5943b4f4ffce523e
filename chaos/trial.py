"""What a trial is: one attempt at harm, and a verdict on what came of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random


@dataclass(frozen=True)
class Verdict:
    """What was tried, how it ended in a word or two, and what was wrong with that, if anything."""

    tried: str
    outcome: str
    problem: str | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return self.problem is None


@dataclass(frozen=True)
class Trial:
    """What one attempt has of its own."""

    index: int
    """Its number in the family, for families that go through a list."""
    random: Random
    place: Path
    """An empty folder, which is kept if the verdict is bad."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Trials of one kind."""

    name: str
    promise: str
    """What clean means, in a sentence."""
    count: int
    """Trials of a whole campaign."""
    try_one: Callable[[Trial], Verdict]
    seconds: float = 120.0
    """A trial that takes longer hangs."""
    judge: Callable[[Counter[str]], str | None] = lambda outcomes: None
    """What is wrong with the outcomes taken together, if anything."""


class Unclean(Exception):  # noqa: N818  it is a finding, not an error
    """Raised by a trial where a promise was broken."""


def require(held: object, otherwise: str) -> None:
    """A promise that has to hold."""
    if not held:
        raise Unclean(otherwise)


def tried_once(family: Family, trial: Trial) -> Verdict:
    """A verdict in any case: a promise that was broken, and a trial that failed, is one too."""
    try:
        return family.try_one(trial)
    except Unclean as broken:
        notes = getattr(broken, "__notes__", [])
        return Verdict("; ".join(notes), "unclean", str(broken))
    except Exception as error:
        import traceback

        return Verdict("", "unclean", "".join(traceback.format_exception(error)))
