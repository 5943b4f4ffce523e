"""A user's environment whose episodes are one step long, so that no episode is lost in between.

What a copy of a user's environment holds inside cannot be saved, and a run that goes on begins its
episodes anew; with episodes of one step from one start, its records are still those of a run that
nothing happened to.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

ENV_ID = f"{__name__}:Memoryless-v0"


class Memoryless(gymnasium.Env):
    """Reward a, cost 1 above 0.3."""

    def __init__(self) -> None:
        """Two observations, one action."""
        self.observation_space = Box(-2.0, 2.0, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Always the same start."""
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step, which is all there is."""
        a = float(action[0])
        return np.array([a, a * a]), a, False, False, {"cost": float(a > 0.3)}


gymnasium.register("Memoryless-v0", entry_point=lambda **_: Memoryless(), max_episode_steps=1)
