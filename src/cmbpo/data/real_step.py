"""One step of all real copies, and what a policy acts in: whatever simulates them."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int


class RealStep(NamedTuple):
    """One step of all copies.

    `next_obs` is what the step led to, `obs` where the copy now is: the same, unless the copy's
    episode ended and it was reset. Where the physics blew up, `next_obs` is not a number, the
    step is terminal and costs 1, and its reward is 0. A copy is `cut` where its time is up though
    the environment itself would go on: after the `allotted` steps, or before them by staggering, or
    with its process. In a copy that was `lost` nothing happened: the step is no data.
    """

    next_obs: Float[np.ndarray, "N obs"]
    reward: Float[np.ndarray, " N"]
    cost: Float[np.ndarray, "N cost"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    cut: Bool[np.ndarray, " N"]
    allotted: Int[np.ndarray, " N"]
    obs: Float[np.ndarray, "N obs"]
    lost: Bool[np.ndarray, " N"]


@runtime_checkable
class Steppable(Protocol):
    """Copies of a task that are stepped together, each reset when its episode ends."""

    obs: np.ndarray
    num_envs: int

    @property
    def task(self) -> Any:
        """The task, for its actions and costs."""
        ...

    def step(self, act: np.ndarray) -> RealStep:
        """Advance all copies; reset those whose episode ended."""
        ...
