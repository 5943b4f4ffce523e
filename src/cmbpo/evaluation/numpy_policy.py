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
    normaliser, and the bounds low and high:

        a = low + ½(x + 1)(high − low),   x = clip(net((o − m)/s), −1, 1)

    with tanh between the layers of the net; of a policy that is squashed they are linear or zero,
    and x = tanh(net(…)). One that compresses sees sign(z) log(1 + |z|) of z = (o − m)/s.
    """
    with np.load(path, allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    layers = [(data[f"weight_{i}"], data[f"bias_{i}"]) for i in range(int(data["layers"]))]

    squashed = bool(data.get("squashed", False))

    def between(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0.0) if squashed else np.tanh(x)

    def act(observation: np.ndarray) -> np.ndarray:
        """The deterministic action."""
        x = np.asarray(observation, np.float32)
        if x.shape[-1:] != data["mean"].shape or not np.isfinite(x).all():
            wanted = f"{len(data['mean'])} finite numbers"
            raise ValueError(f"the observation is {observation!r}; allowed: {wanted}")
        x = (x - data["mean"]) / data["std"]
        if data.get("compresses", False):
            x = np.sign(x) * np.log1p(np.abs(x))
        for i, (weight, bias) in enumerate(layers):
            x = (between(x) if i else x) @ weight.T + bias
        share = 0.5 * ((np.tanh(x) if squashed else np.clip(x, -1.0, 1.0)) + 1.0)
        low, high = data["low"], data["high"]
        return np.clip(low + share * (high - low), low, high)

    return act
