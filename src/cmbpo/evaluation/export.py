"""The deterministic policy of a run as arrays that a computer with nothing but NumPy can run."""

import shutil
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

from cmbpo.envs.find import find_task
from cmbpo.evaluation import numpy_policy
from cmbpo.evaluation.evaluate import load_policy
from cmbpo.networks import Policy
from cmbpo.runs.checkpoint import write_whole
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run


def arrays(policy: Policy, bounds: Box) -> dict[str, np.ndarray]:
    """What the action follows from: layers, normaliser, and the bounds that [−1, 1] stands for."""
    layers = policy.net.layers
    parts = {
        "layers": np.array(len(layers)),
        "mean": policy.normaliser.mean,
        "std": policy.normaliser.std,
        "low": bounds.low.astype(np.float32),
        "high": bounds.high.astype(np.float32),
    }
    for i, layer in enumerate(layers):
        parts |= {f"weight_{i}": layer.weight, f"bias_{i}": layer.bias}
    return {name: np.asarray(value) for name, value in parts.items()}


def export(folder: Path, path: Path) -> Path:
    """Write the policy of a run to an .npz file, and its reader, numpy_policy.py, beside it."""
    if path.suffix != ".npz":
        raise RunError(f"the file is {str(path)!r}; allowed: a name that ends in .npz")
    run = Run.open(folder)
    task = find_task(run.settings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"could not make {path.parent}: {error.strerror or error}") from error
    write_whole(path, arrays(load_policy(run, task), task.bounds))
    reader = path.with_name("numpy_policy.py")
    shutil.copyfile(numpy_policy.__file__, reader)
    return reader


def main(folder: Path, path: Path) -> None:
    """Export, and say how the file is used."""
    reader = export(folder, path)
    print(f"{path}: the deterministic policy of {folder}")
    print(f"{reader}: reads it; needs NumPy only. On the robot's computer, with both files there:")
    print("  from numpy_policy import load")
    print(f"  action = load({path.name!r})(observation)")
