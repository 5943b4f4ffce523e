"""Algorithm 1: collect, learn the model, imagine, improve the policy, fit the critics.

One pass of the loop is one policy update.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from cmbpo import console, device, head_quality, interruption, learner, leash, model, own
from cmbpo.adapted import Environment
from cmbpo.advantage import Samples
from cmbpo.algorithms import ALGORITHMS
from cmbpo.collect import Episode, Ledger, Steps, collect
from cmbpo.networks import Normaliser, Policy
from cmbpo.plot import plot_run
from cmbpo.promise import Promise
from cmbpo.run import NonFiniteError, Run
from cmbpo.settings import TrainSettings
from cmbpo.simulator import Simulator
from cmbpo.trust_region import CASES

Row = dict[str, float | int | str]
Callback = Callable[[Mapping[str, Any]], None]


class Trainer:
    """A run in progress: the real copies of the task, what learns, and the counts so far."""

    def __init__(self, settings: TrainSettings, env: Environment | None = None):
        """Nothing is collected or compiled yet; `env` is the user's own, made in Python."""
        self.settings, self.static = settings, settings.for_programs()
        self.task = own.find(settings, env)
        self.limits = np.array(settings.cost_limit or self.task.cost_limits)
        self._check()
        self.simulator = Simulator(
            self.task,
            settings.num_envs,
            seed=settings.seed,
            stagger=True,
            episode_steps=settings.first_episode,
        )
        self.ledger = Ledger(settings.num_envs, len(self.limits))
        self.learner = learner.start(settings, self.task)
        self.update = 0
        self.regret = 0.0
        self.violating_episodes = 0
        self.seconds = 0.0
        self.promise = Promise.none(len(self.limits))
        self.offending: Samples | None = None
        self.episodes: list[Episode] = []
        self.phases: dict[str, float] = {}

    def _check(self) -> None:
        settings, task = self.settings, self.task
        if len(self.limits) != len(task.cost_limits):
            raise ValueError(
                f"cost_limit has {len(self.limits)} numbers; {task.name} has"
                f" {len(task.cost_limits)} costs: {', '.join(task.cost_names)}"
            )
        if self._imagines and isinstance(task, own.OwnTask):
            task.verify()
        least = settings.mixing.min_real if self._imagines else settings.batch_size
        if settings.num_envs > least:
            raise ValueError(
                f"num_envs is {settings.num_envs}; allowed here: at most {least},"
                " the real samples of an update"
            )
        if self._warms_up and settings.total_steps <= settings.initial_steps:
            raise ValueError(
                f"total_steps is {settings.total_steps}; allowed here: more than the"
                f" {settings.initial_steps} initial_steps before the first update"
            )

    @property
    def _imagines(self) -> bool:
        return ALGORITHMS[self.settings.algo].data == "real and imagined"

    @property
    def _finds_units(self) -> bool:
        """Whether the policy's units come from this run, not from the one it starts from."""
        return self.settings.policy.normalise and self.settings.init_from is None

    @property
    def _warms_up(self) -> bool:
        return self._imagines or self.settings.policy.normalise

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        return {
            "learner": self.learner,
            "simulator": self.simulator.state(),
            "ledger": self.ledger.state(),
            "update": np.array(self.update),
            "regret": np.array(self.regret),
            "violating_episodes": np.array(self.violating_episodes),
            "seconds": np.array(self.seconds),
            "promise": vars(self.promise),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.learner = state["learner"]
        self.simulator.restore(state["simulator"])
        self.ledger.restore(state["ledger"])
        if not self.simulator.restorable:
            for running in (self.ledger.ret, self.ledger.cost, self.ledger.length):
                running[:] = 0
        self.update = int(state["update"])
        self.regret = float(state["regret"])
        self.violating_episodes = int(state["violating_episodes"])
        self.seconds = float(state["seconds"])
        self.promise = Promise(**state["promise"])

    def take_over(self, other: Run) -> None:
        """Start with the policy, critics and model of another run, but not with its counts."""
        learned = other.load(self.learner, under="learner")
        if learned.model is not None:
            # Their policies are older than the first of this run.
            epoch = learned.model.archive.epoch
            older = eqx.tree_at(lambda m: m.archive.epoch, learned.model, epoch - epoch.max() - 1)
            learned = replace(learned, model=older)
        fields = ("policy", "critic", "critic_opt", "cost_critic", "cost_critic_opt", "model")
        self._set(**{name: getattr(learned, name) for name in fields})

    @property
    def rows(self) -> int:
        """Steps of each copy that a record of real steps has room for."""
        settings = self.settings
        most = settings.batch_size if self.learner.model is None else settings.mixing.max_real
        return -(-most // settings.num_envs)

    def warm_up(self) -> None:
        """Steps of the untrained policy, the first model, and the limits d_m and d_H."""
        settings, now = self.settings, self.learner
        if not self._warms_up:
            return
        key, key_fit, key_limits = jax.random.split(now.key, 3)
        self._set(key=key)
        wanted = self.ledger.env_steps + settings.initial_steps
        seen = []
        while self.ledger.env_steps < wanted:
            steps = min(self.rows, -(-(wanted - self.ledger.env_steps) // settings.num_envs))
            real = self._collect(steps)
            seen.append(np.asarray(real.obs[:steps]).reshape(-1, real.obs.shape[-1]))
            if self.learner.model is not None:
                self._set(model=model.remember(self.learner.model, real, now.policy, 0))
        if self._finds_units:
            self._set(policy=normalised(self.learner.policy, np.concatenate(seen)))
        if self.learner.model is not None:
            fitted = model.fit(
                self.learner.model, self.static, epochs=settings.dynamics.first_epochs, key=key_fit
            )
            policy = self.learner.policy
            self._set(model=model.calibrate(fitted, policy, self.static, self.task, key_limits))

    def doubts(self) -> list[str]:
        """What the first steps were too few for, where cost and end are learned."""
        if self.learner.model is None:
            return []
        quality, steps = self.learner.model.quality, self.ledger.env_steps
        return head_quality.doubts(quality, self.task.cost_names, steps=steps)

    def step(self) -> Row:
        """One policy update: the phases of the paper, in its order."""
        settings, horizon, now = self.settings, self.task.horizon, self.learner
        began, first_step = time.perf_counter(), self.ledger.env_steps
        key, key_model, key_limits, key_imagine, key_improve, key_critic = jax.random.split(
            now.key, 6
        )
        self._set(key=key)
        metrics: dict[str, Any] = {}

        with self.phase("Collect"):
            alpha, samples = 1.0, settings.batch_size
            if now.model is not None:
                alpha, samples = model.real_samples(now.model, settings, first=self.update == 0)
            real = self._collect(-(-samples // settings.num_envs))
        parts, imagined_rate = [real], None
        if now.model is not None:
            with self.phase("Model"):
                world = model.remember(now.model, real, now.policy, self.update + 1)
                if int(world.fresh) >= settings.dynamics.fit_every:
                    world = model.fit(
                        world, self.static, epochs=settings.dynamics.epochs, key=key_model
                    )
                    if settings.rollout.recalibrate:
                        world = model.calibrate(
                            world, now.policy, self.static, self.task, key_limits
                        )
                self._set(model=jax.block_until_ready(world))
            with self.phase("Imagine"):
                imagined, disagreement, imagined_rate, found = model.imagine(
                    world,
                    now.policy,
                    jnp.array(settings.batch_size - samples),
                    jnp.array(self.update),
                    self.static,
                    self.task,
                    horizon,
                    key_imagine,
                )
                self._set(model=eqx.tree_at(lambda m: m.disagreement, world, disagreement))
                parts.append(jax.block_until_ready(imagined))
                metrics |= found | world.quality | {"Mixing/Alpha": alpha}
        with self.phase("Advantage"):
            samples, found = learner.gather(now.critic, now.cost_critic, parts, self.static)
            real_cost, cost, measured = learner.measure_cost(
                now.real_cost, real, imagined_rate, self.static, horizon
            )
            self._set(real_cost=real_cost)
            metrics |= found | measured
            jax.block_until_ready(samples)
        with self.phase("Policy"):
            target = jnp.asarray(settings.constraint.target * self.limits, jnp.float32)
            self._lengthen(np.asarray(cost), np.asarray(target))
            policy, improvement, found = learner.improve(
                now.policy,
                now.improvement,
                samples,
                cost,
                target,
                key_improve,
                settings=self.static,
                horizon=horizon,
            )
            if self._finds_units and settings.policy.adapt_units:
                policy = learner.see(policy, real, jnp.array(float(first_step)))
            self._set(policy=policy, improvement=improvement)
            metrics |= jax.block_until_ready(found)
        with self.phase("Critic"):
            fitted, found = learner.fit_critics(self.learner, samples, key_critic, self.static)
            self._set(**fitted)
            metrics |= jax.block_until_ready(found)

        self.update += 1
        self._guard(samples)
        spent = time.perf_counter() - began
        self.seconds += spent
        return self._row(jax.device_get(metrics), self.ledger.env_steps - first_step, spent)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds inside to the phase `name` of this update."""
        began = time.perf_counter()
        yield
        self.phases[f"Time/{name}"] = time.perf_counter() - began

    def _set(self, **fields: Any) -> None:
        self.learner = replace(self.learner, **fields)

    def _collect(self, steps: int) -> Steps:
        key, key_collect = jax.random.split(self.learner.key)
        self._set(key=key)
        real, episodes = collect(
            self.simulator,
            self.ledger,
            self.learner.policy,
            steps=steps,
            rows=self.rows,
            key=key_collect,
        )
        self.episodes += episodes
        self.violating_episodes += sum(
            any(c > d for c, d in zip(e.cost, self.limits, strict=True)) for e in episodes
        )
        return real

    def _lengthen(self, cost: np.ndarray, target: np.ndarray) -> None:
        horizon = self.task.horizon
        self.simulator.episode_steps = leash.next_length(
            self.simulator.episode_steps,
            first=self.settings.first_episode or horizon,
            horizon=horizon,
            cost=cost,
            target=target,
            limit=self.limits,
        )

    def _guard(self, samples: Samples) -> None:
        """Stop where a number is no longer one, with the batch at hand."""
        found = jax.device_get(learner.finite(self.learner, samples))
        for name, finite in zip(learner.MADE, found, strict=True):
            if not finite:
                self.offending = samples
                raise NonFiniteError(f"not finite in update {self.update}: {name}")

    def _row(self, metrics: dict[str, Any], steps: int, seconds: float) -> Row:
        """What this update adds to progress.csv; times last."""
        horizon, spent = self.task.horizon, self.ledger.cumulative_cost
        real = np.asarray(metrics["Constraint/Real"], float)
        self.regret += float(np.maximum(real - self.limits, 0.0).sum()) * steps / horizon
        row: dict[str, Any] = {
            "TotalEnvSteps": self.ledger.env_steps,
            "Train/Epoch": self.update,
            **self.ledger.means(),
            "Train/EpisodeSteps": int(self.simulator.episode_steps),
            "Cost/Cumulative": spent.sum(),
            "Cost/Rate": spent.sum() / self.ledger.env_steps,
            "Cost/Regret": self.regret,
            "Cost/ViolatingEpisodes": self.violating_episodes,
            "Constraint/Limit": self.limits,
            **metrics,
        }
        if "Misc/OptimCase" in metrics:
            row["Misc/Case"] = CASES[int(metrics["Misc/OptimCase"])]
        row |= self.promise.against(real, discount=self.settings.advantage.cost_discount)
        self.promise = Promise.of(metrics, width=len(self.task.obs_names) + 1)
        fps = steps / seconds
        row |= {"Time/FPS": fps, "Time/Epoch": seconds, "Time/Total": self.seconds, **self.phases}
        return _flat(row, self.task.cost_names)

    def take_episodes(self) -> list[Row]:
        """The episodes that ended since the last call, as rows of episodes.csv."""
        names = self.task.cost_names
        rows: list[Row] = []
        for e in self.episodes:
            row: Row = {
                "env_steps": e.env_steps,
                "return": e.ret,
                "cost": sum(e.cost),
                "length": e.length,
                "terminated": int(e.terminated),
            }
            if len(names) > 1:
                row |= {f"cost_{n}": c for n, c in zip(names, e.cost, strict=True)}
            rows.append(row)
        self.episodes = []
        return rows


def _flat(row: dict[str, Any], cost_names: tuple[str, ...]) -> Row:
    """The row in plain numbers and words; with several costs, a column for each of its own."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, str):
            flat[name] = value
        elif np.ndim(value) == 0 or len(cost_names) == 1:
            flat[name] = np.asarray(value).item()
        else:
            flat |= {f"{name}/{n}": float(v) for n, v in zip(cost_names, value, strict=True)}
    return flat


def normalised(policy: Policy, obs: np.ndarray) -> Policy:
    """The policy that sees observations in the standard units of those given."""
    std = obs.std(axis=0)
    # What never moved, such as a contact that was not made, keeps its own unit.
    std = np.where(std < 1e-6, 1.0, np.maximum(std, 1e-2))
    normaliser = Normaliser(jnp.asarray(obs.mean(axis=0)), jnp.asarray(std))
    return eqx.tree_at(lambda p: p.normaliser, policy, normaliser)


def run(
    settings: TrainSettings, callbacks: Sequence[Callback] = (), env: Environment | None = None
) -> tuple[Path, Policy]:
    """Train from the start, in a new run folder; `env` is the user's own, made in Python."""
    with interruption.noted(second_raises=True) as interrupted:
        backend = device.use(settings.device)
        trainer = Trainer(settings, env)
        with closing(trainer.simulator):
            if settings.init_from is not None:
                trainer.take_over(Run.open(settings.init_from))
            notes = {"backend": backend, "horizon": trainer.task.horizon}
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
        trainer = Trainer(settings)
        with closing(trainer.simulator):
            state = opened.restore(trainer.state())
            if state is not None:
                trainer.restore(state)
            elif settings.init_from is not None:
                trainer.take_over(Run.open(settings.init_from))
            return opened.folder, _loop(trainer, opened, callbacks, interrupted)


def _loop(
    trainer: Trainer, folder: Run, callbacks: Sequence[Callback], interrupted: Sequence[int]
) -> Policy:
    settings = trainer.settings
    title = f"{settings.algo} on {settings.env_id}, seed {settings.seed}"
    with console.view(title, total_steps=settings.total_steps) as view:
        view.say(f"run folder: {folder.folder}")
        if trainer.ledger.env_steps == 0 and not interrupted:
            if settings.first_episode is not None:
                view.say(
                    f"episodes of {settings.first_episode} steps at first; they grow"
                    " while the cost is within its target"
                )
            view.say("first real steps and first model …")
            trainer.warm_up()
            folder.record_episodes(trainer.take_episodes())
            for doubt in trainer.doubts():
                view.say(doubt)
        while trainer.ledger.env_steps < settings.total_steps and not interrupted:
            try:
                row = trainer.step()
            except NonFiniteError as error:
                path = folder.save_offending(trainer.offending, trainer.update)
                raise NonFiniteError(f"{error}; the batch is in {path}") from None
            folder.record_episodes(trainer.take_episodes())
            folder.record(row)
            view.show(row)
            for callback in callbacks:
                callback(row)
            if trainer.update % settings.checkpoint_every == 0:
                folder.save(trainer.state(), trainer.update)
        begun = trainer.ledger.env_steps > 0
        if begun and (trainer.update % settings.checkpoint_every or not folder.checkpoints()):
            folder.save(trainer.state(), trainer.update)
        curves = plot_run(folder.folder) if begun else None
    if curves is not None:
        view.say(f"curves: {curves}")
    in_python = settings.env_id.startswith(own.IN_PYTHON)
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
    return trainer.learner.policy
