"""Which spaces of an environment can be trained on, and how a policy's actions fill them."""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
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
    if isinstance(space, Dict):
        if not space.spaces:
            return "the observation is an empty Dict; allowed: at least one entry"
        refusals = ((name, _part_refusal(part)) for name, part in parts(space))
        return next(
            (f"of the observation, {n!r} cannot be used: {r}" for n, r in refusals if r), None
        )
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


def _part_refusal(space: gymnasium.Space) -> str | None:
    """The same of an entry of a Dict, which may be a single number, too."""
    scalar = isinstance(space, Box) and space.shape == ()
    return None if scalar else observation_refusal(space)


def parts(space: gymnasium.Space, name: str = "obs") -> Iterator[tuple[str, gymnasium.Space]]:
    """The spaces that observations consist of, by name: several where they are a Dict."""
    if not isinstance(space, Dict):
        yield name, space
        return
    for key, inner in space.spaces.items():
        yield from parts(inner, key if name == "obs" else f"{name}.{key}")


def entry_names(space: gymnasium.Space) -> tuple[str, ...]:
    """A name for each number of an observation, in the order in which they stand in a row."""
    sizes = ((name, int(np.prod(part.shape or ()))) for name, part in parts(space))
    return tuple(f"{name}_{i}" for name, size in sizes for i in range(size))


class WrongEntryError(ValueError):
    """An entry of an observation that is a Dict is missing, or of another shape."""


def rows_of(obs: Mapping[str, Any], space: gymnasium.Space) -> Float[np.ndarray, "*batch obs"]:
    """The entries of one observation, or of a batch, one after the other."""
    rows = []
    for name, value, inner in entries(obs, space):
        seen = np.asarray(np.nan if value is None else value, float)
        batch = seen.shape[: seen.ndim - len(inner.shape)]
        if value is None or seen.shape != (*batch, *inner.shape):
            what = "is missing" if value is None else f"has the shape {seen.shape}"
            raise WrongEntryError(
                f"the entry {name!r} of the observation {what}; allowed: {inner.shape}, behind the"
                " same number of rows for each entry"
            )
        rows.append(seen.reshape(*batch, -1))
    if len({row.shape[:-1] for row in rows}) > 1:
        shapes = ", ".join(str(row.shape[:-1]) for row in rows)
        raise WrongEntryError(
            f"the entries of the observation have different numbers of rows, {shapes}; allowed: the"
            " same for each"
        )
    return np.concatenate(rows, axis=-1)


def entries(obs: Any, space: gymnasium.Space, name: str = "obs") -> Iterator[tuple[str, Any, Any]]:
    """What an observation holds for each of `parts(space)`: its name, what is there, its space.

    Where the observation lacks an entry, there is None.
    """
    if not isinstance(space, Dict):
        yield name, obs, space
        return
    for key, inner in space.spaces.items():
        there = obs.get(key) if isinstance(obs, Mapping) else None
        yield from entries(there, inner, key if name == "obs" else f"{name}.{key}")


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
