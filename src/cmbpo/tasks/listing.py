"""The tasks for the eye: a table of all, and a picture of one."""

from pathlib import Path

import imageio.v3
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import cmbpo.tasks
from cmbpo.tasks.environment import TaskEnv

KINDS = (".png", ".jpg", ".jpeg", ".webp")
"""Pictures that can be written, by their suffixes."""


def show() -> None:
    """Print every task with its dimensions, its limit, and what it is about."""
    tasks = [cmbpo.tasks.get(name) for name in cmbpo.tasks.names()]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", no_wrap=True)
    for heading in ("obs", "act", "steps", "s/step", "cost limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for task in tasks:
        table.add_row(
            task.name,
            str(len(task.obs_names)),
            str(len(task.act_names)),
            str(task.horizon),
            f"{task.dt:g}",
            ", ".join(f"{limit:g}" for limit in task.cost_limits),
        )
    console = Console()
    console.print(table)
    for task in tasks:
        about = (task.__doc__ or "").partition("\n")[0]
        console.print(f"[bold]{task.name}[/]: {about}")


def draw(name: str, path: Path, *, width: int = 960, height: int = 540, steps: int = 30) -> None:
    """Write a picture of a task, some steps after a start without any action."""
    task = cmbpo.tasks.get(name)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(
            f"the picture {str(path)!r} has the suffix {path.suffix!r}; allowed: {', '.join(KINDS)}"
        )
    env = TaskEnv(task, render_mode="rgb_array", width=width, height=height)
    try:
        env.reset(seed=0)
        for _ in range(steps):
            env.step(np.zeros(len(task.act_names)))
        imageio.v3.imwrite(path, env.render(), extension=kind)
    finally:
        env.close()
