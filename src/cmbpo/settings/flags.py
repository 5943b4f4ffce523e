"""The flags of `cmbpo train`: for an algorithm, those settings that it reads, with their help."""

import dataclasses
from dataclasses import field, make_dataclass
from typing import Annotated, Any

import tyro

from cmbpo.settings.overrides import help_texts
from cmbpo.settings.ranges import kinds
from cmbpo.settings.registry import reads
from cmbpo.settings.schema import TrainSettings

NO_SETTINGS = ("resume", "start_anew", "config", "trust")
"""Flags that say where settings come from."""

_FROM_FILE = "A run's config.json to repeat, with its settings; other flags change single ones."
_RESUME = "Run folder to go on with, with its own settings; a larger --total-steps is allowed."
_TRUST = (
    "Let the run of --resume, or the settings of --config, import, read and send what they name."
)
_START_ANEW = "With --resume: from the first step, with the old records and checkpoints set aside."


def command(start: TrainSettings) -> type:
    """A dataclass of the settings that `start.algo` reads, with their values as defaults."""
    kind = _mirror(start, start.algo, "", "TrainCommand")
    extra = [
        ("resume", Annotated[str | None, tyro.conf.arg(help=_RESUME)], field(default=None)),
        ("start_anew", Annotated[bool, tyro.conf.arg(help=_START_ANEW)], field(default=False)),
        ("config", Annotated[str | None, tyro.conf.arg(help=_FROM_FILE)], field(default=None)),
        ("trust", Annotated[bool, tyro.conf.arg(help=_TRUST)], field(default=False)),
    ]
    whole = make_dataclass("TrainCommand", extra, bases=(kind,), frozen=True, kw_only=True)
    whole.__doc__ = "Train a policy. Settings start from the preset of the algorithm and the task."
    return whole


def _mirror(group: Any, algo: str, prefix: str, name: str) -> type:
    """The group without what the algorithm does not read."""
    texts, fields = help_texts(type(group)), []
    for setting, kind in kinds(type(group)).items():
        value = getattr(group, setting)
        if dataclasses.is_dataclass(kind):
            inner = _mirror(value, algo, f"{setting}.", type(value).__name__)
            if dataclasses.fields(inner):
                fields.append((setting, inner, field(default=inner())))
        elif reads(algo, prefix + setting):
            told = Annotated[kind, tyro.conf.arg(help=texts[setting])]
            fields.append((setting, told, field(default=value)))
    kind = make_dataclass(name, fields, frozen=True, kw_only=True)
    kind.__doc__ = type(group).__doc__
    return kind
