"""config.json: everything needed to repeat a run, with versions and commit."""

import dataclasses
import json
import platform
import reprlib
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import cmbpo
from cmbpo.runs.errors import RunError
from cmbpo.runs.files import read_bytes, whole_file
from cmbpo.runs.identity import new_id
from cmbpo.settings import aliases, plugins
from cmbpo.settings.overrides import flat, names, with_values
from cmbpo.settings.schema import TrainSettings

MOST_STEPS = 10**9
"""Longest episode that a run may note."""


def write_config(folder: Path, settings: TrainSettings, extra: Mapping[str, Any]) -> None:
    """Write the settings, `extra`, the command line and what the run runs on."""
    config = {
        "id": new_id(),
        "settings": dataclasses.asdict(settings),
        **extra,
        "command": [_program(), *sys.argv[1:]],
        **_surroundings(),
    }
    rewrite_config(folder, config)


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "cmbpo" if name in ("cli.py", "__main__.py") else name


def rewrite_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write config.json, whole or not at all."""
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    with whole_file(folder / "config.json") as file:
        file.write(text.encode())


def settings_from_json(
    config: Mapping[str, Any],
    *,
    where: str = "config.json",
    trusted: bool = False,
    to_train: bool = True,
) -> TrainSettings:
    """The settings that a config.json holds, exactly as they were, by today's names.

    Only where they are `trusted` is the module of an algorithm imported that they name. A setting
    that came later has its default; one that has become a constant must have had its value, or the
    run cannot be the same today. What is not `to_train` is read all the same: constants are of
    training, and the policy acts as it did.
    """
    versions = config.get("versions")
    version = versions.get("cmbpo", "unknown") if isinstance(versions, dict) else "unknown"
    origin = f"{where} (cmbpo {version})"
    if not isinstance(config.get("settings"), dict):
        raise RunError(f"{origin} holds no settings")
    values = aliases.upgraded(flat(config["settings"]))
    known = list(names())
    for name, value in values.items():
        if name in aliases.CONSTANTS and to_train:
            raise RunError(
                f"{origin} has {name} = {value!r}; cmbpo {cmbpo.__version__} has it at"
                f" {aliases.CONSTANTS[name]!r} always"
            )
        if name not in known and name not in aliases.CONSTANTS:
            raise RunError(
                f"{origin} has the setting {name!r}, which cmbpo {cmbpo.__version__} does not know"
            )
    for name in known:
        if name not in values:
            warnings.warn(f"{origin} lacks {name!r}; taking the default", stacklevel=3)
    try:
        (plugins.asked_for if trusted else plugins.if_installed)(values.get("algo", "cmbpo"))
        return with_values(TrainSettings(), {n: v for n, v in values.items() if n in known})
    except ValueError as error:
        raise RunError(f"{origin} holds a setting that cannot be: {error}") from error


def require_no_file(place: Path) -> None:
    """Refuse a file where a run folder belongs, with the folder that was probably meant."""
    with suppress(OSError):  # a name that no file can have is refused where it is read
        if place.is_file():
            meant = _around(place)
            like = "which has a config.json" if meant is None else f"as {meant} is"
            raise RunError(f"{place} is a file; allowed: a run folder, {like}")


def _around(place: Path) -> Path | None:
    """The run folder that something is in."""
    near = list(place.parents)[:2]
    return next((folder for folder in near if (folder / "config.json").is_file()), None)


def read_config(place: Path) -> dict[str, Any]:
    """What the config.json of a run folder, or the file itself, holds."""
    try:
        path = place if place.is_file() else place / "config.json"
        there = path.exists()
    except OSError as error:  # a name that no file can have
        raise RunError(f"{place} is no run folder: {error.strerror}") from None
    if not there:
        meant = _around(place)
        like = "" if meant is None else f", but {meant} has one"
        raise RunError(f"{place} is no run folder: it has no config.json{like}")
    data = read_bytes(path)
    try:
        config = json.loads(data.decode())
    except UnicodeDecodeError:
        raise RunError(f"{path} is not readable as JSON: it is no text") from None
    except ValueError as error:
        raise RunError(f"{path} is not readable as JSON: {error}") from error
    except RecursionError:
        raise RunError(f"{path} is not readable as JSON: it is nested too deeply") from None
    if not isinstance(config, dict):
        raise RunError(f"{path} holds no settings")
    horizon = config.get("horizon")
    if horizon is not None and not (type(horizon) is int and 1 <= horizon <= MOST_STEPS):
        raise RunError(
            f"{path} has the horizon {reprlib.repr(horizon)}; allowed: a whole number of steps, 1"
            f" to {MOST_STEPS:,}"
        )
    return config


def _surroundings() -> dict[str, Any]:
    packages = ("jax", "jaxlib", "equinox", "optax", "mujoco", "gymnasium", "numpy")
    versions = {name: metadata.version(name) for name in packages}
    return {
        "versions": {"cmbpo": cmbpo.__version__, "python": platform.python_version(), **versions},
        "device": jax.devices()[0].device_kind,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the code, `-dirty` where it was changed since; None outside its repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        subprocess.run(
            [*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True
        )
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
