"""The settings that a run starts from, by algorithm, task and the name of a preset.

`paper`: the hyperparameter table of appendix B (CMBPO) and the settings of the published baseline
runs, with only the repairs without which the printed algorithm does not run (docs/deviations.md).
`released`: CMBPO as the authors published its code, which differs from the print.
`default`: what came closest to holding the limit; docs/results.md has the measurements.

A preset is one table of numbers for every robot, and the exceptions that single tasks need.
"""

import importlib
from dataclasses import replace

from cmbpo.settings.overrides import with_values
from cmbpo.settings.plugins import asked_for
from cmbpo.settings.registry import ALGORITHMS, TUNED, is_built_in, preset_names, task_name
from cmbpo.settings.schema import TrainSettings

CUSTOM = {
    "num_envs": 20,
    "initial_steps": 10_000,
    "policy.normalise": True,
    "critic.bound_cost": False,
}
"""Observations may have any units and costs any size; copies are whole environments of the user's,
so there are few."""


def preset(algo: str, env_id: str, name: str = "default") -> TrainSettings:
    """The settings that a run of `algo` on `env_id` starts from."""
    algo = asked_for(algo)
    row = ALGORITHMS[algo]
    if not isinstance(env_id, str):
        raise ValueError(f"env_id is {env_id!r}; allowed: a text, as in PointCircle-v0")
    if name not in (there := preset_names(algo)):
        raise ValueError(f"unknown preset {name!r}; there are {', '.join(there)}")
    general, exceptions, custom = importlib.import_module(row.preset).PRESETS[name]
    special = {**CUSTOM, **custom}
    if is_built_in(env_id):
        task = task_name(env_id)
        env_id = f"{task}-v0"
        special = exceptions.get(task, {}) if task in TUNED else special
    settings = with_values(TrainSettings(), {**general, **special})
    settings = replace(settings, algo=algo, env_id=env_id, preset=name)
    # Where no cost is heeded, episodes that grow while it is within its target never grow.
    return settings if row.heeds_cost else replace(settings, first_episode=None)
