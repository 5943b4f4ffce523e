"""What the loop asks of a trainer, whatever its updates are, and what every trainer here shares."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from cmbpo import columns
from cmbpo.columns import Column
from cmbpo.networks import Actor
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training.learner import CostMeasure
from cmbpo.training.real_world import RealWorld
from cmbpo.training.rows import Row, Values, flat, of_episode
from cmbpo.trajectory import Steps


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
    row in `settings.registry` names as its `trainer`; `BaseTrainer` has what need not be its own.
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


class BaseTrainer(ABC):
    """Of a run in progress, what does not depend on how it learns.

    The copies, the counts, the first steps, the guard, and the row that an update ends with.
    """

    def __init__(self, settings: TrainSettings, task: Task):
        """Nothing is collected or compiled yet."""
        self.settings, self.static = settings, settings.for_programs()
        self.task = task
        self._check()
        self.real = RealWorld(task, settings)
        self.update = 0
        self.seconds = 0.0
        self.offending: Any = None
        self.phases: dict[Column, float] = {}

    def _check(self) -> None:
        """Refuse settings that do not fit the task or each other."""
        settings, (least, _) = self.settings, self._real_range
        if settings.num_envs > least:
            raise ValueError(
                f"num_envs is {settings.num_envs}; allowed here: at most {least},"
                " the real samples of an update"
            )
        if self._warms_up and settings.total_steps <= settings.initial_steps:
            raise ValueError(
                f"total_steps is {settings.total_steps}; allowed here: more than the"
                f" {settings.initial_steps} initial_steps before the first update"
            )

    @property
    def _real_range(self) -> tuple[int, int]:
        """The fewest and the most real samples of an update."""
        return self.settings.batch_size, self.settings.batch_size

    @property
    def _warms_up(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        """Steps of each copy that a record of real steps has room for."""
        return -(-self._real_range[1] // self.settings.num_envs)

    @property
    def env_steps(self) -> int:
        """Real steps so far."""
        return self.real.env_steps

    def state(self) -> dict[str, Any]:
        """The copies and the counts."""
        return {
            **self.real.state(),
            "update": np.array(self.update),
            "seconds": np.array(self.seconds),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        # Before the first step every copy stands where a new one does, also if it has no memory.
        if state["ledger"]["env_steps"] > 0:
            self.real.restore(state)
        self.update = int(state["update"])
        self.seconds = float(state["seconds"])

    @abstractmethod
    def _collect(self, steps: int) -> Steps:
        """So many real steps of every copy."""

    def _first_steps(
        self, watch: Watch, remember: Callable[[Steps], None]
    ) -> Float[np.ndarray, "rows obs"]:
        """Steps of the untrained policy; the observations that it acted on."""
        wanted, seen = self.env_steps + self.settings.initial_steps, []
        while self.env_steps < wanted:
            watch(Wait("first real steps", self.env_steps, wanted, "steps"))
            steps = min(self.rows, -(-(wanted - self.env_steps) // self.settings.num_envs))
            real = self._collect(steps)
            seen.append(np.asarray(real.obs[:steps]).reshape(-1, real.obs.shape[-1]))
            remember(real)
        return np.concatenate(seen)

    @contextmanager
    def phase(self, column: Column) -> Iterator[None]:
        """Count the seconds inside to a phase of this update."""
        began = time.perf_counter()
        yield
        self.phases[column] = time.perf_counter() - began

    def _guard(self, made: dict[str, PyTree], batch: PyTree) -> None:
        """Stop where what the update made is not finite, with the batch at hand."""
        whole = jax.device_get(finite(made))
        for name in made:
            if not whole[name]:
                self.offending = batch
                raise NonFiniteError(f"not finite in update {self.update}: {name}")

    def _row(self, filled: Values, cost: CostMeasure, *, began: float, first_step: int) -> Row:
        """What an update adds to progress.csv: counts, the columns it `filled`, times last."""
        steps, seconds = self.env_steps - first_step, time.perf_counter() - began
        self.seconds += seconds
        values = {
            columns.ENV_STEPS: self.env_steps,
            columns.UPDATE: self.update,
            **self.real.account(np.asarray(cost.real, float), steps=steps),
            **filled,
            columns.FPS: steps / seconds,
            columns.UPDATE_SECONDS: seconds,
            columns.TOTAL_SECONDS: self.seconds,
            **self.phases,
        }
        return flat(values, self.task.cost_names)

    def take_sentences(self) -> list[str]:
        """What is to be said of what went wrong in the copies since the last call."""
        return self.real.take_sentences()

    def take_episodes(self) -> list[Row]:
        """The episodes that ended since the last call, as rows of episodes.csv."""
        names = self.task.cost_names
        return [of_episode(episode, names) for episode in self.real.take_episodes()]

    def close(self) -> None:
        """Let go of the copies."""
        self.real.close()


@jax.jit
def finite(made: dict[str, PyTree]) -> dict[str, Bool[Array, ""]]:
    """Whether each of these is finite throughout."""
    return {
        name: jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()
        for name, tree in made.items()
    }
