"""What goes wrong in the user's environment, named: what it was, where in their code, and when."""

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import gymnasium
import numpy as np

from cmbpo.envs.alarm import Alarm, TimeUp

LONGEST = 300
"""Characters of an exception's own words that are passed on."""
FEW = 8
"""Entries of an action that are written out."""

_FRAMEWORK = [Path(__file__).parents[1], *(Path(m.__file__ or "").parent for m in (gymnasium, np))]
_LIBRARY = [Path(sysconfig.get_path("stdlib"))]
_PACKAGES = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]


class EnvironmentFailure(ValueError):  # noqa: N818
    """The user's environment raised, hung, died or returned what it may not, in whole sentences."""


class Hung(EnvironmentFailure):
    """A call of the environment took longer than it may: what it is at, and which call it was."""

    def __init__(self, what: str, where: str):
        """In two sentences."""
        super().__init__(told(what, where))
        self.what = what


class Guard:
    """Around every call of the user's environment: whatever goes wrong in it is a failure of it.

    Of what is raised inside, only Ctrl-C passes. A call that takes longer than `seconds` is
    interrupted. `where` says which call it was, in a sentence.
    """

    def __init__(self, seconds: float | None, where: Callable[[], str] = str):
        """For the calls of one copy."""
        self._alarm = Alarm(seconds)
        self._where = where
        self._call = ""

    def __call__(self, call: str) -> "Guard":
        """The guard of this call, as in `with guard("step()"):`."""
        self._call = call
        return self

    def __enter__(self) -> None:
        """Let the time run."""
        self._alarm.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the time, and give what was raised its name and place."""
        self._alarm.__exit__()
        if error is None or isinstance(error, KeyboardInterrupt):
            return
        if isinstance(error, TimeUp):
            late = f"{self._call} has not returned within {self._alarm.seconds:g} s"
            raise Hung(f"{late} (--env.timeout); it is{place(error)}", self._where()) from None
        if isinstance(error, EnvironmentFailure):
            raise EnvironmentFailure(told(str(error), self._where())) from None
        raised = f"{self._call} raised {words(error)},{place(error)}"
        raise EnvironmentFailure(told(raised, self._where())) from error


def told(*sentences: str) -> str:
    """These sentences, each with its full stop, one after the other."""
    return " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)


def words(error: BaseException) -> str:
    """An exception in one line: its type, and what it says."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # even that may raise, in an exception of the user's own
        said = ""
    said = said if len(said) <= LONGEST else said[:LONGEST] + "…"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def place(error: BaseException) -> str:
    """File, line and function of the deepest frame that is the user's own, as words after others.

    A package that is installed is theirs if nothing else is; if not even that is there, the deepest
    frame of all is what there is to say.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _framework(frame.filename)]
    own = [frame for frame in theirs if not _within(frame.filename, _PACKAGES)]
    for deepest in (own or theirs or frames)[-1:]:
        return f" at {deepest.filename}:{deepest.lineno} in {deepest.name}"
    return " at an unknown place"


def _framework(filename: str) -> bool:
    library = _within(filename, _LIBRARY) and not _within(filename, _PACKAGES)
    return library or filename.startswith("<frozen") or _within(filename, _FRAMEWORK)


def _within(filename: str, folders: list[Path]) -> bool:
    return any(Path(filename).is_relative_to(folder) for folder in folders)


def moment(copy: int | None, seed: int | None, age: int, act: np.ndarray | None) -> str:
    """Which call of the environment it was: enough to make it again."""
    began = f"reset(seed={seed})" + ("" if copy is None else f" of copy {copy}")
    if act is None:
        return f"It was {began}"
    return f"It was step {age} of the episode that {began} began, with the action {_listed(act)}"


def _listed(act: np.ndarray) -> str:
    shown = ", ".join(f"{entry:.6g}" for entry in act.ravel()[:FEW])
    return f"[{shown}, …]" if act.size > FEW else f"[{shown}]"
