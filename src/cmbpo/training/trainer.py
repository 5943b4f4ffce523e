"""The practical algorithm, section IV-B: collect, learn the model, imagine, improve, fit V."""

import time
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cmbpo import columns
from cmbpo.algorithms.update import PolicyStep
from cmbpo.columns import Column
from cmbpo.data import quiet_end
from cmbpo.data.archive import Archive
from cmbpo.model import learned_cost_quality
from cmbpo.model import state as model
from cmbpo.model.state import Imagined, Model
from cmbpo.model.world import KnownTask, NothingKnown
from cmbpo.networks import Policy
from cmbpo.runs.copying import lent
from cmbpo.runs.run_folder import Run
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.task import Task
from cmbpo.theory.predicted_vs_real import Prediction, no_prediction
from cmbpo.training import learner, rows
from cmbpo.training.protocol import BaseTrainer, Wait, Watch, nobody_watches
from cmbpo.training.rows import Row, Update
from cmbpo.trajectory import Samples, Steps


class Trainer(BaseTrainer):
    """A run in progress: the real copies of the task, what learns, and the counts so far."""

    def __init__(self, settings: TrainSettings, task: Task):
        """Nothing is collected or compiled yet."""
        super().__init__(settings, task)
        knows = task.knows_cost or task.knows_termination
        self._known: KnownTask = task if knows else NothingKnown()
        self.learner = learner.start(settings, task)
        self.prediction = no_prediction(len(self.real.limits))
        self._gone: Archive | None = None

    def _check(self) -> None:
        super()._check()
        if not self._imagines:
            return
        self.task.verify()
        most, room = self._real_range[1], self.settings.archive_size
        if most > room:
            raise ValueError(
                f"archive_size is {room}; allowed here: at least {most}, the most real samples of"
                " an update (real_share.max_real)"
            )

    @property
    def _imagines(self) -> bool:
        return ALGORITHMS[self.settings.algo].data == "real and imagined"

    @property
    def _real_range(self) -> tuple[int, int]:
        share = self.settings.real_share
        return (share.min_real, share.max_real) if self._imagines else super()._real_range

    @property
    def _finds_units(self) -> bool:
        """Whether the policy's units come from this run, not from the one it starts from."""
        return self.settings.policy.normalise and self.settings.init_from is None

    @property
    def _warms_up(self) -> bool:
        return self._imagines or self.settings.policy.normalise

    @property
    def policy(self) -> Policy:
        """The policy as it is now."""
        return self.learner.policy

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        return {
            "learner": self.learner,
            **super().state(),
            "prediction": vars(self.prediction),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        self.learner = state["learner"]
        self.prediction = Prediction(**state["prediction"])

    def as_it_was(self, state: dict[str, Any]) -> dict[str, Any]:
        """What `state` returned last, with the rows that the archive has lost since put back."""
        then, now = state["learner"].model, self.learner.model
        if then is None or now is None or self._gone is None or not model.is_written_over(then):
            return state
        mended = model.put_back(then, now, self._gone)
        return {**state, "learner": replace(state["learner"], model=mended)}

    def take_over(self, other: Run) -> None:
        """Start with the policy, critics and model of another run, but not with its counts."""
        names = ("policy", "critic", "critic_opt", "cost_critic", "cost_critic_opt", "model")
        template = {name: getattr(self.learner, name) for name in names}
        learned = lent(other, template, self.settings, under="learner")
        # However quietly they ended.
        whole = jnp.ones(())
        learned["policy"] = eqx.tree_at(lambda p: p.noise, learned["policy"], whole)
        if (theirs := learned["model"]) is not None:
            # Their policies are older than the first of this run.
            epoch = theirs.archive.epoch
            older = eqx.tree_at(lambda m: m.archive.epoch, theirs, epoch - epoch.max() - 1)
            learned["model"] = older
        self._set(**learned)

    def warm_up(self, *, epochs: int = model.FIRST_EPOCHS, watch: Watch = nobody_watches) -> None:
        """Steps of the untrained policy, the first model, and the limits d_m and d_H."""
        if not self._warms_up:
            return
        key, key_fit, key_limits = jax.random.split(self.learner.key, 3)
        self._set(key=key)

        def remember(real: Steps) -> None:
            if (world := self.learner.model) is not None:
                self._set(model=model.remember(world, real, self.learner.policy, 0))

        seen = self._first_steps(watch, remember)
        if self._finds_units:
            self._set(policy=learner.with_first_units(self.learner.policy, seen))
        if self.learner.model is not None:
            watch(Wait("first model", 0, epochs, "epochs at most"))
            fitted = model.fit_models(
                self.learner.model,
                self.static,
                epochs=epochs,
                key=key_fit,
                watch=lambda *now: watch(_first_fit(epochs, *now)),
            )
            policy = self.learner.policy
            # After the units: D̄₀ is of the policy that the first update will act with.
            self._set(model=model.set_limits(fitted, policy, self.static, self._known, key_limits))

    def doubts(self) -> list[str]:
        """What the first steps were too few for, where cost and end are learned."""
        learned = self.learner.model
        if learned is None or learned.cost_model is None or learned.quality.cost is None:
            return []
        return learned_cost_quality.doubts(
            learned.cost_model, learned.quality.cost, self.task.cost_names, steps=self.env_steps
        )

    def step(self) -> Row:
        """One policy update: the phases of the paper, in its order."""
        began, first_step, now = time.perf_counter(), self.env_steps, self.learner
        # The third is spare: without it every later number of a seed would be another.
        key, key_model, _, key_imagine, key_improve, key_critic = jax.random.split(now.key, 6)
        self._set(key=key)

        with self.phase(columns.COLLECT):
            samples_wanted = self._real_samples()
            real = self._collect(-(-samples_wanted // self.settings.num_envs))
        parts, imagined = [real], None
        if now.model is not None:
            with self.phase(columns.MODEL):
                world = self._learn_model(now.model, real, key_model)
            with self.phase(columns.IMAGINE):
                imagined = self._imagine(world, samples_wanted, key_imagine)
                parts.append(imagined.steps)
        with self.phase(columns.ADVANTAGES):
            samples, values = learner.gather(now.critic, now.cost_critic, parts, self.static)
            cost = self._measure_cost(real, imagined)
            jax.block_until_ready(samples)
        with self.phase(columns.POLICY):
            step, std = self._improve(samples, cost, key_improve)
            if self._finds_units and self.settings.policy.adapt_units:
                # After the step: its surrogate compares policies that see the same units.
                before = jnp.array(float(first_step))
                policy = learner.with_units_of_all(self.learner.policy, real, before)
                self._set(policy=policy)
        with self.phase(columns.CRITIC):
            fitted, critics = learner.fit_critics(self.learner, samples, key_critic, self.static)
            self._set(**jax.block_until_ready(fitted))

        # Counted before the guard, so that what is not finite is named by its update.
        self.update += 1
        self._guard(learner.made(self.learner, samples), samples)
        alpha = samples_wanted / self.settings.batch_size
        update = Update(alpha, imagined, values, cost, step, std, critics)
        return self._row(self._filled(update), cost, began=began, first_step=first_step)

    def _set(self, **fields: Any) -> None:
        self.learner = replace(self.learner, **fields)

    def _real_samples(self) -> int:
        """α(π) of the batch, or all of it where nothing is imagined."""
        if self.learner.model is None:
            return self.settings.batch_size
        return model.next_real_samples(self.learner.model, self.settings, first=self.update == 0)

    def _collect(self, steps: int) -> Steps:
        key, key_collect = jax.random.split(self.learner.key)
        self._set(key=key)
        return self.real.collect(self.learner.policy, steps=steps, rows=self.rows, key=key_collect)

    def _learn_model(self, world: Model, real: Steps, key: PRNGKeyArray) -> Model:
        s = self.settings.ensemble
        self._gone = model.next_to_go(world, real)
        world = model.remember(world, real, self.learner.policy, self.update + 1)
        self._set(model=world)
        rows, fresh = int(world.archive.size), int(world.fresh)
        if fresh >= s.until_due(rows - fresh, least=1):
            epochs = s.most_epochs(rows)
            world = model.fit_models(world, self.static, epochs=epochs, key=key)
        self._set(model=jax.block_until_ready(world))
        return world

    def _imagine(self, world: Model, real_samples: int, key: PRNGKeyArray) -> Imagined:
        imagined = model.imagine_batch(
            world,
            self.learner.policy,
            jnp.array(self.settings.batch_size - real_samples),
            jnp.array(self.update),
            self.static,
            self._known,
            key,
        )
        # D̄ of this policy decides how many real samples the next update gets.
        self._set(model=eqx.tree_at(lambda m: m.disagreement, world, imagined.disagreement))
        return jax.block_until_ready(imagined)

    def _measure_cost(self, real: Steps, imagined: Imagined | None) -> learner.CostMeasure:
        rate = None if imagined is None else imagined.batch.cost_rate
        seen, cost = learner.measure_cost(
            self.learner.real_cost, real, rate, self.static, self.task.horizon
        )
        self._set(real_cost=seen)
        return cost

    def _improve(
        self, samples: Samples, cost: learner.CostMeasure, key: PRNGKeyArray
    ) -> tuple[PolicyStep, Float[Array, ""]]:
        fading = {
            "env_steps": self.env_steps,
            "total_steps": self.settings.total_steps,
            "quiet_end": self.settings.policy.quiet_end,
        }
        share = self.settings.cost_estimate.target
        share *= quiet_end.AIM if quiet_end.begun(**fading) else 1.0
        target = jnp.asarray(share * self.real.limits, jnp.float32)
        fresh = float(cost.episodes) * self.task.horizon
        self.real.lengthen(np.asarray(cost.used), np.asarray(target), steps=fresh)
        policy, improvement, step, std = learner.improve(
            self.learner.policy,
            self.learner.improvement,
            samples,
            cost,
            target,
            key,
            settings=self.static,
            horizon=self.task.horizon,
        )
        loud = quiet_end.next_noise(
            float(policy.noise),
            **fading,
            steps=fresh,
            cost=np.asarray(cost.used),
            target=np.asarray(target),
        )
        policy = eqx.tree_at(lambda p: p.noise, policy, jnp.asarray(loud, jnp.float32))
        self._set(policy=policy, improvement=improvement)
        return jax.block_until_ready((step, std))

    def _filled(self, update: Update) -> dict[Column, Any]:
        """The columns of this update, and of what became of the prediction before it."""
        real = np.asarray(update.cost.real, float)
        discount = self.settings.advantage.cost_discount
        filled = {
            **rows.of_update(update, self.learner.model, horizon=self.task.horizon),
            **rows.of_bound(self.prediction.against(real, discount=discount)),
        }
        # The bound counts nats of the whole prediction, D̄ is their mean over its dimensions.
        width = len(self.task.obs_names) + 1
        disagreement = 0.0 if update.imagined is None else float(update.imagined.disagreement)
        self.prediction = Prediction(
            cost=real,
            change=np.asarray(update.step.cost_change, float),
            kl=np.asarray(update.step.kl, float),
            disagreement=np.array(width * disagreement),
        )
        return filled


def _first_fit(epochs: int, done: int, learning: int, networks: int) -> Wait:
    note = f"{learning} of {networks} networks still learn"
    return Wait("first model", done, epochs, "epochs at most", note)
