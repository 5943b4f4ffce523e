"""Tasks with a robot in MuJoCo: what such a task says of it, and many copies in threads."""

import ctypes
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int

from cmbpo.tasks.physics.threads import Physics, PlainPhysics
from cmbpo.tasks.task import Mishaps, Outcome, Task

BLOWN_UP = 1e4
"""No position (m, rad) or speed (m/s, rad/s) of a sound simulation comes near this number."""


class Camera(NamedTuple):
    """Where pictures are taken from: the body that is followed, and the view of it (m, degrees)."""

    body: str
    height: float
    distance: float
    elevation: float
    azimuth: float


class Transition(NamedTuple):
    """A step that copies really made, with actions as given and the states before and after."""

    state: Float[np.ndarray, "N state"]
    obs: Float[np.ndarray, "N obs"]
    act: Float[np.ndarray, "N act"]
    next_state: Float[np.ndarray, "N state"]
    next_obs: Float[np.ndarray, "N obs"]


class SimulatedTask(Task):
    """A task with its robot in MuJoCo, in NumPy, for many copies at once.

    The state of a copy is one row [time, qpos, qvel, …]: all that its future depends on, apart from
    its random generator. What real steps cost, and whether they end an episode, is `charged` and
    `ended`: the known functions of observations, or, where a task knows none, a matter of states.
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

    def charged(self, step: Transition) -> Float[np.ndarray, "N cost"]:
        """The cost of each constraint in real steps."""
        return self.costs(step.obs, step.act, step.next_obs)

    def ended(self, step: Transition) -> Bool[np.ndarray, " N"]:
        """Whether real steps led to a terminal state."""
        return self.terminated(step.obs, step.act, step.next_obs)

    def cost_terms(
        self,
        next_obs: Float[np.ndarray, "N obs"],
        cost: Float[np.ndarray, "N cost"],
        terminated: Bool[np.ndarray, " N"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Why transitions cost, by name; several reasons may hold at once."""
        return {f"cost_{name}": cost[:, i] for i, name in enumerate(self.cost_names)}

    @abstractmethod
    def scene(self, *, drawn: bool) -> mujoco.MjModel:
        """The whole scene, compiled once for all copies; `drawn`: with what is only seen."""

    @property
    def model(self) -> mujoco.MjModel:
        """The scene that is simulated."""
        return self.scene(drawn=False)

    @property
    def drawing(self) -> mujoco.MjModel:
        """The scene that is shown in pictures."""
        return self.scene(drawn=True)

    def copies(self, num_envs: int, *, threads: int) -> "ThreadedCopies":
        """Copies in threads of MuJoCo."""
        return ThreadedCopies(self, min(threads, num_envs))

    def environment(self, **options: Any) -> gymnasium.Env:
        """One copy with its time limit."""
        return gymnasium.make(self.env_id, task=self, disable_env_checker=True, **options)

    def verify(self) -> None:
        """Nothing to do: what is known serves robot and model in one definition."""

    def physics(self, threads: int) -> Physics:
        """What advances the states of many copies in threads."""
        return PlainPhysics(self.model, self.frame_skip, threads)

    @abstractmethod
    def start(self, random: np.random.Generator) -> Float[np.ndarray, " start"]:
        """A state at the start of an episode, without what the physics add to it."""

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


class ThreadedCopies:
    """Copies of a simulated task, and the threads that advance their physics."""

    restorable = True

    def __init__(self, task: SimulatedTask, threads: int):
        """Compile the scene and prepare `threads` threads."""
        self.task = task
        self.mishaps = Mishaps()
        self._threads = threads
        self._physics = task.physics(threads)
        self._moving = 1 + task.model.nq + task.model.nv

    def __reduce__(self) -> tuple[Any, ...]:
        """Threads and scratch memory cannot be copied, nor need they: a copy prepares its own."""
        return type(self), (self.task, self._threads)

    def begin(
        self, rows: Int[np.ndarray, " ended"], random: Sequence[np.random.Generator]
    ) -> tuple[Float[np.ndarray, "ended state"], Float[np.ndarray, "ended obs"]]:
        """States at the start of an episode, each from its own generator, and what is seen."""
        start = np.stack([self.task.start(own) for own in random])
        state, measured = self._physics.begin(start)
        return state, self.task.observe(state, measured)

    def step(
        self,
        state: Float[np.ndarray, "N state"],
        obs: Float[np.ndarray, "N obs"],
        act: Float[np.ndarray, "N act"],
    ) -> Outcome:
        """Advance all copies by one step.

        A copy whose physics blew up is observed as not-a-number throughout and earns nothing, so
        that the task's own functions end it and charge its cost.
        """
        task = self.task
        within = np.minimum(np.maximum(act, -1.0), 1.0)
        next_state, measured = self._advance(state, task.control(state, within))
        sound = np.abs(next_state[:, : self._moving]).max(axis=1) < BLOWN_UP
        blown_up = ~(sound & np.isfinite(measured.sum(axis=1)))
        trouble = blown_up.any()
        if trouble:
            self._note(blown_up)
            # The state before, so that no other copy's arithmetic meets what is not a number.
            next_state[blown_up] = state[blown_up]
            measured[blown_up] = 0.0
        next_obs = task.observe(next_state, measured)
        terms = task.reward_terms(state, within, next_state, measured)
        if trouble:
            next_obs[blown_up] = np.nan
            terms = {name: np.where(blown_up, 0.0, term) for name, term in terms.items()}
        reward = sum(terms.values(), np.zeros(len(state)))
        made = Transition(state, obs, act, next_state, next_obs)
        cost, terminated = task.charged(made), task.ended(made)
        terms |= task.cost_terms(next_obs, cost, terminated)
        never = np.zeros(len(state), bool)
        return Outcome(
            next_state, next_obs, reward, cost, terminated, never, blown_up, never, terms
        )

    def close(self) -> None:
        """Nothing to let go of."""

    def _note(self, blown_up: Bool[np.ndarray, " N"]) -> None:
        if not self.mishaps.not_finite:
            self.mishaps.say(
                f"The physics of copy {np.argmax(blown_up)} blew up: such a step ends its episode,"
                " earns nothing and costs 1; more of it is counted in the log."
            )
        self.mishaps.not_finite += int(blown_up.sum())

    def _advance(self, state: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Step the physics; what MuJoCo would say of it is reported by `blown_up`."""
        with unsaid():
            return self._physics.step(state, control)


def robot(name: str) -> mujoco.MjSpec:
    """The robot that Gymnasium ships under this file name, to add a scene to."""
    folder = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    return mujoco.MjSpec.from_file(str(folder / name))


def compiled(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """The model of a scene, whose physics are seen as they are when they blow up, not reset."""
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    total_mass = spec.compiler.settotalmass
    # as an attribute of the compiler this is deprecated, and says so at every compilation
    spec.compiler.settotalmass = -1
    model = spec.compile()
    if total_mass > 0.0:
        mujoco.mj_setTotalmass(model, total_mass)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


_IGNORE = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda message: None)


@contextmanager
def unsaid() -> Iterator[None]:
    """Inside, MuJoCo neither prints nor logs its warnings."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_IGNORE)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
