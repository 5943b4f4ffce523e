"""Which spaces of an environment can be trained on, and how a policy's actions fill them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float


def rescaled(act: Float[Any, "*batch act"], bounds: Box) -> Float[Any, "*batch act"]:
    """From [−1, 1], where it is clipped to, to the bounds: low + ½(a + 1)(high − low)."""
    xp = act.__array_namespace__()
    shape = (1,) * (act.ndim - 1) + bounds.shape
    low = xp.asarray(bounds.low, dtype=act.dtype).reshape(shape)
    high = xp.asarray(bounds.high, dtype=act.dtype).reshape(shape)
    share = 0.5 * (xp.clip(act, -1.0, 1.0) + 1.0)
    # Clipped again: rounding may leave the bounds by one digit, which some robots refuse.
    return xp.clip(low + share * (high - low), low, high)


def observation_refusal(space: gymnasium.Space) -> str | None:
    """Why observations cannot be used, and what to wrap the environment with; None if they can."""
    flatten = "gymnasium.wrappers.FlattenObservation makes it one"
    if not isinstance(space, Box):
        return f"the observation space is {type(space).__name__}; allowed: a vector. {flatten}"
    if len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8):
        return (
            f"the observation is an image of shape {space.shape}; allowed: a vector. Observe the"
            " state, or encode the image with gymnasium.wrappers.TransformObservation"
        )
    if len(space.shape) != 1 or space.shape[0] == 0:
        return f"the observation has shape {space.shape}; allowed: a vector. {flatten}"
    return None


def action_refusal(space: gymnasium.Space) -> str | None:
    """Why actions cannot be used, and what to wrap the environment with; None if they can."""
    wrapper = "gymnasium.wrappers.TransformAction(env, function, Box(…))"
    if not isinstance(space, Box):
        return (
            f"the action space is {type(space).__name__}; allowed: a Box of real numbers."
            f" {wrapper} can choose one of these actions by a vector"
        )
    if len(space.shape) != 1 or space.dtype.kind != "f":
        return (
            f"the actions are {space.dtype} of shape {space.shape}; allowed: a vector of real"
            f" numbers. {wrapper} makes them of one"
        )
    if space.shape[0] == 0:
        return "the action has no entries; allowed: at least one"
    if (space.low == space.high).all():
        return (
            f"low and high of the action space are both {space.low}; allowed: a width above 0,"
            " since no action would differ from another"
        )
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    if not bounded.all():
        return (
            f"action {np.flatnonzero(~bounded)[0]} has no finite bounds; allowed: finite ones,"
            f" since they say its scale. {wrapper} gives them"
        )
    return None
