"""What somebody does who means harm, and which commands it is meant for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

COMMANDS = ("evaluate", "export", "report", "verify", "train", "load")


@dataclass(frozen=True)
class Harm:
    """A way to make a run folder hostile.

    `do` changes the folder, and may return another place that the commands are to be given.
    """

    name: str
    do: Callable[[Path, Random], Path | None]
    commands: tuple[str, ...] = COMMANDS
    refused_by: tuple[str, ...] = ()
    """Commands that have to refuse it."""
