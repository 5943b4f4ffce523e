"""Steps with random actions, that an environment is judged by before it is trained on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from cmbpo.envs.adapter import EnvAdapter


class Transitions(NamedTuple):
    """Steps of one copy, one after the other; those that are not `sound` are terminal."""

    obs: Float[np.ndarray, "n obs"]
    act: Float[np.ndarray, "n act"]
    next_obs: Float[np.ndarray, "n obs"]
    reward: Float[np.ndarray, " n"]
    cost: Float[np.ndarray, "n cost"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]

    @property
    def sound(self) -> Bool[np.ndarray, " n"]:
        """Where observation, reward and costs are finite."""
        finite = np.isfinite(self.next_obs).all(axis=1) & np.isfinite(self.cost).all(axis=1)
        return finite & np.isfinite(self.reward)


def random_steps(env: EnvAdapter, steps: int, *, horizon: int, seed: int) -> Transitions:
    """Steps with actions uniform in [−1, 1], episodes begun anew after `horizon` steps at most."""
    random = np.random.default_rng(seed)
    acts = random.uniform(-1.0, 1.0, (steps, *env.bounds.shape))
    rows = []
    obs, _ = env.reset(seed=seed)
    age = 0
    for act in acts:
        next_obs, reward, terminated, truncated, info = env.step(act)
        age += 1
        truncated = truncated or age == horizon
        terminated |= not all(np.isfinite(x).all() for x in (next_obs, reward, info["cost"]))
        rows.append((obs, act, next_obs, reward, info["cost"], terminated, truncated))
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset(seed=int(random.integers(2**31)))
            age = 0
    return Transitions(*(np.array(column) for column in zip(*rows, strict=True)))
