"""`cmbpo watch`: a trained policy at work, in a window where there is a screen, else as a video."""

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cmbpo.tasks
from cmbpo import streams
from cmbpo.evaluation import shipped
from cmbpo.evaluation.score import Score
from cmbpo.evaluation.video import check_name, film
from cmbpo.settings.registry import is_built_in, short_name
from cmbpo.tasks.drawing.painter import has_screen
from cmbpo.tasks.simulated import SimulatedTask
from cmbpo.tasks.task import Task


class Watched(NamedTuple):
    """A policy, from observation to action, where it acts, and what is said of it."""

    act: Callable[[np.ndarray], np.ndarray]
    task: Task
    cost_limits: tuple[float, ...]
    title: str


def main(
    what: str, *, video: Path | None, seed: int | None, best: bool = False, trusted: bool = False
) -> None:
    """Show the policy of a task or of a run folder, in an episode that it has not seen."""
    if video is not None:
        check_name(video)
    watched = _of_run(Path(what), best, trusted) if _is_run(what) else _of_task(what)
    seed = secrets.randbelow(2**31) if seed is None else seed
    print(watched.title)
    if video is None and isinstance(watched.task, SimulatedTask) and has_screen():
        reason = _in_window(watched, watched.task, seed)
        if reason is None:
            return
        print(f"no window can be opened here ({reason})")
    elif video is None:
        own = not isinstance(watched.task, SimulatedTask)
        why = "the environment is your own" if own else "there is no screen here"
        print(f"{why}: it becomes a video")
    path = video or Path(f"{short_name(watched.task.name)}-{seed}.mp4")
    with streams.bars(str(path)) as watch:
        made = film(
            watched.act,
            watched.task,
            path,
            seed=seed,
            cost_limits=watched.cost_limits,
            watch=partial(watch, str(path)),
        )
    print(f"video: {path} ({_told(made.score)}, seed {seed}){made.remark()}")


def _is_run(what: str) -> bool:
    """Whether a folder is meant; a task's name is taken for the task, be there such a folder."""
    return not is_built_in(what) and ("/" in what or Path(what).exists())


def _of_task(name: str) -> Watched:
    if not is_built_in(name):
        there = ", ".join(shipped.names())
        raise ValueError(
            f"{name!r} is neither a run folder nor a task with a trained policy; there are: {there}"
        )
    found = shipped.find(name)
    task = cmbpo.tasks.get(name)
    return Watched(found.act, task, found.card.cost_limits, found.card.sentence())


def _of_run(folder: Path, best: bool, trusted: bool) -> Watched:
    # A policy that comes with the package needs none of it, and is shown sooner.
    from cmbpo.envs.find import find_task
    from cmbpo.evaluation.evaluate import act, load_policy
    from cmbpo.runs.run_folder import Run

    run = Run.open(folder, trusted=trusted)
    task = find_task(run.settings, trusted=trusted)
    policy = load_policy(run, task, best=best)
    limits = run.settings.cost_limit or task.cost_limits
    which = "the best policy within the limit" if best else "the newest policy"
    title = f"{run.settings.env_id}: {which} of {folder}"
    return Watched(lambda obs: act(policy, obs), task, limits, title)


def _in_window(watched: Watched, task: SimulatedTask, seed: int) -> str | None:
    """Show it until the window is closed; why it cannot be, if it cannot."""
    from cmbpo.evaluation import viewer

    print(f"close the window to end (seed {seed})")
    try:
        scores = viewer.show(watched.act, task, seed=seed, cost_limits=watched.cost_limits)
    except RuntimeError as error:  # a driver that is missing, or macOS without mjpython
        return str(error)
    for number, score in enumerate(scores, start=1):
        print(f"episode {number}: {_told(score)}")
    return None


def _told(score: Score) -> str:
    return ", ".join([*score.words(), f"{score.steps} steps"])
