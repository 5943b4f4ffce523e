"""The algorithms and the tasks there are: a row each, and the only place that lists them.

To add one is to write its module and its row here (docs/extending.md). Names stand apart from what
they name, so that help and reports need neither JAX nor MuJoCo.
"""

import importlib
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class AlgorithmRow:
    """One algorithm: what it learns from, where its update is, and which settings it reads."""

    label: str
    """What papers call it, in figures and tables."""
    data: Literal["real", "real and imagined", "replay"]
    """Real steps of the newest policy; these and imagined ones; or a buffer of all steps."""
    module: str
    """The module of its update: `ALGORITHM` in it, unless it has a trainer of its own."""
    trainer: str = "cmbpo.training.trainer:Trainer"
    """What one update is made of: collect, learn, and the row of the log."""
    reads: tuple[str, ...]
    """Groups of settings, or single ones, that it reads beside those of every run."""
    preset: str = "cmbpo.settings.baseline_presets"
    """The module whose `PRESETS` make the settings it starts from, by the name of the preset."""
    policy: Literal["Gaussian", "squashed"] = "Gaussian"
    """What actions are drawn from: a normal distribution, or tanh of one."""
    heeds_cost: bool = True
    """Whether the update keeps the limit; if not, cost is only noted."""
    spellings: tuple[str, ...] = ()
    """Other ways to write its name, without dashes."""


ON_POLICY = ("batch_size", "initial_steps", "policy", "critic", "advantage")
EPISODES = ("first_episode", "episode_growth")
ESTIMATE = ("cost_estimate.time_constant", "cost_estimate.target", *EPISODES)
_REGION = ("trust_region.max_kl", "trust_region.fisher_share")

ALGORITHMS = {
    "cmbpo": AlgorithmRow(
        label="CMBPO",
        data="real and imagined",
        module="cmbpo.algorithms.cmbpo",
        preset="cmbpo.settings.cmbpo_presets",
        reads=(
            *(*ON_POLICY, *EPISODES, "archive_size"),
            *("ensemble", "rollout", "real_share", "cost_estimate", "trust_region"),
        ),
    ),
    "cpo": AlgorithmRow(
        label="CPO",
        data="real",
        module="cmbpo.algorithms.cpo",
        reads=(*ON_POLICY, *ESTIMATE, *_REGION),
    ),
    "ppo-lag": AlgorithmRow(
        label="PPO-L",
        data="real",
        module="cmbpo.algorithms.ppo_lagrangian",
        reads=(*ON_POLICY, *ESTIMATE, "clipped", "lagrangian"),
        spellings=("ppolag", "ppol"),
    ),
    "trpo-lag": AlgorithmRow(
        label="TRPO-L",
        data="real",
        module="cmbpo.algorithms.trpo_lagrangian",
        reads=(*ON_POLICY, *ESTIMATE, *_REGION, "lagrangian"),
        spellings=("trpolag", "trpol"),
    ),
    "trpo": AlgorithmRow(
        label="TRPO",
        data="real",
        module="cmbpo.algorithms.trpo",
        reads=(*ON_POLICY, "cost_estimate.time_constant", *_REGION),
        heeds_cost=False,
    ),
    "sac-lag": AlgorithmRow(
        label="SAC-L",
        data="replay",
        module="cmbpo.algorithms.sac_lagrangian",
        trainer="cmbpo.training.replay_trainer:ReplayTrainer",
        preset="cmbpo.settings.replay_presets",
        policy="squashed",
        reads=(
            *("batch_size", "initial_steps", "policy.hidden", "policy.log_std"),
            *("policy.last_layer_scale", "critic.hidden", *ESTIMATE),
            *("advantage.discount", "advantage.cost_discount", "lagrangian.gains", "replay"),
        ),
        spellings=("saclag", "sacl"),
    ),
}
"""The algorithms, in the order of the paper's figures and tables."""

TASKS = {
    "AntSafe": "cmbpo.tasks.ant_safe:AntSafe",
    "HalfCheetahSafe": "cmbpo.tasks.half_cheetah_safe:HalfCheetahSafe",
    "AntCircle": "cmbpo.tasks.ant_circle:AntCircle",
    "PointCircle": "cmbpo.tasks.point_circle:PointCircle",
    "HalfCheetahVelocity": "cmbpo.tasks.velocity.planar:HalfCheetahVelocity",
    "AntVelocity": "cmbpo.tasks.velocity.spatial:AntVelocity",
    "HopperVelocity": "cmbpo.tasks.velocity.planar:HopperVelocity",
    "Walker2dVelocity": "cmbpo.tasks.velocity.planar:Walker2dVelocity",
    "SwimmerVelocity": "cmbpo.tasks.velocity.planar:SwimmerVelocity",
    "HumanoidVelocity": "cmbpo.tasks.velocity.spatial:HumanoidVelocity",
}
"""The tasks of this package and their classes, those of the paper first, in its order."""

TUNED = ("AntSafe", "HalfCheetahSafe", "AntCircle", "PointCircle")
"""Tasks that have settings of their own; the others start as an environment of the user's does."""


class UntrustedError(ValueError):
    """A module would have to be imported, which is done only for those who trust it."""


def algorithm_name(spelling: str) -> str:
    """The one name of an algorithm: `CPO`, `TRPOLag`, `trpo_lag` … are all understood."""
    for name, row in ALGORITHMS.items():
        if _flat(spelling) in (_flat(name), *row.spellings):
            return name
    if ":" in str(spelling):
        raise UntrustedError(
            f"the algorithm {spelling!r} is in a module, whose code would run; if you trust it,"
            " say so with --trust (in Python: trust=True)"
        )
    raise ValueError(f"unknown algorithm {spelling!r}; there are {', '.join(ALGORITHMS)}")


def _flat(spelling: str) -> str:
    return str(spelling).lower().replace("-", "").replace("_", "")


def short_algorithm(name: str) -> str:
    """An algorithm's name in folders: without the module that it may be in."""
    return name.rpartition(":")[2]


def is_built_in(env_id: str) -> bool:
    """Whether this names a task of this package, and not an environment of the user's own."""
    return _bare(env_id) in TASKS


def task_name(env_id: str) -> str:
    """The name of a task of this package: from `AntSafe`, `AntSafe-v0` or `cmbpo/AntSafe-v0`."""
    if not is_built_in(env_id):
        raise ValueError(f"unknown task {env_id!r}; there are {', '.join(TASKS)}")
    return _bare(env_id)


def _bare(env_id: str) -> str:
    return env_id.removeprefix("cmbpo/").removesuffix("-v0")


def short_name(env_id: str) -> str:
    """Any environment's name in folders: from `cmbpo/AntSafe-v0` or `package:MyRobot-v0`."""
    return env_id.rsplit("/", 1)[-1].rsplit(":", 1)[-1].rsplit("-v", 1)[0]


def preset_names(algo: str) -> tuple[str, ...]:
    """Where the settings of an algorithm may start from."""
    return tuple(importlib.import_module(ALGORITHMS[algo].preset).PRESETS)


def reads(algo: str, setting: str) -> bool:
    """Whether an algorithm reads a setting, by its dotted name; those of every run always."""
    special = {name.split(".")[0] for row in ALGORITHMS.values() for name in row.reads}
    group = setting.split(".")[0]
    return group not in special or bool({group, setting} & set(ALGORITHMS[algo].reads))
