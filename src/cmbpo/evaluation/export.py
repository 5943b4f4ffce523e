"""The deterministic policy of a run as arrays that a computer with nothing but NumPy can run."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

from cmbpo.envs.find import find_task
from cmbpo.evaluation import numpy_policy
from cmbpo.evaluation.evaluate import load_policy
from cmbpo.networks import Actor, SquashedPolicy
from cmbpo.normalisation import with_weights
from cmbpo.runs.checkpoint import write_whole
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run


def arrays(policy: Actor, bounds: Box) -> dict[str, np.ndarray]:
    """What the action follows from: layers, normaliser, and the bounds that [−1, 1] stands for.

    Of a squashed policy, its deviations are left out.
    """
    layers = list(policy.net.layers)
    squashed = isinstance(policy, SquashedPolicy)
    if squashed:
        *_, last = layers
        half = last.bias.size // 2
        layers[-1] = with_weights(last, last.weight[:half], last.bias[:half])
    parts = {
        "layers": np.array(len(layers)),
        "squashed": np.array(squashed),
        "compresses": np.array(not squashed and policy.compresses),
        "mean": policy.normaliser.mean,
        "std": policy.normaliser.std,
        "low": bounds.low.astype(np.float32),
        "high": bounds.high.astype(np.float32),
    }
    for i, layer in enumerate(layers):
        parts |= {f"weight_{i}": layer.weight, f"bias_{i}": layer.bias}
    return {name: np.asarray(value) for name, value in parts.items()}


def export(folder: Path, path: Path, *, best: bool = False, trusted: bool = False) -> Path:
    """Write the policy of a run to an .npz file, and its reader, numpy_policy.py, beside it.

    Only files that an export wrote before are replaced, and each at once; the module of an
    environment that the run names is imported only where it is `trusted`.
    """
    if path.suffix != ".npz":
        raise RunError(f"the file is {str(path)!r}; allowed: a name that ends in .npz")
    reader = path.with_name("numpy_policy.py")
    _require_replaceable(path, _is_exported)
    _require_replaceable(reader, _is_reader)
    run = Run.open(folder, trusted=trusted)
    task = find_task(run.settings, trusted=trusted)
    parts = arrays(load_policy(run, task, best=best), task.bounds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"could not make {path.parent}: {error.strerror or error}") from error
    _write_reader(reader)
    write_whole(path, parts)
    return reader


def _require_replaceable(path: Path, is_ours: Callable[[Path], bool]) -> None:
    """Refuse to replace what no export wrote, and to write through a link."""
    try:
        if path.is_symlink():
            raise RunError(f"{path} is a symbolic link; allowed: a file, or nothing yet")
        if path.exists() and not is_ours(path):
            raise RunError(
                f"{path} is there already and no export wrote it; choose another folder, or move it"
            )
    except OSError as error:
        raise RunError(f"could not look at {path}: {error.strerror or error}") from error


def _is_exported(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            names = set(file.namelist())
    except (zipfile.BadZipFile, IsADirectoryError):
        return False
    return {f"{name}.npy" for name in ("layers", "mean", "std", "low", "high")} <= names


def _is_reader(path: Path) -> bool:
    if not path.is_file():
        return False
    title = _reader().partition(b"\n")[0]
    with path.open("rb") as file:
        return file.read(len(title)) == title


def _reader() -> bytes:
    return Path(numpy_policy.__file__).read_bytes()


def _write_reader(path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("xb") as file:
            file.write(_reader())
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def main(folder: Path, path: Path, *, best: bool = False, trusted: bool = False) -> None:
    """Export, and say how the file is used."""
    reader = export(folder, path, best=best, trusted=trusted)
    print(f"{path}: the deterministic policy of {folder}")
    print(f"{reader}: reads it; needs NumPy only. On the robot's computer, with both files there:")
    print("  from numpy_policy import load")
    print(f"  action = load({path.name!r})(observation)")
