"""Which runs make up Figure 2, Figure 3, Table I or a grid, and where each is kept."""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from cmbpo.experiments import grid as grids
from cmbpo.experiments import progress
from cmbpo.settings import aliases
from cmbpo.settings.arms import every_arm
from cmbpo.settings.overrides import changed, flat, parsed, require_known, short, spelt
from cmbpo.settings.plugins import asked_for
from cmbpo.settings.presets import preset as make_preset
from cmbpo.settings.registry import (
    TASKS,
    is_built_in,
    reads,
    short_algorithm,
    short_name,
    task_name,
)
from cmbpo.settings.schema import BOOKKEEPING, TrainSettings


class Experiment(NamedTuple):
    """A figure or table of the paper, or what a grid is of where nothing else is said."""

    tasks: tuple[str, ...]
    arms: tuple[str, ...]


EXPERIMENTS = {
    "figure2": Experiment(
        ("AntSafe", "HalfCheetahSafe", "AntCircle"), ("cmbpo", "cpo", "ppo-lag", "trpo-lag", "trpo")
    ),
    "figure3": Experiment(
        ("AntSafe", "AntCircle"), ("cmbpo", "cmbpo-no-alpha", "cmbpo-schedule1", "cmbpo-schedule2")
    ),
    "table1": Experiment(
        ("AntSafe", "HalfCheetahSafe", "AntCircle"), ("cmbpo", "cpo", "ppo-lag", "trpo-lag")
    ),
    "grid": Experiment(("PointCircle",), ("cmbpo",)),
}

FLAGS = ("algo", "env_id", "preset", "seed", "total_steps", "log_dir", "device")
"""Settings that an experiment has a flag of its own for."""


class Job(NamedTuple):
    """One run of an experiment, in a folder of the same name whenever it is asked for."""

    arm: str
    settings: TrainSettings
    varied: tuple[str, ...] = ()
    """The settings that the grid gives values to."""
    until: int | None = None
    """Steps after which to stop for now; None: all of them."""

    @property
    def name(self) -> str:
        """The folder below the log folder: `<arm>-<task>/<what a grid varies>/seed-<seed>`."""
        return f"{self.family}/seed-{self.settings.seed:03d}"

    @property
    def family(self) -> str:
        """The folder of all its seeds."""
        s = self.settings
        parts = [short_algorithm(self.arm), *([s.preset] if s.preset != "default" else [])]
        folder = "-".join([*parts, short_name(s.env_id)])
        chosen = ",".join(f"{name}={value}" for name, value in self.values().items())
        chosen = re.sub(r"[^\w.,=+-]+", "-", chosen)
        return f"{folder}/{chosen}" if chosen else folder

    def values(self) -> dict[str, str]:
        """What the grid gives it, by the short names of the settings."""
        held = flat(dataclasses.asdict(self.settings))
        return {short(name): spelt(held[name]) for name in self.varied}

    @property
    def end(self) -> int:
        """Steps after which it is through, or stops for now."""
        return self.until or self.settings.total_steps

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.settings.log_dir).absolute() / self.name


def jobs(
    experiment: str,
    *,
    seeds: Sequence[int],
    envs: Sequence[str] = (),
    algos: Sequence[str] = (),
    overrides: Sequence[str] = (),
    grid: Sequence[str] = (),
    total_steps: int | None = None,
    preset: str = "default",
    **common: Any,
) -> list[Job]:
    """The runs of an experiment, seed by seed, so that all curves grow together.

    `overrides` are `KEY=VALUE` and apply to every run that reads them; `grid` are
    `KEY=VALUE,VALUE` and make every arm many, which all read them; `common` are settings of every
    run.
    """
    table = EXPERIMENTS[experiment]
    tasks: dict[str, str] = {}
    for env in envs or table.tasks:
        other = tasks.setdefault(short_name(env), _known(env))
        if other != env:
            raise ValueError(f"--envs {other} and {env} would share their folders; allowed: one")
    arms = dict.fromkeys(_arm_name(algo) for algo in algos or table.arms)
    asked = common | _parsed(overrides)
    for key in asked:
        require_known(key)
        if not any(reads(every_arm()[name].algo, key) for name in arms):
            raise ValueError(f"--set {key} is read by none of {', '.join(arms)}: leave it out")
    if total_steps is not None:
        asked["total_steps"] = total_steps
    points = _combinations(grid, asked)
    planned: dict[str, Job] = {}
    for seed, (task, env), name, point in product(seeds, tasks.items(), arms, points):
        arm = every_arm()[name]
        settings = make_preset(arm.algo, env, preset)
        own = {key: x for key, x in asked.items() if reads(arm.algo, key)}
        changes = {**arm.changes_on(task), **own, **point, "seed": seed}
        job = Job(name, changed(settings, changes), tuple(point))
        _require_limits(job.settings)
        if planned.setdefault(job.name, job) is not job:
            raise ValueError(f"--grid gives {job.family} twice; allowed: each value once")
    return list(planned.values())


def _combinations(grid: Sequence[str], asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The combinations of a grid, apart from what is given otherwise."""
    points = grids.combinations(grid)
    for key in points[0]:
        if key in FLAGS:
            raise ValueError(f"--grid {key}; an experiment has a flag of its own for {key}")
        if key in asked:
            raise ValueError(f"{key} is given by --set and by --grid; allowed: one of them")
    return points


def _require_limits(settings: TrainSettings) -> None:
    """An environment of the user's own has no limits but those that are given."""
    limits, costs = settings.cost_limit, settings.env.cost_key
    if not is_built_in(settings.env_id) and len(limits or ()) != len(costs):
        raise ValueError(
            f"cost_limit is {limits}; allowed for {settings.env_id}: a number for each cost"
            f" ({', '.join(costs)}), as in --set cost_limit={','.join(['25'] * len(costs))}"
        )


def _known(env_id: str) -> str:
    """The id itself. One without a version or a module can only be a task of this package."""
    if ":" not in env_id and ("-v" not in env_id or env_id.partition("-v")[0] in TASKS):
        task_name(env_id)
    return env_id


def _arm_name(spelling: str) -> str:
    if spelling.lower() in every_arm():
        return spelling.lower()
    try:
        return asked_for(spelling)
    except ValueError:
        if ":" in spelling:
            raise
        raise ValueError(
            f"unknown algorithm {spelling!r}; there are {', '.join(every_arm())}"
        ) from None


def _parsed(overrides: Sequence[str]) -> dict[str, Any]:
    """The values that `--set KEY=VALUE …` gives, apart from what an experiment has a flag for."""
    values = parsed(overrides)
    for key in values:
        if key in FLAGS:
            raise ValueError(f"--set {key}; an experiment has a flag of its own for {key}")
    return values


def conflict(job: Job) -> str | None:
    """How the settings of a job differ from those that its folder was made with, if they do."""
    try:
        held = _held(job)
    except (OSError, ValueError):
        return None
    asked = flat(json.loads(json.dumps(dataclasses.asdict(job.settings))))
    own_limits = job.settings.cost_limit is None
    for key in sorted(held.keys() & asked.keys() - set(BOOKKEEPING)):
        if held[key] != asked[key] and not (key == "cost_limit" and own_limits):
            return (
                f"{job.folder} was made with {key} {held[key]}, now {asked[key]} is asked for;"
                " choose another --log-dir"
            )
    return None


def damage(job: Job) -> str | None:
    """Why the run cannot go on in its folder as that is, if it cannot."""
    there = next(path for path in (job.folder, *job.folder.parents) if path.exists())
    if not there.is_dir():
        return f"{there} is a file; allowed: a folder, or nothing yet"
    try:
        if (job.folder / "config.json").exists():
            _held(job)
        progress.newest(job.folder)
    except (OSError, ValueError) as error:
        return str(error)
    return None


def _held(job: Job) -> dict[str, Any]:
    """The settings that the folder was made with."""
    path = job.folder / "config.json"
    try:
        return aliases.upgraded(flat(json.loads(path.read_text(encoding="utf-8"))["settings"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{path} is not readable: it holds no settings") from None
