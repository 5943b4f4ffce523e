"""SAC-L's run: collect, remember, then many gradient steps on what is remembered."""

import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cmbpo import columns
from cmbpo.algorithms import sac_lagrangian
from cmbpo.data import replay as replays
from cmbpo.data import ring
from cmbpo.data.replay import Replay
from cmbpo.networks import SquashedPolicy
from cmbpo.policy import cost_estimate, lagrangian
from cmbpo.runs.copying import lent
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.training import replay_learner, rows
from cmbpo.training.learner import CostMeasure, measure_cost, with_first_units, with_units_of_all
from cmbpo.training.protocol import BaseTrainer, Watch, nobody_watches
from cmbpo.training.replay_learner import ReplayUpdate
from cmbpo.training.rows import Row
from cmbpo.trajectory import Steps


class ReplayTrainer(BaseTrainer):
    """A run in progress: the real copies of the task, the buffer, and what learns from it."""

    def __init__(self, settings: TrainSettings, task: Task):
        """Nothing is collected or compiled yet."""
        super().__init__(settings, task)
        n_obs, n_act, n_cost = len(task.obs_names), len(task.act_names), len(task.cost_names)
        self.key, key = jax.random.split(jax.random.key(settings.seed))
        self.learner = sac_lagrangian.start(n_obs, n_act, n_cost, settings, key=key)
        self.multiplier = lagrangian.pid_multiplier(n_cost)
        self.real_cost = cost_estimate.nothing_seen(n_cost)
        self.replay = replays.empty(settings.replay.size, n_obs, n_act, n_cost)
        self._gone: Replay | None = None

    def _check(self) -> None:
        super()._check()
        room, new = self.settings.replay.size, self.rows * self.settings.num_envs
        if room < new:
            raise ValueError(
                f"replay.size is {room}; allowed here: at least {new},"
                " the real samples of an update"
            )

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
            **super().state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        for name in ("learner", "multiplier", "real_cost", "replay", "key"):
            setattr(self, name, state[name])

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
        seen = self._first_steps(watch, self._remember)
        if self.settings.init_from is None:
            self._set_policy(with_first_units(self.policy, seen))

    def doubts(self) -> list[str]:
        """None: nothing is learned of the task itself."""
        return []

    def step(self) -> Row:
        """One update: real steps, and for each of them some gradient steps."""
        began, first_step = time.perf_counter(), self.env_steps
        with self.phase(columns.COLLECT):
            real = self._collect(self.rows)
            self._remember(real)
        with self.phase(columns.ADVANTAGES):
            cost = self._measure_cost(real)
        with self.phase(columns.POLICY):
            update = self._learn(cost)
            before = jnp.array(float(first_step))
            self._set_policy(with_units_of_all(self.policy, real, before))

        # Counted before the guard, so that what is not finite is named by its update.
        self.update += 1
        self._guard(replay_learner.made(self.learner, real), real)
        filled = rows.of_replay(update, cost)
        return self._row(filled, cost, began=began, first_step=first_step)

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
