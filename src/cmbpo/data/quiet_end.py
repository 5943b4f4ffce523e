"""How loud a policy's noise is: a run may end with little, for what it learns to act without.

A limit is held for the policy that acts in training. Without its noise the same policy is another
one: a cheetah runs 5 % faster, into what it kept clear of.
"""

import numpy as np
from jaxtyping import Float

QUIET = 0.1
"""What is left of the deviation, at least."""
AIM = 0.5
"""Share of the usual target that is aimed at meanwhile. As the noise fades the same policy costs
more, and the controller answers late: aiming as before, cheetahs spent 12 of 10."""


def begun(env_steps: int, *, total_steps: int, quiet_end: float) -> bool:
    """Whether no more than the share `quiet_end` of all steps is left."""
    return quiet_end > 0.0 and env_steps >= (1.0 - quiet_end) * total_steps


def next_noise(
    noise: float,
    *,
    env_steps: int,
    total_steps: int,
    quiet_end: float,
    steps: float,
    cost: Float[np.ndarray, " cost"],
    target: Float[np.ndarray, " cost"],
) -> float:
    """The factor on the deviation of the actions, after an update of `steps` with J_c = `cost`.

        noise ← max(QUIET, noise · QUIET^(steps / (q T)))   while J_c ≤ target

    It is 1 until the share q = `quiet_end` of all T steps is left. Where the cost is beyond its
    target, the noise waits.
    """
    if not begun(env_steps, total_steps=total_steps, quiet_end=quiet_end):
        return 1.0
    if np.any(cost > target):
        return noise
    return max(QUIET, noise * QUIET ** (steps / (quiet_end * total_steps)))
