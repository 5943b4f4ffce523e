"""Checkpoints: a pytree in one file, written whole or not at all, read without executing code."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import cmbpo
from cmbpo.runs.array_file import KINDS, arrays_in, write_whole
from cmbpo.runs.errors import DamagedError, RunError, UnlikeError
from cmbpo.runs.files import read_bytes

FORMAT = 1
"""Layout of the file. A reader of another layout refuses it."""


RENAMED = {
    "promise/": "prediction/",
    "learner/model/heads/": "learner/model/cost_model/",
    "learner/model/head_opt_state/": "learner/model/cost_opt_state/",
    "learner/model/quality/Model/HoldoutMSE": "learner/model/quality/holdout_error",
    "learner/model/quality/Model/TrainLoss": "learner/model/quality/train_loss",
    "learner/model/quality/Model/Epochs": "learner/model/quality/epochs",
    "learner/model/quality/Model/RankCorrelation": "learner/model/quality/rank_correlation",
}
"""Parts of the state by the names that older versions gave them, so that their runs go on."""


GONE = ("learner/improvement", "learner/model/quality/Model/", "learner/model/limits/mean")
"""Parts that older versions saved and that nothing depends on any more: CPO's own state, how the
last fit of learned costs went, which the next fit tells anew, and d_m, which α₀ and D̄₀ tell."""
TOLD_ANEW = (
    *("learner/model/quality/cost/", "learner/policy/noise"),
    *("best/", "simulator/restarts"),
)
"""Parts that a checkpoint of an older version may lack: a run that goes on starts them as new."""


class Checkpoint(NamedTuple):
    """A state, and the notes that were saved with it."""

    state: Any
    notes: dict[str, Any]


def save(path: Path, state: Any, *, notes: Mapping[str, Any]) -> None:
    """Write the pytree `state` and the JSON values `notes` to `path`.

    Leaves may be JAX or NumPy arrays, random keys, and Python numbers and strings.
    """
    arrays, keys = to_arrays(state)
    manifest = {
        "format": FORMAT,
        "cmbpo": cmbpo.__version__,
        "leaves": list(arrays),
        "keys": keys,
        "notes": dict(notes),
    }
    header = json.dumps(manifest).encode()
    members = {f"leaves/{name}": array for name, array in arrays.items()}
    members["manifest"] = np.frombuffer(header, np.uint8)
    members["checksum"] = np.frombuffer(_checksum(header, arrays), np.uint8)
    write_whole(path, members)


def load(path: Path, template: Any, *, under: str = "") -> Checkpoint:
    """Fill `template` with the leaves of the same names, shapes and types in the file at `path`.

    With `under`, the template is that part of the saved state only, as in `under="policy"`.
    """
    arrays, manifest = _read(path)
    origin = f"{path} (cmbpo {manifest.version})"
    arrays = {_todays_name(name): array for name, array in arrays.items()}
    keys = {_todays_name(name): kind for name, kind in manifest.keys.items()}
    leaves, treedef = jax.tree_util.tree_flatten_with_path(template)
    filled = []
    for tree_path, leaf in leaves:
        name = "/".join(part for part in (under, _name(tree_path)) if part)
        if name not in arrays and name.startswith(TOLD_ANEW):
            filled.append(leaf)
            continue
        if name not in arrays:
            raise UnlikeError(f"{origin} holds no {name!r}, which this run needs")
        try:
            filled.append(_like(leaf, arrays[name], keys.get(name)))
        except (TypeError, ValueError) as error:
            raise UnlikeError(f"{origin} holds another {name!r}: {error}") from None
    known = {_name(tree_path) for tree_path, _ in leaves}
    for name in arrays:
        if not under and name not in known and not name.startswith(GONE):
            raise UnlikeError(f"{origin} holds {name!r}, unknown to this run")
    return Checkpoint(jax.tree.unflatten(treedef, filled), manifest.notes)


def to_arrays(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The leaves of a pytree as NumPy arrays by name, and the kind of each that is a random key."""
    leaves: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for tree_path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = _name(tree_path)
        if name in leaves:
            raise RunError(f"two leaves of the state share the name {name!r}")
        if _is_key(leaf):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        leaves[name] = leaf
    # One transfer for all leaves: from a GPU each would wait for its own.
    arrays = {name: np.asarray(x, order="C") for name, x in jax.device_get(leaves).items()}
    for name, array in arrays.items():
        if array.dtype.kind not in KINDS:
            raise RunError(f"{name!r} of type {array.dtype} cannot go into a checkpoint")
    return arrays, keys


def read_notes(path: Path) -> dict[str, Any]:
    """The notes of the checkpoint at `path`, once all of it is found whole."""
    return _read(path)[1].notes


class _Manifest(NamedTuple):
    """What a checkpoint says about itself."""

    version: str
    leaves: list[str]
    keys: dict[str, str]
    notes: dict[str, Any]


def _read(path: Path) -> tuple[dict[str, np.ndarray], _Manifest]:
    """The leaves and the manifest; nothing is allocated that the file is not long enough for."""
    data = read_bytes(path)
    try:
        members = arrays_in(data)
        header = members["manifest"].tobytes()
        manifest = _manifest(json.loads(header), path)
        arrays = {name: members[f"leaves/{name}"] for name in manifest.leaves}
        if members["checksum"].tobytes() != _checksum(header, arrays):
            raise DamagedError(f"{path} is damaged: its checksum differs")
    except RunError:
        raise
    except MemoryError as error:
        raise RunError(f"could not read {path}: there is not enough memory") from error
    except Exception as error:  # damaged bytes fail in every way there is
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise DamagedError(f"{path} is damaged: {reason}") from error
    return arrays, manifest


def _manifest(content: Any, path: Path) -> _Manifest:
    fields = {"format": int, "cmbpo": str, "leaves": list, "keys": dict, "notes": dict}
    for name, kind in fields.items():
        if not isinstance(content, dict) or not isinstance(content.get(name), kind):
            raise DamagedError(f"{path} is no checkpoint: its manifest has no {name!r}")
    if content["format"] != FORMAT:
        raise RunError(
            f"{path} has checkpoint format {content['format']}, written by cmbpo "
            f"{content['cmbpo']}; cmbpo {cmbpo.__version__} reads format {FORMAT}"
        )
    words = [*content["leaves"], *content["keys"], *content["keys"].values()]
    if not all(isinstance(word, str) for word in words):
        raise DamagedError(f"{path} is no checkpoint: its manifest names what has no name")
    return _Manifest(content["cmbpo"], content["leaves"], content["keys"], content["notes"])


def _checksum(header: bytes, arrays: Mapping[str, np.ndarray]) -> bytes:
    digest = hashlib.sha256(header)
    for array in arrays.values():
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()


def _todays_name(name: str) -> str:
    for old, new in RENAMED.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _name(tree_path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(tree_path, simple=True, separator="/")


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _like(leaf: Any, array: np.ndarray, kind: str | None) -> Any:
    """`array` as what `leaf` is: a random key, a JAX or NumPy array, or a Python value."""
    if _is_key(leaf):
        if kind is None:
            raise TypeError("an array where a random key belongs")
        value = jax.random.wrap_key_data(jnp.array(array), impl=kind)
    elif kind is not None:
        raise TypeError("a random key where none belongs")
    elif isinstance(leaf, bool | int | float | complex | str):
        value = array.item() if array.ndim == 0 else array
        if type(value) is not type(leaf):
            raise TypeError(f"{type(value).__name__} where {type(leaf).__name__} belongs")
        return value
    else:
        value = array
    if value.shape != leaf.shape or value.dtype != leaf.dtype:
        raise TypeError(f"{value.dtype}{value.shape} where {leaf.dtype}{leaf.shape} belongs")
    if isinstance(leaf, np.ndarray):
        return value.copy()
    return value[()] if isinstance(leaf, np.generic) else jnp.array(value)
