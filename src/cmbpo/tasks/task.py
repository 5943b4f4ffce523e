"""What a task is: the known part of a constrained decision process, and a robot behind it."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float

from cmbpo.tasks.physics import Physics, PlainPhysics


class Camera(NamedTuple):
    """Where pictures are taken from: the body that is followed, and the view of it (m, degrees)."""

    body: str
    height: float
    distance: float
    elevation: float
    azimuth: float


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
    cost_limits: tuple[float, ...] = (10.0,)
    cost_names: tuple[str, ...]
    obs_names: tuple[str, ...]
    act_names: tuple[str, ...]
    knows_cost: bool = True
    knows_termination: bool = True

    @property
    def cost_limit(self) -> float:
        """The first of the cost limits, for tasks that have one; per episode."""
        return self.cost_limits[0]

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
        return Box(-1.0, 1.0, (len(self.act_names),), np.float64)

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


class SimulatedTask(Task):
    """A task with its robot in MuJoCo, in NumPy, for many copies at once.

    The state of a copy is one row [time, qpos, qvel, …]: all that its future depends on, apart from
    its random generator.
    """

    timestep: ClassVar[float]
    frame_skip: ClassVar[int]
    camera: ClassVar[Camera]

    @property
    def env_id(self) -> str:
        """The name that `gymnasium.make` takes."""
        return f"cmbpo/{self.name}"

    @property
    def dt(self) -> float:
        """Seconds of simulated time in one step."""
        return self.frame_skip * self.timestep

    def cost(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Float[Any, "*batch"]:
        """1 where the transition is unsafe, else 0."""
        xp = next_obs.__array_namespace__()
        return xp.where(self.unsafe(next_obs) | ~self.finite(next_obs), 1.0, 0.0)

    def costs(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Float[Any, "*batch cost"]:
        """The cost of each constraint."""
        return self.cost(obs, act, next_obs)[..., None]

    def terminated(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Bool[Any, "*batch"]:
        """Whether the transition leads to a terminal state."""
        return self.failed(next_obs) | ~self.finite(next_obs)

    @abstractmethod
    def unsafe(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether a finite state costs 1."""

    def failed(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Whether a finite state is terminal; no state is, unless the task says so."""
        xp = obs.__array_namespace__()
        return xp.zeros(obs.shape[:-1], dtype=bool)

    def cost_terms(
        self,
        next_obs: Float[np.ndarray, "N obs"],
        cost: Float[np.ndarray, "N cost"],
        terminated: Bool[np.ndarray, " N"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Why transitions cost, by name; several reasons may hold at once."""
        return {f"cost_{name}": cost[:, i] for i, name in enumerate(self.cost_names)}

    @property
    @abstractmethod
    def model(self) -> mujoco.MjModel:
        """The physics of the whole scene, compiled once for all copies."""

    @property
    @abstractmethod
    def drawing(self) -> mujoco.MjModel:
        """The same with scenery that is only seen, for pictures."""

    def physics(self, threads: int) -> Physics:
        """What advances the states of many copies in threads."""
        return PlainPhysics(self.model, self.frame_skip, threads)

    @abstractmethod
    def start(self, random: np.random.Generator) -> Float[np.ndarray, " state"]:
        """A state at the start of an episode."""

    @abstractmethod
    def control(
        self, state: Float[np.ndarray, "N state"], act: Float[np.ndarray, "N act"]
    ) -> Float[np.ndarray, "N ctrl"]:
        """What the actuators get for actions within [−1, 1]."""

    @abstractmethod
    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """The observations of states."""

    @abstractmethod
    def reward_terms(
        self,
        state: Float[np.ndarray, "N state"],
        act: Float[np.ndarray, "N act"],
        next_state: Float[np.ndarray, "N state"],
        measured: Float[np.ndarray, "N measured"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """The summands of the reward of a step, by name; `act` is within [−1, 1]."""


def robot(name: str) -> mujoco.MjSpec:
    """The robot that Gymnasium ships under this file name, to add a scene to."""
    folder = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    return mujoco.MjSpec.from_file(str(folder / name))
