"""Environments of one's own: robots that Gymnasium ships, with a cost by a wrapper of three lines.

    cmbpo train --algo cpo --env-id examples.velocity_cost:SafeHopper-v0 --cost-limit 25

The speeds above which a step costs 1 are those of this package's velocity tasks.
"""

from typing import Any

import gymnasium
import numpy as np

import cmbpo.tasks


class VelocityCost(gymnasium.Wrapper):
    """A step costs 1 when the robot went faster than `limit` (m/s)."""

    def __init__(self, env: gymnasium.Env, limit: float):
        """Put around a robot that reports its velocity."""
        super().__init__(env)
        self.limit = limit

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        # A robot that moves in the plane reports both components, one in a line its direction.
        both = "y_velocity" in info
        speed = np.hypot(info["x_velocity"], info["y_velocity"]) if both else info["x_velocity"]
        return obs, reward, terminated, truncated, info | {"cost": float(speed > self.limit)}


class FoldingCost(gymnasium.Wrapper):
    """A step of Reacher costs 1 when its fingertip comes nearer than 8 cm to its shoulder.

    One target in six lies there.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        tip = obs[4:6] + obs[8:10]
        return obs, reward, terminated, truncated, info | {"cost": float(np.hypot(*tip) < 0.08)}


class KnownFoldingCost(FoldingCost):
    """The same, and functions that say so of observations, so that nothing is to be learned.

    They take any arrays with any leading axes.
    """

    def cost(self, obs: Any, act: Any, next_obs: Any) -> Any:
        """1 where the fingertip, the target plus the way from it, is within 8 cm."""
        tip = next_obs[..., 4:6] + next_obs[..., 8:10]
        return (tip[..., 0] ** 2 + tip[..., 1] ** 2 < 0.08**2) * 1.0

    def terminated(self, obs: Any, act: Any, next_obs: Any) -> Any:
        """Never: only the time limit ends an episode."""
        return next_obs[..., 0] != next_obs[..., 0]


def fast_robot(env_id: str, limit: float, **options: Any) -> gymnasium.Env:
    """A robot of Gymnasium with a cost on its speed."""
    return VelocityCost(gymnasium.make(env_id, **options).unwrapped, limit)


def arm(*, known: bool, **options: Any) -> gymnasium.Env:
    """Gymnasium's Reacher with a cost on folding."""
    wrapper = KnownFoldingCost if known else FoldingCost
    return wrapper(gymnasium.make("Reacher-v5", **options).unwrapped)


# Without contact forces in its observations, which are those of the task.
_OPTIONS: dict[str, dict[str, Any]] = {"Ant": {"include_cfrc_ext_in_observation": False}}
for robot in ("HalfCheetah", "Hopper", "Ant"):
    task: Any = cmbpo.tasks.get(f"{robot}Velocity")
    gymnasium.register(
        f"Safe{robot}-v0",
        entry_point=f"{__name__}:fast_robot",
        kwargs={"env_id": f"{robot}-v5", "limit": task.fastest, **_OPTIONS.get(robot, {})},
        max_episode_steps=1000,
    )
for name, known in (("SafeReacher-v0", False), ("KnownReacher-v0", True)):
    gymnasium.register(
        name, entry_point=f"{__name__}:arm", kwargs={"known": known}, max_episode_steps=50
    )
