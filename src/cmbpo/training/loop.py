"""A run from its first step to its last: warm up, update after update, records, checkpoints."""

import importlib
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cmbpo import interruption
from cmbpo.envs.find import IN_PYTHON, find_task
from cmbpo.envs.making import Environment
from cmbpo.networks import Actor
from cmbpo.runs.copying import lender
from cmbpo.runs.curves import plot_run
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.own_files import require_own_files
from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import read_table
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.settings.trust import flag_for_acting, flag_for_training, require_for_training
from cmbpo.tasks.task import Task
from cmbpo.training import device, display, memory
from cmbpo.training.keeper import Keeper
from cmbpo.training.pace import Forecast, expected
from cmbpo.training.protocol import RunInProgress, Wait
from cmbpo.training.rows import Row


class Moment(NamedTuple):
    """A run after one of its updates."""

    folder: Path
    row: Row
    """What the update added to progress.csv."""
    policy: Actor
    save: Callable[[], None]
    """Writes a checkpoint of this update now."""


Callback = Callable[[Moment], object]
"""Called after each update; False ends the run."""


def run(
    settings: TrainSettings,
    callbacks: Sequence[Callback] = (),
    env: Environment | None = None,
    *,
    quiet: bool = False,
) -> tuple[Path, Actor]:
    """Train from the start, in a new run folder; `env` is the user's own, made in Python.

    A `quiet` run prints nothing.
    """
    with interruption.noted(second_raises=True) as interrupted:
        backend = device.use(settings.device)
        task = find_task(settings, env, trusted=True)
        settings = with_limits(settings, task)
        trainer = make_trainer(settings, task)
        with closing(trainer):
            if settings.init_from is not None:
                trainer.take_over(lender(settings))
            notes = {"backend": backend, "horizon": task.horizon}
            with Run.create(settings, notes) as folder:
                keeper = Keeper(trainer, folder)
                policy = _loop(trainer, folder, keeper, callbacks, interrupted, quiet=quiet)
                return folder.folder, policy


def resume(
    folder: Path,
    total_steps: int | None = None,
    callbacks: Sequence[Callback] = (),
    env: Environment | None = None,
    *,
    start_anew: bool = False,
    trusted: bool = False,
    quiet: bool = False,
) -> tuple[Path, Actor]:
    """Go on with a run from its newest good checkpoint; or start it anew, the old one set aside.

    Unless it is `trusted`, what its settings ask for beyond its own folder is refused. `env` is
    the user's own, where it was made in Python.
    """
    held = Run.open(folder, trusted=trusted).settings
    if not trusted:
        require_for_training(held)
        require_own_files(folder)
    with interruption.noted(second_raises=True) as interrupted, Run.resume(folder) as opened:
        settings = opened.settings
        if total_steps is not None and total_steps != settings.total_steps:
            settings = opened.extend(total_steps)
        device.use(settings.device)
        trainer = make_trainer(settings, find_task(settings, env, trusted=trusted))
        with closing(trainer):
            keeper = Keeper(trainer, opened)
            if not keeper.restore(start_anew=start_anew) and settings.init_from is not None:
                trainer.take_over(lender(settings))
            policy = _loop(trainer, opened, keeper, callbacks, interrupted, quiet=quiet)
            return opened.folder, policy


def asks_to_stop(answers: Sequence[object]) -> bool:
    """Whether any callback said False; to say nothing, as most do, is to go on."""
    return any(isinstance(said, bool | np.bool_) and not said for said in answers)


def with_limits(settings: TrainSettings, task: Task) -> TrainSettings:
    """The settings with the limits that the run is held to: its own, or the task's."""
    return settings if settings.cost_limit else replace(settings, cost_limit=task.cost_limits)


def make_trainer(settings: TrainSettings, task: Task) -> RunInProgress:
    """What the row of the algorithm says makes an update."""
    memory.require(settings, task)
    module, _, name = ALGORITHMS[settings.algo].trainer.partition(":")
    return getattr(importlib.import_module(module), name)(settings, task)


def make_update(
    trainer: RunInProgress,
    folder: Run,
    keeper: Keeper,
    view: display.LiveDisplay | display.PlainDisplay,
    callbacks: Sequence[Callback] = (),
) -> tuple[Row, bool]:
    """One policy update, with all that is recorded, kept and shown of it.

    Its row, and whether a callback asks to stop.
    """
    acting = trainer.policy
    row = _step(trainer, folder)
    # Before the checkpoint: it notes how far they go, and resuming cuts them there.
    folder.record_episodes(trainer.take_episodes())
    folder.record(row)
    keeper.note(row, acting)
    view.show(row)
    for sentence in trainer.take_sentences():
        view.warn(sentence)
    moment = Moment(folder.folder, row, trainer.policy, keeper.save)
    stopped = asks_to_stop([callback(moment) for callback in callbacks])
    if trainer.update % trainer.settings.checkpoint_every == 0:
        keeper.save()
    return row, stopped


def _loop(
    trainer: RunInProgress,
    folder: Run,
    keeper: Keeper,
    callbacks: Sequence[Callback],
    interrupted: Sequence[int],
    *,
    quiet: bool = False,
) -> Actor:
    settings = trainer.settings
    title = f"{settings.algo} on {settings.env_id}, seed {settings.seed}"
    so_far = display.rows(read_table(folder.progress.path)) if folder.progress.rows else ()
    stopped = False
    with display.view(
        title,
        total_steps=settings.total_steps,
        horizon=trainer.task.horizon,
        so_far=so_far,
        quiet=quiet,
    ) as view:
        view.say(f"run folder: {folder.folder}")
        forecast = Forecast(settings)
        try:
            if trainer.env_steps == 0 and not interrupted:
                _warm_up(trainer, folder, view, forecast)
                keeper.begin()
            while trainer.env_steps < settings.total_steps and not interrupted and not stopped:
                row, stopped = make_update(trainer, folder, keeper, view, callbacks)
                if (sentence := forecast.sentence(row)) is not None:
                    view.say(sentence)
            keeper.save()
        except BaseException as failure:
            keeper.rescue(failure)
            raise
        begun = trainer.env_steps > 0
        curves = plot_run(folder.folder) if begun else None
    if curves is not None:
        view.say(f"curves: {curves}")
    if interrupted or stopped:
        view.say(_how_to_go_on(folder, begun, "interrupted" if interrupted else "stopped"))
    elif not settings.env_id.startswith(IN_PYTHON):
        trust = flag_for_acting(settings)
        place = shlex.quote(str(folder.folder))
        view.say(f"see what it learned: cmbpo evaluate {place}{trust}")
    return trainer.policy


def _how_to_go_on(folder: Run, begun: bool, ended: str) -> str:
    """In a sentence, after a run that `ended` before its last step."""
    if not folder.settings.env_id.startswith(IN_PYTHON):
        trust = flag_for_training(folder.settings)
        place = shlex.quote(str(folder.folder))
        return f"{ended}; go on with: cmbpo train --resume {place}{trust}"
    if not begun:
        return f"{ended} before its first step: there is nothing to go on from"
    return (
        f"{ended}; its environment was made in Python, so that no command goes on with it;"
        f" cmbpo.load({str(folder.folder)!r}, env=…) gives its policy, and learn() of that goes on"
    )


def _warm_up(
    trainer: RunInProgress,
    folder: Run,
    view: display.LiveDisplay | display.PlainDisplay,
    forecast: Forecast,
) -> None:
    def watch(wait: Wait) -> None:
        view.wait(wait)
        forecast.wait(wait)

    if (sentence := expected(trainer.settings, trainer.task)) is not None:
        view.say(sentence)
    first = trainer.settings.first_episode
    if first is not None and first < trainer.task.horizon:
        view.say(
            f"episodes of {first} steps at first; they grow while the cost is within its target"
        )
    trainer.warm_up(watch=watch)
    folder.record_episodes(trainer.take_episodes())
    for sentence in (*trainer.take_sentences(), *trainer.doubts()):
        view.warn(sentence)


def _step(trainer: RunInProgress, folder: Run) -> Row:
    try:
        return trainer.step()
    except NonFiniteError as error:
        path = folder.save_offending(trainer.offending, trainer.update)
        raise NonFiniteError(f"{error}; the batch is in {path}") from None
