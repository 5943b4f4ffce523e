"""A task as a Gymnasium environment, and its translation from and to Safety-Gymnasium."""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

import cmbpo.tasks
from cmbpo.tasks.drawing.painter import Painter
from cmbpo.tasks.simulated import SimulatedTask, ThreadedCopies
from cmbpo.tasks.task import checked


class TaskEnv(gymnasium.Env):
    """One copy of a task: `gymnasium.make("cmbpo/AntSafe-v0")`.

    `info["cost"]` is the cost of the step; each term of reward and cost stands beside it. The time
    limit is Gymnasium's wrapper, which `gymnasium.make` puts around. After `reset(seed=s)` it does,
    to the bit, what copy 0 of `Simulator(task, …, seed=s)` does. It can be pickled and copied in
    the middle of an episode.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        task: str | SimulatedTask,
        *,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        **options: Any,
    ):
        """Compile the scene; `options` are the task's own, such as `cost_band`."""
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; allowed: 'human', 'rgb_array', None")
        if width < 1 or height < 1:
            raise ValueError(f"the picture is {width} × {height}; allowed: at least 1 × 1")
        self.task = cmbpo.tasks.get(task, **options) if isinstance(task, str) else task
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self.render_mode = render_mode
        self.metadata = self.metadata | {"render_fps": round(1.0 / self.task.dt)}
        self._copies = ThreadedCopies(self.task, threads=1)
        self._painter = Painter(self.task, width, height)
        self._state = np.empty((1, 0))
        self._obs = np.empty((1, 0))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._state, self._obs = self._copies.begin(np.zeros(1, int), [self.np_random])
        if self.render_mode == "human":
            self.render()
        return self._obs[0].copy(), {}

    def step(
        self, action: Any
    ) -> tuple[Float[np.ndarray, " obs"], float, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        self._require_reset("step")
        act = checked(action, (len(self.task.act_names),))[None]
        out = self._copies.step(self._state, self._obs, act)
        self._state, self._obs = out.state, out.obs
        if self.render_mode == "human":
            self.render()
        info = {name: float(term[0]) for name, term in out.terms.items()}
        info |= {"cost": float(out.cost[0].sum()), "blew_up": bool(out.blown_up[0])}
        return out.obs[0].copy(), float(out.reward[0]), bool(out.terminated[0]), False, info

    def render(self) -> Any:
        """A picture of the robot, or a window that shows it."""
        if self.render_mode is None:
            return None
        self._require_reset("render")
        return self._painter.paint(self._state[0], self.render_mode)

    @property
    def state(self) -> Float[np.ndarray, " state"]:
        """Where the simulation is, as a row [time, qpos, qvel, …]."""
        self._require_reset("state")
        return self._state[0].copy()

    def close(self) -> None:
        """Close the window."""
        self._painter.close()

    def _require_reset(self, call: str) -> None:
        if not self._state.size:
            raise gymnasium.error.ResetNeeded(f"{call}() needs a reset() before it")


class ToSafetyGymnasium(gymnasium.Wrapper):
    """Steps (obs, reward, cost, terminated, truncated, info), as Safety-Gymnasium's are."""

    def step(self, action: Any) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Advance by one step; the cost is taken from `info`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, info["cost"], terminated, truncated, info


class FromSafetyGymnasium(gymnasium.Wrapper):
    """Gymnasium's steps, with `info["cost"]`, from an environment of Safety-Gymnasium."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step; the cost is put into `info`."""
        step: tuple[Any, ...] = self.env.step(action)
        obs, reward, cost, terminated, truncated, info = step
        return obs, reward, terminated, truncated, {**info, "cost": cost}
