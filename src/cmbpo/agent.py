"""The Python interface: an agent is built from an algorithm and a task, learns, and acts."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmbpo.envs.find import find_task, name_of
from cmbpo.envs.making import Environment
from cmbpo.envs.spaces import WrongEntryError
from cmbpo.evaluation import evaluate as evaluation
from cmbpo.evaluation import export as exported
from cmbpo.networks import Actor
from cmbpo.runs.copying import copy_run, lender
from cmbpo.runs.run_folder import Run
from cmbpo.settings.overrides import changed, with_values
from cmbpo.settings.presets import preset as preset_of
from cmbpo.settings.schema import TrainSettings
from cmbpo.settings.trust import require_for_training
from cmbpo.training import loop

Callback = Callable[["Agent", Mapping[str, Any]], object]
"""Called after each update with the agent, as it is then, and the row of progress.csv."""

_ALLOWED = "a function of the agent and the row of an update, or several"


class Agent:
    """A policy with the settings it is, or was, trained with."""

    def __init__(
        self,
        algo: str = "cmbpo",
        env: Environment = "PointCircle-v0",
        *,
        preset: str = "default",
        **changes: Any,
    ):
        """Take the settings of a preset with `changes` by name; the rest of it stays.

        `env` is the id of a task or of an environment of your own, such an environment, or a
        function that makes one. A setting of a group is changed as the command line does it:
        `Agent("cmbpo", "AntSafe-v0", seed=3, policy={"hidden": (64, 64)})`; the group `env` is
        called `env_settings` here, as in `env_settings={"horizon": 200}`. With `init_from=run`
        it begins with the policy, critics and model that another run ended with.
        """
        if "env_settings" in changes:
            changes["env"] = changes.pop("env_settings")
        self._hold(changed(preset_of(algo, name_of(env), preset), changes), env, trusted=True)
        if self.settings.init_from is not None:
            lender(self.settings)

    @classmethod
    def of_settings(
        cls, settings: TrainSettings, env: Environment | None = None, *, trusted: bool = True
    ) -> "Agent":
        """An agent with exactly these settings; `env` where it was made in Python.

        Settings of somebody else's are not `trusted`: no module is imported because they name it.
        """
        agent = cls.__new__(cls)
        agent._hold(settings, settings.env_id if env is None else env, trusted=trusted)
        return agent

    def _hold(self, settings: TrainSettings, env: Environment, *, trusted: bool) -> None:
        self.settings = settings
        self._env = None if isinstance(env, str) else env
        self._trusted = trusted
        self.task = find_task(settings, self._env, trusted=trusted)
        self.policy: Actor | None = None
        self.folder: Path | None = None
        self._is_best = False
        self._checkpoint: Callable[[], None] | None = None
        self._random = np.random.default_rng()

    def learn(
        self,
        total_steps: int | None = None,
        callback: Callback | Sequence[Callback] = (),
        *,
        quiet: bool = False,
    ) -> "Agent":
        """Train for so many further real steps; without a number, up to the settings' total_steps.

        It goes on where it stands, in the run folder it has, also after `cmbpo.load`. Updates are
        whole: steps that a call takes beyond its number count for the next one, so that the rows
        of progress.csv are those of a single call with the sum; but where noise fades at the end
        (`policy.quiet_end`) it fades at the end of each call.

        A `quiet` call prints nothing itself; what goes wrong in the copies is then a warning.

        A callback gets the agent and the row after each update, and ends training by returning
        False. Within it the agent acts, is evaluated and saved with the policy of that update.
        """
        if self._checkpoint is not None:
            raise ValueError(
                f"{self.folder} is being trained by the learn() whose callback this is; allowed in"
                " a callback: to act, evaluate and save, and False to end training"
            )
        until = self._until(total_steps)
        told = _callbacks(callback)
        stands = -1 if self.folder is None else self._run_to_go_on_with().last_step()
        if stands >= until:
            warnings.warn(
                f"there is nothing to learn: {self.folder} has taken {stands} steps, and"
                f" {until} are asked for; learn(steps) takes further ones",
                stacklevel=2,
            )
            return self

        def after_update(moment: loop.Moment) -> bool:
            self.folder, self.policy = moment.folder, moment.policy
            self._checkpoint = moment.save
            return not loop.asks_to_stop([one(self, moment.row) for one in told])

        try:
            self._train(until, after_update, quiet=quiet)
        finally:
            self._checkpoint = None
        return self

    def _train(self, until: int, after_update: loop.Callback, *, quiet: bool) -> None:
        if self.folder is not None:
            self.folder, self.policy = loop.resume(
                self.folder,
                until,
                [after_update],
                self._env,
                trusted=self._trusted,
                quiet=quiet,
            )
            return
        settings = replace(self.settings, total_steps=until)
        if not self._trusted:
            require_for_training(settings)
        self.folder, self.policy = loop.run(settings, [after_update], self._env, quiet=quiet)

    def _until(self, further: int | None) -> int:
        """The total of real steps that a call of `learn` goes to."""
        if further is None:
            return self.settings.total_steps
        asked = with_values(self.settings, {"total_steps": further}).total_steps
        if self.folder is None:
            return asked
        run = Run.open(self.folder)
        return min(max(run.last_step(), 0), run.settings.total_steps) + asked

    def _run_to_go_on_with(self) -> Run:
        assert self.folder is not None
        run = Run.open(self.folder)
        if self._is_best:
            raise ValueError(
                f"this is the best policy of {self.folder} alone, without what learns; allowed:"
                " cmbpo.load(run), which goes on from its newest, or init_from=run"
            )
        if run.settings.env_id != self.settings.env_id:
            raise ValueError(
                f"{self.folder} was trained on {run.settings.env_id}, not on"
                f" {self.settings.env_id}; allowed: a new run that begins with what it learned,"
                f" cmbpo.Agent({self.settings.algo!r}, {self.settings.env_id!r}, init_from=…)"
            )
        return run

    def save(self, path: str | Path) -> Path:
        """Write all that it is to a folder, from which `cmbpo.load(path)` acts and goes on.

        It is a copy of the run folder. An earlier one of this run is replaced; anything else that
        is there is renamed to end in `.old`.
        """
        self._trained()
        if not isinstance(path, str | Path) or not str(path):
            raise ValueError(f"path is {path!r}; allowed: the name of a folder")
        if self._checkpoint is not None:
            self._checkpoint()
        assert self.folder is not None
        return copy_run(self.folder, Path(os.path.expanduser(path)))

    def predict(
        self, obs: ArrayLike | Mapping[str, ArrayLike], deterministic: bool = True
    ) -> np.ndarray:
        """The action for one observation, or the actions for a batch, as the environment takes it.

        It is within the bounds of the action space, in its units.
        """
        policy = self._trained()
        length = len(self.task.obs_names)
        try:
            seen = self.task.as_rows(obs)
        except WrongEntryError:
            raise
        except (TypeError, ValueError):
            said = f"{obs!r:.80}"
            raise ValueError(
                f"the observation is {said}; allowed: {length} finite numbers, or rows of so many"
            ) from None
        with np.errstate(over="ignore"):  # to what the policy computes with
            odd = np.count_nonzero(~np.isfinite(seen.astype(np.float32)))
        wrong = [f"the shape {seen.shape}"] if seen.shape[-1:] != (length,) else []
        if odd:
            wrong.append(f"{odd} {'number that is' if odd == 1 else 'numbers that are'} not finite")
        if wrong:
            raise ValueError(
                f"the observation has {' and '.join(wrong)}; allowed: {length} finite numbers, or"
                " rows of so many"
            )
        seed = int(self._random.integers(2**31))
        act = evaluation.act(policy, seen, deterministic, seed)
        return self.task.in_units(act)

    def evaluate(self, episodes: int = 20, seed: int = 1_000_000) -> "evaluation.Evaluation":
        """Run whole episodes without learning, in copies of their own."""
        limits = self.settings.cost_limit
        return evaluation.evaluate(
            self._trained(), self.task, episodes=episodes, seed=seed, cost_limits=limits
        )

    def export(self, path: str | Path) -> str:
        """Write the policy without its noise for a robot, by the suffix: .npz, .onnx or .h.

        What `cmbpo export` does; also a sentence on what the policy is worth.
        """
        self._trained()
        if self._checkpoint is not None:
            self._checkpoint()
        assert self.folder is not None
        return exported.export(
            self.folder,
            Path(os.path.expanduser(path)),
            best=self._is_best,
            trusted=self._trusted,
            env=self._env,
        )

    def __repr__(self) -> str:
        """What it is, and where."""
        s = self.settings
        where = "not trained yet" if self.folder is None else str(self.folder)
        return f"<cmbpo.Agent: {s.algo} on {s.env_id}, seed {s.seed}, {where}>"

    def _trained(self) -> Actor:
        if self.policy is None:
            raise ValueError("this agent has no policy yet: call learn() first, or cmbpo.load(run)")
        return self.policy


def _callbacks(given: object) -> list[Callback]:
    several: Any = given if isinstance(given, Sequence) else [given]
    for one in several:
        if not callable(one):
            raise ValueError(f"callback is {given!r:.80}; allowed: {_ALLOWED}")
        if isinstance(one, type):
            raise ValueError(
                f"callback is the class {one.__name__}; allowed: one of its objects, as in"
                f" {one.__name__}(…), or {_ALLOWED}"
            )
        if (reason := _unfit(one)) is not None:
            raise ValueError(
                f"callback {one!r:.80} cannot be called with two arguments ({reason}); allowed:"
                f" {_ALLOWED}"
            )
    return list(several)


def _unfit(callback: Callable[..., object]) -> str | None:
    """Why it cannot be called with agent and row; what has no signature is called to find out."""
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind("agent", "row")
    except TypeError as error:
        return str(error)
    return None


def load(
    folder: str | Path,
    env: Environment | None = None,
    *,
    trust: bool = False,
    best: bool = False,
) -> Agent:
    """The agent of a run folder, or of what `Agent.save` wrote: it acts, and `learn` goes on.

    Its policy is that of the newest good checkpoint. `env` is only asked for where the run's
    environment was made in Python. A run whose environment is in a module of its maker's imports it
    only with `trust=True`. With `best=True` the policy is the one that earned most within the
    limit.
    """
    run = Run.open(folder, trusted=trust)
    settings = replace(run.settings, env_id=env) if isinstance(env, str) else run.settings
    agent = Agent.of_settings(settings, env, trusted=trust or env is not None)
    # An environment that is handed over is no leave to do what else the settings ask for.
    agent._trusted = trust
    agent.folder = run.folder
    agent.policy = evaluation.load_policy(run, agent.task, best=best)
    agent._is_best = best
    return agent
