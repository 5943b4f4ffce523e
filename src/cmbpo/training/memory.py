"""Whether there is the memory that a run needs, before any of it is taken."""

import os
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import jax

from cmbpo.settings.overrides import flat
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task

NUMBER = 4
"""Bytes of a float32."""


def require(settings: TrainSettings, task: Task) -> None:
    """Refuse settings that the machine has no memory for, by the one that needs most of it."""
    needs, there = least(settings, task), available()
    if sum(needs.values()) > there:
        name = max(needs, key=lambda name: needs[name])
        value = flat(asdict(settings))[name]
        raise ValueError(
            f"{name} is {value!r}, which takes {needs[name] / 1e9:,.1f} GB or more;"
            f" allowed: what fits into the {there / 1e9:,.1f} GB of memory here"
        )


def least(settings: TrainSettings, task: Task) -> dict[str, int]:
    """Bytes that training needs at the very least, by the setting that they come of."""
    obs, act, costs = len(task.obs_names), len(task.act_names), len(task.cost_names)
    row = NUMBER * (2 * obs + 3 * act + costs + 3)
    # Parameters and Adam's two moments, or the vectors of conjugate gradients.
    trained = 3 * NUMBER
    critics = settings.critic.members * (1 + costs)
    needs = {
        "policy.hidden": trained * _weights(obs, settings.policy.hidden, act),
        "critic.hidden": trained * critics * _weights(obs, settings.critic.hidden, 1),
        "batch_size": row * settings.batch_size,
    }
    data = ALGORITHMS[settings.algo].data
    if data == "replay":
        # The critics of reward and costs are two networks each, and a slow copy of both.
        network = _weights(obs + act, settings.critic.hidden, 1)
        needs["critic.hidden"] = (trained + NUMBER) * 2 * (1 + costs) * network
        needs["replay.size"] = NUMBER * (2 * obs + act + costs + 2) * settings.replay.size
    if data == "real and imagined":
        ensemble, rollout = settings.ensemble, settings.rollout
        network = _weights(obs + act, ensemble.hidden, 2 * (obs + 1))
        needs |= {
            "ensemble.hidden": trained * ensemble.members * network,
            "archive_size": row * settings.archive_size,
            "rollout.max_horizon": 2 * NUMBER * rollout.max_horizon * rollout.lanes,
        }
    return needs


def _weights(inputs: int, hidden: tuple[int, ...], outputs: int) -> int:
    return sum((a + 1) * b for a, b in pairwise((inputs, *hidden, outputs)))


def available() -> int:
    """Bytes of memory where the networks are: the GPU's, the container's, or the machine's."""
    on_device = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if on_device is not None:
        return on_device
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = Path("/sys/fs/cgroup/memory.max")
    limit = container.read_text().strip() if container.exists() else ""
    return min(machine, int(limit)) if limit.isdigit() else machine
