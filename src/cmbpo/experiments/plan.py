"""Which runs make up Figure 2, Figure 3 and Table I, where each is kept, and how far it is."""

import ast
import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from cmbpo import presets
from cmbpo.experiments import progress
from cmbpo.settings import TrainSettings


@dataclass(frozen=True)
class Arm:
    """One curve of a figure: an algorithm, and what it changes in the settings of its preset."""

    algo: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    label: str = ""
    """What the paper calls the changes."""

    def changes_on(self, task: str) -> dict[str, Any]:
        """All that it changes in the preset of a task."""
        return {**self.changes, **self.by_task.get(task, {})}


class Experiment(NamedTuple):
    """A figure or table of the paper."""

    tasks: tuple[str, ...]
    arms: tuple[str, ...]


ARMS = {algo: Arm(algo) for algo in presets.ALGORITHMS} | {
    # Figure 3; within its own bounds the default preset would take as many real samples as ever.
    "cmbpo-no-alpha": Arm(
        "cmbpo",
        {
            "mixing.rule": "constant",
            "mixing.first_alpha": 0.05,
            "mixing.min_real": 1000,
            "mixing.max_real": 50_000,
        },
        by_task={"AntCircle": {"mixing.first_alpha": 0.03}},
        label="no α(π)",
    ),
    "cmbpo-schedule1": Arm(
        "cmbpo",
        {"rollout.cut": "schedule", "rollout.schedule": (3, 15, 1000)},
        label="schedule 1",
    ),
    "cmbpo-schedule2": Arm(
        "cmbpo",
        {"rollout.cut": "schedule", "rollout.schedule": (5, 25, 1000)},
        label="schedule 2",
    ),
}

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
MAY_DIFFER = ("total_steps", "log_dir", "device", "checkpoint_every", "wandb")
"""Settings that may be other ones when a run goes on."""


class Job(NamedTuple):
    """One run of an experiment, in a folder of the same name whenever it is asked for."""

    arm: str
    settings: TrainSettings

    @property
    def name(self) -> str:
        """The folder below the log folder: `<arm>-<task>/seed-<seed>`."""
        s = self.settings
        arm = self.arm if s.preset == "default" else f"{self.arm}-{s.preset}"
        return f"{arm}-{_short(s.env_id)}/seed-{s.seed:03d}"

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

    `overrides` are `KEY=VALUE` and apply to every run; `common` are settings of every run.
    """
    table = EXPERIMENTS[experiment]
    tasks: dict[str, str] = {}
    for env in envs or table.tasks:
        other = tasks.setdefault(_short(env), _known(env))
        if other != env:
            raise ValueError(f"--envs {other} and {env} would share their folders; allowed: one")
    arms = dict.fromkeys(_arm_name(algo) for algo in algos or table.arms)
    asked = common | _parsed_all(overrides)
    if total_steps is not None:
        asked["total_steps"] = total_steps
    found = []
    for seed in seeds:
        for task, env in tasks.items():
            for name in arms:
                arm = ARMS[name]
                settings = presets.preset(arm.algo, env, preset)
                changes = {**arm.changes_on(task), **asked, "seed": seed}
                found.append(Job(name, changed(settings, changes)))
                _require_limits(found[-1].settings)
    return found


def _require_limits(settings: TrainSettings) -> None:
    """An environment of the user's own has no limits but those that are given."""
    limits, costs = settings.cost_limit, settings.env.cost_key
    if not presets.is_ours(settings.env_id) and len(limits or ()) != len(costs):
        raise ValueError(
            f"cost_limit is {limits}; allowed for {settings.env_id}: a number for each cost"
            f" ({', '.join(costs)}), as in --set cost_limit={','.join(['25'] * len(costs))}"
        )


def _known(env_id: str) -> str:
    """The id itself. One without a version or a module can only be a task of this package."""
    if "-v" not in env_id and ":" not in env_id:
        presets.task_name(env_id)
    return env_id


def _short(env_id: str) -> str:
    """The name of a task in folders: from `AntSafe`, `cmbpo/AntSafe-v0` or `package:MyRobot-v0`."""
    return env_id.rsplit("/", 1)[-1].rsplit(":", 1)[-1].rsplit("-v", 1)[0]


def _arm_name(spelling: str) -> str:
    if spelling.lower() in ARMS:
        return spelling.lower()
    try:
        return presets.algorithm_name(spelling)
    except ValueError:
        raise ValueError(f"unknown algorithm {spelling!r}; there are {', '.join(ARMS)}") from None


def changed(settings: Any, changes: Mapping[str, Any], *, prefix: str = "") -> Any:
    """The settings with other values, all at once, as in `changed(s, {"mixing.rule": "paper"})`."""
    kinds = typing.get_type_hints(type(settings))
    values: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        name, dot, rest = key.partition(".")
        if name not in kinds:
            known = ", ".join(prefix + k for k in kinds)
            raise ValueError(f"unknown setting {prefix + name!r}; there are {known}")
        if dataclasses.is_dataclass(kinds[name]) != bool(dot):
            what = "is one setting, without parts" if dot else "is a group of settings, not one"
            raise ValueError(f"setting {prefix + key!r}: {prefix + name} {what}")
        if dot:
            groups.setdefault(name, {})[rest] = value
        else:
            values[name] = _fitted(value, kinds[name], prefix + name)
    for name, inside in groups.items():
        values[name] = changed(getattr(settings, name), inside, prefix=f"{prefix}{name}.")
    return replace(settings, **values)


def _fitted(value: Any, kind: Any, name: str) -> Any:
    try:
        return _as(value, kind)
    except TypeError:
        allowed = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}") from None


def _as(value: Any, kind: Any) -> Any:
    """A value of the type `kind` of a setting; a tuple of one may be given as its only number."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal and value in inside:
        return value
    if origin is types.UnionType:
        for one in inside:
            with suppress(TypeError):
                return _as(value, one)
    if origin is tuple:
        items = value if isinstance(value, tuple | list) else (value,)
        kinds = inside[:1] * len(items) if inside[-1] is Ellipsis else inside
        if len(items) == len(kinds):
            return tuple(map(_as, items, kinds))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind:
        return value
    raise TypeError


def _parsed_all(overrides: Sequence[str]) -> dict[str, Any]:
    """The values that `--set KEY=VALUE …` gives."""
    values = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set {override!r}; allowed: KEY=VALUE, as in mixing.min_real=500")
        if key in FLAGS:
            raise ValueError(f"--set {override!r}; an experiment has a flag of its own for {key}")
        values[key] = _parsed(text.strip())
    return values


def _parsed(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def conflict(job: Job) -> str | None:
    """How the settings of a job differ from those that its folder was made with, if they do."""
    try:
        held = _held(job)
    except (OSError, ValueError):
        return None
    asked = _flat(json.loads(json.dumps(dataclasses.asdict(job.settings))))
    for key in sorted(held.keys() & asked.keys() - set(MAY_DIFFER)):
        if held[key] != asked[key]:
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
        return _flat(json.loads(path.read_text(encoding="utf-8"))["settings"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is not readable: it holds no settings") from None


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
