"""Which run a checkpoint belongs to: the run's own number and the settings it was made with."""

import dataclasses
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cmbpo.runs.errors import RunError
from cmbpo.settings import aliases
from cmbpo.settings.overrides import flat
from cmbpo.settings.schema import BOOKKEEPING, TrainSettings

MAY_DIFFER = {*BOOKKEEPING, "env.copies", "env.timeout"}
"""Settings that a run may change on its way: nothing that is learned depends on them."""


def new_id() -> str:
    """A number that no other run has."""
    return uuid.uuid4().hex


def of_run(config: Mapping[str, Any], settings: TrainSettings) -> dict[str, Any]:
    """What a checkpoint notes of its run: the id, if the run has one, and the settings."""
    return {"run": config.get("id"), "settings": _plain(settings)}


def require(
    notes: Mapping[str, Any], config: Mapping[str, Any], settings: TrainSettings, path: Path
) -> None:
    """Refuse the checkpoint at `path`, by its notes, unless it is of this run as it is set now.

    Checkpoints of versions before they noted it are taken as they are.
    """
    saved, now = notes.get("settings"), _plain(settings)
    if saved is None:
        return
    if not isinstance(saved, dict):
        raise RunError(f"{path} is no checkpoint of a run: its notes hold no settings")
    then = aliases.upgraded(saved)
    differing = [n for n in now if n in then and n not in MAY_DIFFER and then[n] != now[n]]
    if notes.get("run") != config.get("id"):
        why = f", as {differing[0]} = {_word(then[differing[0]])} shows" if differing else ""
        raise RunError(f"{path} belongs to another run{why}: move it back to its own folder")
    if differing:
        name = differing[0]
        raise RunError(
            f"config.json has {name} = {_word(now[name])}, but {path} was made with"
            f" {_word(then[name])}: set it back, or begin a new run with --config"
        )


def _plain(settings: TrainSettings) -> dict[str, Any]:
    """The settings by dotted names, as JSON gives them back."""
    return json.loads(json.dumps(flat(dataclasses.asdict(settings))))


def _word(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
