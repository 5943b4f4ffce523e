"""config.json: everything needed to repeat a run, with versions and commit."""

import dataclasses
import json
import platform
import subprocess
import sys
import typing
import warnings
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import cmbpo
from cmbpo.checkpoint import RunError
from cmbpo.settings import TrainSettings


def write_config(folder: Path, settings: TrainSettings, extra: Mapping[str, Any]) -> None:
    """Write the settings, `extra`, the command line and what the run runs on."""
    config = {
        "settings": dataclasses.asdict(settings),
        **extra,
        "command": [_program(), *sys.argv[1:]],
        **_surroundings(),
    }
    rewrite_config(folder, config)


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "cmbpo" if name == "cli.py" else name


def rewrite_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write config.json, whole or not at all."""
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    unfinished = folder / ".config.json.tmp"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(folder / "config.json")


def settings_from_json(config: Mapping[str, Any], *, where: str = "config.json") -> TrainSettings:
    """The settings that a config.json holds, exactly as they were."""
    versions = config.get("versions", {})
    origin = f"{where} (cmbpo {versions.get('cmbpo', 'unknown')})"
    if "settings" not in config:
        raise RunError(f"{origin} holds no settings")
    try:
        return _rebuild(TrainSettings, config["settings"], origin, "")
    except (TypeError, ValueError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{origin} holds a setting that cannot be: {error}") from error


def _rebuild(cls: Any, values: Mapping[str, Any], origin: str, prefix: str) -> Any:
    types = typing.get_type_hints(cls)
    for name in values:
        if name not in types:
            raise RunError(
                f"{origin} has the setting {prefix + name!r}, "
                f"which cmbpo {cmbpo.__version__} does not know"
            )
    given = {}
    for name, kind in types.items():
        if name not in values:
            warnings.warn(f"{origin} lacks {prefix + name!r}; taking the default", stacklevel=4)
        elif dataclasses.is_dataclass(kind):
            given[name] = _rebuild(kind, values[name], origin, f"{prefix}{name}.")
        else:
            value = values[name]
            given[name] = tuple(value) if isinstance(value, list) else value
    return cls(**given)


def read_config(folder: Path) -> dict[str, Any]:
    """What a run folder's config.json holds."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder} is no run folder: it has no config.json") from None
    except ValueError as error:
        raise RunError(f"{folder / 'config.json'} is not readable as JSON: {error}") from error
    if not isinstance(config, dict):
        raise RunError(f"{folder / 'config.json'} holds no settings")
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
