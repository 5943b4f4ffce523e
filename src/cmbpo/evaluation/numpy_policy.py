"""A trained policy on a computer with nothing but NumPy: this file and the one `export` wrote.

policy = load("policy.npz")
action = policy(observation)
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np


def load(path: str | Path) -> Callable[[np.ndarray], np.ndarray]:
    """The policy of an exported file: from an observation, or rows of them, to the action.

    Observations and actions are in the robot's units; actions are within its bounds. With m, s the
    normaliser, tanh between the layers, and the bounds low and high:

        a = low + ½(clip(net((o − m)/s), −1, 1) + 1)(high − low)
    """
    with np.load(path, allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    layers = [(data[f"weight_{i}"], data[f"bias_{i}"]) for i in range(int(data["layers"]))]

    def act(observation: np.ndarray) -> np.ndarray:
        """The deterministic action."""
        x = np.asarray(observation, np.float32)
        if x.shape[-1:] != data["mean"].shape or not np.isfinite(x).all():
            wanted = f"{len(data['mean'])} finite numbers"
            raise ValueError(f"the observation is {observation!r}; allowed: {wanted}")
        x = (x - data["mean"]) / data["std"]
        for i, (weight, bias) in enumerate(layers):
            x = (np.tanh(x) if i else x) @ weight.T + bias
        share = 0.5 * (np.clip(x, -1.0, 1.0) + 1.0)
        low, high = data["low"], data["high"]
        return np.clip(low + share * (high - low), low, high)

    return act
