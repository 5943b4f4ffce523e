"""A run from its first step to its last: warm up, update after update, records, checkpoints."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from cmbpo import interruption
from cmbpo.envs.find import IN_PYTHON, find_task
from cmbpo.envs.making import Environment
from cmbpo.networks import Policy
from cmbpo.runs.curves import plot_run
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training import device, display
from cmbpo.training.protocol import RunInProgress

Callback = Callable[[Mapping[str, Any]], None]


def run(
    settings: TrainSettings, callbacks: Sequence[Callback] = (), env: Environment | None = None
) -> tuple[Path, Policy]:
    """Train from the start, in a new run folder; `env` is the user's own, made in Python."""
    with interruption.noted(second_raises=True) as interrupted:
        backend = device.use(settings.device)
        task = find_task(settings, env)
        settings = with_limits(settings, task)
        trainer = make_trainer(settings, task)
        with closing(trainer):
            if settings.init_from is not None:
                trainer.take_over(Run.open(settings.init_from))
            notes = {"backend": backend, "horizon": task.horizon}
            with Run.create(settings, notes) as folder:
                return folder.folder, _loop(trainer, folder, callbacks, interrupted)


def resume(
    folder: Path, total_steps: int | None = None, callbacks: Sequence[Callback] = ()
) -> tuple[Path, Policy]:
    """Go on with a run from its newest good checkpoint."""
    with interruption.noted(second_raises=True) as interrupted, Run.resume(folder) as opened:
        settings = opened.settings
        if total_steps is not None and total_steps != settings.total_steps:
            settings = opened.extend(total_steps)
        device.use(settings.device)
        trainer = make_trainer(settings, find_task(settings))
        with closing(trainer):
            state = opened.restore(trainer.state())
            if state is not None:
                trainer.restore(state)
            elif settings.init_from is not None:
                trainer.take_over(Run.open(settings.init_from))
            return opened.folder, _loop(trainer, opened, callbacks, interrupted)


def with_limits(settings: TrainSettings, task: Task) -> TrainSettings:
    """The settings with the limits that the run is held to: its own, or the task's."""
    return settings if settings.cost_limit else replace(settings, cost_limit=task.cost_limits)


def make_trainer(settings: TrainSettings, task: Task) -> RunInProgress:
    """What the row of the algorithm says makes an update."""
    module, _, name = ALGORITHMS[settings.algo].trainer.partition(":")
    return getattr(importlib.import_module(module), name)(settings, task)


def _loop(
    trainer: RunInProgress, folder: Run, callbacks: Sequence[Callback], interrupted: Sequence[int]
) -> Policy:
    settings = trainer.settings
    title = f"{settings.algo} on {settings.env_id}, seed {settings.seed}"
    with display.view(title, total_steps=settings.total_steps) as view:
        view.say(f"run folder: {folder.folder}")
        if trainer.env_steps == 0 and not interrupted:
            if settings.first_episode is not None:
                view.say(
                    f"episodes of {settings.first_episode} steps at first; they grow"
                    " while the cost is within its target"
                )
            view.say("first real steps and first model …")
            trainer.warm_up()
            folder.record_episodes(trainer.take_episodes())
            for sentence in (*trainer.take_sentences(), *trainer.doubts()):
                view.say(sentence)
        while trainer.env_steps < settings.total_steps and not interrupted:
            try:
                row = trainer.step()
            except NonFiniteError as error:
                path = folder.save_offending(trainer.offending, trainer.update)
                raise NonFiniteError(f"{error}; the batch is in {path}") from None
            # Before the checkpoint: it notes how far the tables go, and resuming cuts them there.
            folder.record_episodes(trainer.take_episodes())
            folder.record(row)
            view.show(row)
            for sentence in trainer.take_sentences():
                view.say(sentence)
            for callback in callbacks:
                callback(row)
            if trainer.update % settings.checkpoint_every == 0:
                folder.save(trainer.state(), trainer.update)
        begun = trainer.env_steps > 0
        if begun and (trainer.update % settings.checkpoint_every or not folder.checkpoints()):
            folder.save(trainer.state(), trainer.update)
        curves = plot_run(folder.folder) if begun else None
    if curves is not None:
        view.say(f"curves: {curves}")
    in_python = settings.env_id.startswith(IN_PYTHON)
    if interrupted and not in_python:
        view.say(f"interrupted; go on with: cmbpo train --resume {folder.folder}")
    elif interrupted and begun:
        view.say(
            "interrupted; its environment was made in Python, so that no command goes on with it;"
            f" cmbpo.load({str(folder.folder)!r}, env=…) gives its policy"
        )
    elif interrupted:
        view.say("interrupted before its first step: there is nothing to go on from")
    elif not in_python:
        view.say(f"see what it learned: cmbpo evaluate {folder.folder}")
    return trainer.policy
