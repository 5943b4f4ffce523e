"""SAC-L's run: collect, remember, then many gradient steps on what is remembered."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cmbpo import columns
from cmbpo.algorithms import sac_lagrangian
from cmbpo.columns import Column
from cmbpo.data import replay as replays
from cmbpo.data import ring
from cmbpo.data.replay import Replay
from cmbpo.networks import SquashedPolicy
from cmbpo.policy import cost_estimate, lagrangian
from cmbpo.runs.copying import lent
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training import replay_learner, rows
from cmbpo.training.learner import CostMeasure, first_normaliser, measure_cost, update_normaliser
from cmbpo.training.protocol import Wait, Watch, nobody_watches
from cmbpo.training.real_world import RealWorld
from cmbpo.training.replay_learner import ReplayUpdate
from cmbpo.training.rows import Row
from cmbpo.trajectory import Steps


class ReplayTrainer:
    """A run in progress: the real copies of the task, the buffer, and what learns from it."""

    def __init__(self, settings: TrainSettings, task: Task):
        """Nothing is collected or compiled yet."""
        self.settings, self.static = settings, settings.for_programs()
        self.task = task
        self._check()
        n_obs, n_act, n_cost = len(task.obs_names), len(task.act_names), len(task.cost_names)
        self.key, key = jax.random.split(jax.random.key(settings.seed))
        self.learner = sac_lagrangian.start(n_obs, n_act, n_cost, settings, key=key)
        self.multiplier = lagrangian.pid_multiplier(n_cost)
        self.real_cost = cost_estimate.nothing_seen(n_cost)
        self.replay = replays.empty(settings.replay.size, n_obs, n_act, n_cost)
        self.real = RealWorld(task, settings)
        self.update = 0
        self.seconds = 0.0
        self.offending: Steps | None = None
        self.phases: dict[Column, float] = {}
        self._gone: Replay | None = None

    def _check(self) -> None:
        settings, task = self.settings, self.task
        limits = settings.cost_limit or task.cost_limits
        if len(limits) != len(task.cost_limits):
            raise ValueError(
                f"cost_limit has {len(limits)} numbers; {task.name} has"
                f" {len(task.cost_limits)} costs: {', '.join(task.cost_names)}"
            )
        if settings.num_envs > settings.batch_size:
            raise ValueError(
                f"num_envs is {settings.num_envs}; allowed here: at most {settings.batch_size},"
                " the real samples of an update"
            )
        if settings.replay.size < self.rows * settings.num_envs:
            raise ValueError(
                f"replay.size is {settings.replay.size}; allowed here: at least"
                f" {self.rows * settings.num_envs}, the real samples of an update"
            )
        if settings.total_steps <= settings.initial_steps:
            raise ValueError(
                f"total_steps is {settings.total_steps}; allowed here: more than the"
                f" {settings.initial_steps} initial_steps before the first update"
            )

    @property
    def rows(self) -> int:
        """Steps of each copy in an update."""
        return -(-self.settings.batch_size // self.settings.num_envs)

    @property
    def env_steps(self) -> int:
        """Real steps so far."""
        return self.real.env_steps

    @property
    def policy(self) -> SquashedPolicy:
        """The policy as it is now."""
        return self.learner.policy

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        return {
            "learner": self.learner,
            "multiplier": self.multiplier,
            "real_cost": self.real_cost,
            "replay": self.replay,
            "key": self.key,
            **self.real.state(),
            "update": np.array(self.update),
            "seconds": np.array(self.seconds),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        for name in ("learner", "multiplier", "real_cost", "replay", "key"):
            setattr(self, name, state[name])
        # Before the first step every copy stands where a new one does, also if it has no memory.
        if state["ledger"]["env_steps"] > 0:
            self.real.restore(state)
        self.update = int(state["update"])
        self.seconds = float(state["seconds"])

    def as_it_was(self, state: dict[str, Any]) -> dict[str, Any]:
        """What `state` returned last, with the rows that the buffer has lost since put back."""
        if self._gone is None or not ring.is_written_over(state["replay"]):
            return state
        return {**state, "replay": replay_learner.put_back(self.replay, self._gone)}

    def take_over(self, other: Run) -> None:
        """Start with the policy, critics and buffer of another run, but not with its counts."""
        self.learner = lent(other, self.learner, self.settings, under="learner")
        self.replay = lent(other, self.replay, self.settings, under="replay")

    def warm_up(self, *, watch: Watch = nobody_watches) -> None:
        """Steps of the untrained policy, which fill the buffer and are its first units."""
        wanted = self.env_steps + self.settings.initial_steps
        seen = []
        while self.env_steps < wanted:
            watch(Wait("first real steps", self.env_steps, wanted, "steps"))
            steps = min(self.rows, -(-(wanted - self.env_steps) // self.settings.num_envs))
            real = self._collect(steps)
            seen.append(np.asarray(real.obs[:steps]).reshape(-1, real.obs.shape[-1]))
            self.replay = replay_learner.remember(self.replay, real)
        if self.settings.init_from is None:
            self._set_policy(first_normaliser(self.policy, np.concatenate(seen)))

    def doubts(self) -> list[str]:
        """None: nothing is learned of the task itself."""
        return []

    def take_sentences(self) -> list[str]:
        """What is to be said of what went wrong in the copies since the last call."""
        return self.real.take_sentences()

    def step(self) -> Row:
        """One update: real steps, and for each of them some gradient steps."""
        began, first_step = time.perf_counter(), self.env_steps
        with self._phase(columns.COLLECT):
            real = self._collect(self.rows)
            self._remember(real)
        with self._phase(columns.ADVANTAGES):
            cost = self._measure_cost(real)
        with self._phase(columns.POLICY):
            update = self._learn(cost)
            before = jnp.array(float(first_step))
            self._set_policy(update_normaliser(self.policy, real, before))

        # Counted before the guard, so that what is not finite is named by its update.
        self.update += 1
        self._guard(real)
        seconds = time.perf_counter() - began
        self.seconds += seconds
        return self._row(update, cost, self.env_steps - first_step, seconds)

    @contextmanager
    def _phase(self, column: Column) -> Iterator[None]:
        """Count the seconds inside to a phase of this update."""
        began = time.perf_counter()
        yield
        self.phases[column] = time.perf_counter() - began

    def _set_policy(self, policy: SquashedPolicy) -> None:
        self.learner = replace(self.learner, policy=policy)

    def _collect(self, steps: int) -> Steps:
        self.key, key = jax.random.split(self.key)
        return self.real.collect(self.policy, steps=steps, rows=self.rows, key=key)

    def _remember(self, real: Steps) -> None:
        self._gone = replay_learner.next_to_go(self.replay, rows=real.valid.size)
        self.replay = replay_learner.remember(self.replay, real)

    def _measure_cost(self, real: Steps) -> CostMeasure:
        self.real_cost, cost = measure_cost(
            self.real_cost, real, None, self.static, self.task.horizon
        )
        return jax.block_until_ready(cost)

    def _learn(self, cost: CostMeasure) -> ReplayUpdate:
        share = self.settings.cost_estimate.target
        target = jnp.asarray(share * self.real.limits, jnp.float32)
        fresh = float(cost.episodes) * self.task.horizon
        self.real.lengthen(np.asarray(cost.used), np.asarray(target), steps=fresh)
        self.key, key = jax.random.split(self.key)
        self.learner, self.multiplier, update = replay_learner.learn(
            self.learner,
            self.multiplier,
            self.replay,
            cost,
            target,
            key,
            settings=self.static,
            horizon=self.task.horizon,
            real_steps=self.rows * self.settings.num_envs,
        )
        return jax.block_until_ready(update)

    def _guard(self, real: Steps) -> None:
        """Stop where a number is no longer one, with the real steps at hand."""
        whole = jax.device_get(replay_learner.finite(self.learner, real))
        for name, finite in zip(replay_learner.MADE, whole, strict=True):
            if not finite:
                self.offending = real
                raise NonFiniteError(f"not finite in update {self.update}: {name}")

    def _row(self, update: ReplayUpdate, cost: CostMeasure, steps: int, seconds: float) -> Row:
        """What this update adds to progress.csv; times last."""
        values = {
            columns.ENV_STEPS: self.env_steps,
            columns.UPDATE: self.update,
            **self.real.account(np.asarray(cost.real, float), steps=steps),
            **rows.of_replay(update, cost),
            columns.FPS: steps / seconds,
            columns.UPDATE_SECONDS: seconds,
            columns.TOTAL_SECONDS: self.seconds,
            **self.phases,
        }
        return rows.flat(values, self.task.cost_names)

    def take_episodes(self) -> list[Row]:
        """The episodes that ended since the last call, as rows of episodes.csv."""
        names = self.task.cost_names
        return [rows.of_episode(episode, names) for episode in self.real.take_episodes()]

    def close(self) -> None:
        """Let go of the copies."""
        self.real.close()
