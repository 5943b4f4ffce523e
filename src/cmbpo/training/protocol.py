"""What the loop asks of a trainer: one for the on-policy algorithms, others for other updates."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cmbpo.networks import Actor
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training.rows import Row


class Wait(NamedTuple):
    """How far something is that takes its time: `done` of `total`, which may be more than needed.

    As in 34 of 200 epochs at most, 3 of 7 networks still learn.
    """

    what: str
    done: int
    total: int
    unit: str
    note: str = ""


Watch = Callable[[Wait], None]


def nobody_watches(wait: Wait) -> None:
    """For what is not watched."""


@runtime_checkable
class RunInProgress(Protocol):
    """A run that makes its updates one by one, each with a row of the log.

    An algorithm with a replay buffer and an update of its own has a class like this one, which its
    row in `settings.registry` names as its `trainer`; `training.real_world` is there to collect.
    """

    settings: TrainSettings
    task: Task
    update: int
    offending: Any
    """The batch at hand where `step` raises `NonFiniteError`."""

    @property
    def env_steps(self) -> int:
        """Real steps so far."""
        ...

    @property
    def policy(self) -> Actor:
        """The policy as it is now."""
        ...

    def warm_up(self, *, watch: Watch = nobody_watches) -> None:
        """What comes before the first update; `watch` is told how far it is."""
        ...

    def doubts(self) -> list[str]:
        """In sentences, what the first steps were too few for."""
        ...

    def take_sentences(self) -> list[str]:
        """What is to be said of what went wrong in the copies since the last call."""
        ...

    def step(self) -> Row:
        """One update: what it adds to progress.csv."""
        ...

    def take_episodes(self) -> list[Row]:
        """The episodes that ended since the last call."""
        ...

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on, as a pytree; see `as_it_was`."""
        ...

    def as_it_was(self, state: dict[str, Any]) -> dict[str, Any]:
        """What `state` returned last, with what an update has written over since put back."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        ...

    def take_over(self, other: Run) -> None:
        """Start with what another run has learned."""
        ...

    def close(self) -> None:
        """Let go of the copies."""
        ...
