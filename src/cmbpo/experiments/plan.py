"""Which runs make up Figure 2, Figure 3 and Table I, where each is kept, and how far it is."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cmbpo.experiments import progress
from cmbpo.settings import aliases
from cmbpo.settings.arms import every_arm
from cmbpo.settings.overrides import changed, flat, parsed, require_known
from cmbpo.settings.plugins import asked_for
from cmbpo.settings.presets import preset as make_preset
from cmbpo.settings.registry import is_built_in, reads, short_algorithm, short_name, task_name
from cmbpo.settings.schema import BOOKKEEPING, TrainSettings


class Experiment(NamedTuple):
    """A figure or table of the paper."""

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
}

FLAGS = ("algo", "env_id", "preset", "seed", "total_steps", "log_dir", "device")
"""Settings that an experiment has a flag of its own for."""


class Job(NamedTuple):
    """One run of an experiment, in a folder of the same name whenever it is asked for."""

    arm: str
    settings: TrainSettings

    @property
    def name(self) -> str:
        """The folder below the log folder: `<arm>-<task>/seed-<seed>`."""
        s = self.settings
        arm = short_algorithm(self.arm)
        arm = arm if s.preset == "default" else f"{arm}-{s.preset}"
        return f"{arm}-{short_name(s.env_id)}/seed-{s.seed:03d}"

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
    total_steps: int | None = None,
    preset: str = "default",
    **common: Any,
) -> list[Job]:
    """The runs of an experiment, seed by seed, so that all curves grow together.

    `overrides` are `KEY=VALUE` and apply to every run that reads them; `common` are settings of
    every run.
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
    planned = []
    for seed in seeds:
        for task, env in tasks.items():
            for name in arms:
                arm = every_arm()[name]
                settings = make_preset(arm.algo, env, preset)
                own = {key: x for key, x in asked.items() if reads(arm.algo, key)}
                changes = {**arm.changes_on(task), **own, "seed": seed}
                planned.append(Job(name, changed(settings, changes)))
                _require_limits(planned[-1].settings)
    return planned


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
    if "-v" not in env_id and ":" not in env_id:
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
