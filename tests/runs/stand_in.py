"""A stand-in for training: rows, episodes and checkpoints without a task."""

import time

import numpy as np

from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import Row


def row(update: int) -> Row:
    return {
        "TotalEnvSteps": 1000 * update,
        "Time/Total": time.time(),
        "Metrics/EpRet": np.float32(0.1) * update,
        "Misc/Case": "unconstrained",
    }


def episode(update: int) -> Row:
    return {
        "env_steps": 1000 * update,
        "return": 1.5,
        "cost": 0.0,
        "length": 1000,
        "terminated": False,
    }


def trained(run: Run, updates: range) -> None:
    """A row each, some episodes, a checkpoint every fourth update."""
    for update in updates:
        run.record(row(update))
        run.record_episodes([episode(update)] if update % 2 else [])
        if update % 4 == 0:
            run.save({"update": update}, update)
