"""What a task is: the known part of a constrained decision process, and copies to step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float, Int


class Outcome(NamedTuple):
    """What a step led to, before any reset; nothing, in copies that were `lost` in it."""

    state: Float[np.ndarray, "N state"]
    obs: Float[np.ndarray, "N obs"]
    reward: Float[np.ndarray, " N"]
    cost: Float[np.ndarray, "N cost"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    blown_up: Bool[np.ndarray, " N"]
    lost: Bool[np.ndarray, " N"]
    terms: dict[str, Float[np.ndarray, " N"]]


@dataclass
class Mishaps:
    """What went wrong in copies so far, and what is to be said of it."""

    not_finite: int = 0
    """Steps and starts of episodes with a number that is infinite or none."""
    restarts: int = 0
    """Copies that were started anew, since their process died or hung."""
    when: Callable[[], str] = str
    """When it is now, in a sentence that is said with the others."""
    _sentences: list[str] = field(default_factory=list)

    def say(self, sentences: str) -> None:
        """Tell the user, at the next opportunity."""
        self._sentences.append(f"{sentences} {self.when()}".rstrip())

    def take_sentences(self) -> list[str]:
        """What was to be told since the last call."""
        said, self._sentences = self._sentences, []
        return said


@runtime_checkable
class Copies(Protocol):
    """What steps the copies of a task side by side: threads of MuJoCo, vector environments, ….

    The `state` of a copy is one row: all that its future depends on, apart from its random
    generator. Copies that cannot give it away are not `restorable`; their rows are empty.
    """

    restorable: bool
    mishaps: Mishaps

    def begin(
        self, rows: Int[np.ndarray, " ended"], random: Sequence[np.random.Generator]
    ) -> tuple[Float[np.ndarray, "ended state"], Float[np.ndarray, "ended obs"]]:
        """Start an episode in these copies, each from its own generator: states, observations."""
        ...

    def step(
        self,
        state: Float[np.ndarray, "N state"],
        obs: Float[np.ndarray, "N obs"],
        act: Float[np.ndarray, "N act"],
    ) -> Outcome:
        """Advance all copies by one step."""
        ...

    def close(self) -> None:
        """Let go of what the copies run in."""
        ...


class Task(ABC):
    """A constrained task: spaces, limits, and cost and end as functions of a transition.

    `costs` and `terminated` are the one definition of both, for real and for imagined transitions.
    They take NumPy and JAX arrays alike, with any leading axes. A transition into a state that is
    not finite (physics that blew up) is terminal and costs 1 on every task. A task that does not
    know one of them says so with `knows_cost` or `knows_termination`; it is then learned.

    Policies act within [−1, 1]; `in_units` says what that is for the robot.
    """

    name: str
    horizon: int = 1000
    most_copies: int = 128
    """Copies that episodes are run in side by side, at most, where nothing is learned."""
    cost_limits: tuple[float, ...] = (10.0,)
    cost_names: tuple[str, ...]
    obs_names: tuple[str, ...]
    act_names: tuple[str, ...]
    knows_cost: bool = True
    knows_termination: bool = True

    @property
    @abstractmethod
    def dt(self) -> float:
        """Seconds of simulated time in one step."""

    @property
    def observation_space(self) -> Box:
        """All of ℝⁿ, one axis for each of `obs_names`."""
        return Box(-np.inf, np.inf, (len(self.obs_names),), np.float64)

    @property
    def action_space(self) -> Box:
        """[−1, 1] for each of `act_names`."""
        return Box(-1.0, 1.0, (len(self.act_names),), np.float32)

    @property
    def bounds(self) -> Box:
        """The robot's own range of actions."""
        return self.action_space

    def as_rows(self, obs: Any) -> Float[np.ndarray, "*batch obs"]:
        """Observations of the robot as the policy takes them."""
        return np.asarray(obs, float)

    def in_units(self, act: Float[Any, "*batch act"]) -> Float[Any, "*batch act"]:
        """The robot's action for a policy's: clipped to [−1, 1], which is its range as it is."""
        return act.__array_namespace__().clip(act, -1.0, 1.0)

    @abstractmethod
    def costs(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Float[Any, "*batch cost"]:
        """The cost of each constraint."""

    @abstractmethod
    def terminated(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Bool[Any, "*batch"]:
        """Whether the transition leads to a terminal state."""

    def finite(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether every entry of the observation is a finite number."""
        xp = obs.__array_namespace__()
        return xp.all(xp.isfinite(obs), axis=-1)

    @abstractmethod
    def copies(self, num_envs: int, *, threads: int) -> Copies:
        """`num_envs` copies that are stepped at once, in `threads` threads where they run here."""

    @abstractmethod
    def environment(self, **options: Any) -> gymnasium.Env:
        """One copy as a Gymnasium environment; `options` are such as the render mode."""

    @abstractmethod
    def verify(self) -> None:
        """Hold `costs` and `terminated` against the robot, where another hand wrote them."""


def checked(act: object, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """The action as an array of doubles, if it has this shape and is finite."""
    array = np.asarray(act, np.float64)
    if array.shape != shape:
        raise ValueError(f"the action has shape {array.shape}; allowed: {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"the action is {array}; allowed: finite numbers")
    return array
