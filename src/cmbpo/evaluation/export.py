"""The deterministic policy of a run as a file for a robot: for NumPy alone, as ONNX or as C."""

import io
import json
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

from cmbpo.envs.find import find_task
from cmbpo.envs.making import Environment
from cmbpo.evaluation import c_policy, numpy_policy, onnx_policy, worth
from cmbpo.evaluation.evaluate import load_policy, steps_of
from cmbpo.networks import Actor, Policy, SquashedPolicy
from cmbpo.normalisation import with_weights
from cmbpo.runs.errors import RunError
from cmbpo.runs.files import whole_file
from cmbpo.runs.run_folder import Run
from cmbpo.tasks.task import Task

READER = "numpy_policy.py"
"""What reads an .npz file on the robot."""


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
        "compresses": np.array(isinstance(policy, Policy) and policy.compresses),
        "mean": policy.normaliser.mean,
        "std": policy.normaliser.std,
        "low": bounds.low.astype(np.float32),
        "high": bounds.high.astype(np.float32),
    }
    for i, layer in enumerate(layers):
        parts |= {f"weight_{i}": layer.weight, f"bias_{i}": layer.bias}
    return {name: np.asarray(value) for name, value in parts.items()}


class Format(NamedTuple):
    """A kind of file that a policy is written to."""

    refuse: Callable[[Path], None]
    """Whatever keeps it from being written under this name, here."""
    is_ours: Callable[[Path], bool]
    """Whether an export wrote it before."""
    content: Callable[[str, dict[str, np.ndarray], Callable[[], dict[str, str]]], bytes]
    """What it holds: from its name without the suffix, the arrays, and what tells of the policy."""
    use: str
    """What is typed where it is used; `{file}` and `{name}` stand for its name."""


def export(
    folder: Path,
    path: Path,
    *,
    best: bool = False,
    trusted: bool = False,
    env: Environment | None = None,
) -> str:
    """Write the policy of a run to a file of the kind that its suffix says; what it is worth.

    Beside an .npz file its reader, numpy_policy.py, is put. Only files that an export wrote before
    are replaced, and each at once; the module of an environment that the run names is imported only
    where it is `trusted`. `env` is the user's own, where it was made in Python.
    """
    if path.suffix not in FORMATS:
        raise RunError(
            f"the file is {str(path)!r}; allowed: a name that ends in {', '.join(FORMATS)}"
        )
    format = FORMATS[path.suffix]
    format.refuse(path)
    _require_replaceable(path, format.is_ours)
    reader = path.with_name(READER)
    if path.suffix == ".npz":
        _require_replaceable(reader, _is_reader)
    run = Run.open(folder, trusted=trusted)
    task = find_task(run.settings, env, trusted=trusted)
    parts = arrays(load_policy(run, task, best=best), task.bounds)
    content = format.content(path.stem, parts, partial(facts, run, task, best=best))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"could not make {path.parent}: {error.strerror or error}") from error
    if path.suffix == ".npz":
        _write_reader(reader)
    with whole_file(path) as file:
        file.write(content)
    return worth.sentence(run, best=best, env_steps=steps_of(run, best=best))


def facts(run: Run, task: Task, *, best: bool = False) -> dict[str, str]:
    """What is known of the policy of a run; lists as JSON has them."""
    settings = run.settings
    steps = steps_of(run, best=best)
    kept = None
    with suppress(RunError):  # damaged records do not keep a policy from its robot
        kept = worth.found(run, best=best, env_steps=steps)
    return {
        "task": settings.env_id,
        "algorithm": settings.algo,
        "seed": str(settings.seed),
        **({} if steps is None else {"env_steps": str(steps)}),
        "cost_limit": json.dumps(settings.cost_limit or task.cost_limits),
        "cost_names": json.dumps(task.cost_names),
        "horizon": str(task.horizon),
        "obs_names": json.dumps(task.obs_names),
        "act_names": json.dumps(task.act_names),
        **({} if kept is None else worth.facts(kept)),
    }


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
    # by a name of its own: exports of several policies to one folder may run side by side
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("xb") as file:
            file.write(_reader())
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _archive(parts: dict[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **parts)
    return file.getvalue()


def _anywhere(path: Path) -> None:
    """Such a file can be written under any name, with nothing that is not there."""


FORMATS = {
    ".npz": Format(
        refuse=_anywhere,
        is_ours=_is_exported,
        content=lambda name, parts, tell: _archive(parts),
        use="""On the robot's computer, which needs NumPy only, with {reader} beside it:
  from numpy_policy import load
  action = load({file!r})(observation)""",
    ),
    ".onnx": Format(
        refuse=lambda path: onnx_policy.require(),
        is_ours=onnx_policy.is_ours,
        content=lambda name, parts, tell: onnx_policy.model(parts, tell()),
        use="""With ONNX Runtime, from rows of single precision to rows of actions:
  session = onnxruntime.InferenceSession({file!r})
  (actions,) = session.run(None, {{"obs": observations}})""",
    ),
    ".h": Format(
        refuse=c_policy.require_name,
        is_ours=c_policy.is_ours,
        content=lambda name, parts, tell: c_policy.header(name, parts, tell()),
        use="""In C (C99 and later, linked with -lm):
  #include "{file}"
  if ({name}_act(obs, action) != 0) {{ /* a number of obs is not finite: stop */ }}""",
    ),
}
"""What a policy can be written to, by the suffix of the file."""


def main(folder: Path, path: Path, *, best: bool = False, trusted: bool = False) -> None:
    """Export, and say what it is worth and how the file is used."""
    worth_told = export(folder, path, best=best, trusted=trusted)
    print(f"{path}: the deterministic policy of {folder}")
    print(worth_told)
    print(FORMATS[path.suffix].use.format(file=path.name, name=path.stem, reader=READER))
