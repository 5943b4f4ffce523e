"""The one small configuration that tests train with, as settings, as flags and as assignments."""

import csv
from pathlib import Path
from typing import Any

from cmbpo.settings.overrides import with_values
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import reads
from cmbpo.settings.schema import TrainSettings

REAL = 100
"""Real samples of an update of CMBPO."""
INITIAL = 200
"""Real steps before the first update."""

TINY: dict[str, Any] = {
    "num_envs": 5,
    "batch_size": 400,
    "initial_steps": INITIAL,
    "archive_size": 1000,
    "policy.hidden": (8,),
    "critic.hidden": (8,),
    "critic.members": 2,
    "critic.batch_size": 100,
    "critic.epochs": 2,
    "ensemble.hidden": (16,),
    "ensemble.members": 3,
    "ensemble.elites": 2,
    "ensemble.batch_size": 64,
    "ensemble.epochs": 2,
    "ensemble.fit_every": REAL,
    "rollout.lanes": 20,
    "real_share.min_real": REAL,
    "real_share.max_real": REAL,
    "replay.size": 1000,
    "replay.batch_size": 32,
}
"""Networks too small to learn much, and updates that take a fraction of a second."""


def tiny(algo: str, folder: Path | str = "runs", *, env_id: str = "PointCircle-v0", **changes: Any):
    """The settings of a tiny run; `changes` by name, with `__` for the dot of a group."""
    here = {"log_dir": str(folder), "device": "cpu", "checkpoint_every": 1}
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return tiny_of(preset(algo, env_id), **{**here, **given})


def tiny_of(settings: TrainSettings, **changes: Any) -> TrainSettings:
    """These settings made tiny."""
    return with_values(settings, {**TINY, **changes})


def flags(algo: str, **changes: Any) -> list[str]:
    """The same on the command line of `cmbpo train`, as far as the algorithm reads it."""
    words = []
    for name, value in {**TINY, **changes}.items():
        if reads(algo, name):
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


def assignments(algo: str = "cmbpo", **changes: Any) -> list[str]:
    """The same as `--set` of `cmbpo experiment` takes it."""
    values = {**TINY, **changes}
    return [
        f"{name}={','.join(map(str, v)) + ',' if isinstance(v, tuple) else v}"
        for name, v in values.items()
        if reads(algo, name)
    ]


def steps(updates: int) -> int:
    """Real steps after so many updates of CMBPO."""
    return INITIAL + REAL * updates


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of progress.csv without the times, and without the checks of them."""
    with (folder / "progress.csv").open() as file:
        return [
            {k: v for k, v in row.items() if not k.startswith("Time/") and k != "check"}
            for row in csv.DictReader(file)
        ]
