"""How far a run is, how long the rest will take, and how long it was expected to take."""

import math
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from cmbpo import columns
from cmbpo.envs.simulator import Simulator
from cmbpo.model.real_share import real_samples, real_share
from cmbpo.policy.trust_region import Region
from cmbpo.runs.tables import Row
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.settings.schema import TrainSettings
from cmbpo.tasks.simulated import SimulatedTask
from cmbpo.tasks.task import Task
from cmbpo.training.protocol import Wait

OVER_FLOOR = (1.3, 3.0)
"""Seconds of learning over those of its matrix products alone, at best and at worst: small networks
and loaded machines take longer (`cmbpo bench update`)."""
COMPILING = (5.0, 30.0)
"""Seconds until every program is compiled: all kept by an earlier run, or none."""
LEAST_ON_GPU = 0.05
"""Seconds below which no update of an on-policy learner comes on a GPU, whose kernels are short."""
FIRST_EPOCHS = 60
"""Epochs of a first fit, about; it may make 200."""


SHORT = 1e12
"""Operations of a run whose length nobody need be told."""


class Pace:
    """How far a run is, and how long the rest will take at the speed of the last updates."""

    def __init__(self, total: int, so_far: Sequence[Row]):
        """`total` real steps, and the updates that were made before."""
        self.total = total
        self.done = int(so_far[-1][columns.ENV_STEPS]) if so_far else 0
        self._began = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque(maxlen=20)

    def note(self, row: Row) -> None:
        """Take the row of one update."""
        self.done = int(row[columns.ENV_STEPS])
        self._recent.append((time.monotonic(), self.done))

    def elapsed(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    def left(self) -> float | None:
        """Seconds, or None while nothing is known."""
        if len(self._recent) < 2:
            return None
        (t0, n0), (t1, n1) = self._recent[0], self._recent[-1]
        if n1 <= n0:
            return None
        seconds = (self.total - n1) * (t1 - t0) / (n1 - n0)
        return max(seconds - (time.monotonic() - t1), 0.0)


class WaitPace:
    """How long a wait still takes, from its first report on: what was compiled before is not it."""

    def __init__(self, wait: Wait):
        """Its first report."""
        self.wait = wait
        self._first = wait, time.monotonic()
        self._last = time.monotonic()

    def note(self, wait: Wait) -> None:
        """A later report of the same."""
        self.wait, self._last = wait, time.monotonic()
        if self._first[0].done == 0 and wait.done > 0:
            self._first = wait, self._last

    def seconds_each(self) -> float | None:
        """Seconds of one of its units; None while nothing is known."""
        first, began = self._first
        if self.wait.done <= first.done:
            return None
        return (self._last - began) / (self.wait.done - first.done)

    def left(self) -> float | None:
        """Seconds, or None while nothing is known."""
        each = self.seconds_each()
        if each is None:
            return None
        ahead = each * (self.wait.total - self.wait.done)
        return max(ahead - (time.monotonic() - self._last), 0.0)


class Forecast:
    """What a run will take, from its first fit and its second update: the first one compiles.

    A fit takes as long as the rows that it passes; all else is the same in every update.
    """

    def __init__(self, settings: TrainSettings):
        """Nothing is known yet."""
        self._settings = settings
        self._fits_model = ALGORITHMS[settings.algo].data == "real and imagined"
        self._fit: WaitPace | None = None
        self._epoch: float | None = None
        self._steps = 0
        self._updates = 0

    def wait(self, wait: Wait) -> None:
        """Take a report of the first fit, in whose first second or more all networks learn."""
        if not self._fits_model:
            return
        if self._fit is None or self._fit.wait.what != wait.what:
            self._fit, self._epoch = WaitPace(wait), None
            return
        settled = self._epoch is not None and wait.done > 10
        self._fit.note(wait)
        self._epoch = self._epoch if settled else self._fit.seconds_each()

    def sentence(self, row: Row) -> str | None:
        """After the second update: how long the others will take; None where it is not known."""
        before, self._steps = self._steps, int(row[columns.ENV_STEPS])
        self._updates += 1
        total = self._settings.total_steps
        known = columns.UPDATE_SECONDS in row and before < self._steps < total
        # A run that goes on has made its first fit before.
        known = known and (self._epoch is not None or not self._fits_model)
        if self._updates != 2 or not known:
            return None
        updates = math.ceil((total - self._steps) / (self._steps - before))
        others = float(row[columns.UPDATE_SECONDS]) - float(row.get(columns.MODEL, 0.0))
        seconds = updates * others + self._fits()
        each = f"{seconds / updates:.2g} s" if seconds < 60 * updates else words(seconds / updates)
        return f"about {words(seconds)} to go on this machine ({updates:,} updates of {each})"

    def _fits(self) -> float:
        """Seconds of all fits that are to come."""
        settings = self._settings
        if self._epoch is None:
            return 0.0
        return self._epoch / settings.initial_steps * fitted_rows(settings, since=self._steps)


def words(seconds: float) -> str:
    """A duration that is known roughly, as in 25 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours >= 9.5 else f"{hours:.1f} h"


def expected(settings: TrainSettings, task: Task) -> str | None:
    """How long a run will take, before it begins: its products and steps at this machine's rates.

    A guess within a factor of two, as in 20 to 45 min; None where it is not worth a word.
    """
    if run_operations(settings, task)[0] < SHORT and settings.total_steps < 50_000:
        return None
    learning = learning_seconds(settings, task, rate=matrix_rate("default", width=1024, rounds=2))
    acting, beside = 0.0, " beside the steps of your environment"
    if isinstance(task, SimulatedTask):
        rate = simulator_rate(task, settings.num_envs, steps=10, rounds=2)
        acting, beside = settings.total_steps / rate, ""
    least, most = (
        words(over * learning + acting + compiling)
        for over, compiling in zip(OVER_FLOOR, COMPILING, strict=True)
    )
    span = least if least == most else f"{least} to {most}"
    return f"expected time: {span} on this machine{beside}; told more exactly once it learns"


def learning_seconds(settings: TrainSettings, task: Task, *, rate: float) -> float:
    """Seconds of a run's matrix products, at `rate` operations a second."""
    operations, updates = run_operations(settings, task)
    seconds = operations / rate
    slow = jax.default_backend() == "gpu" and ALGORITHMS[settings.algo].data != "replay"
    return max(seconds, LEAST_ON_GPU * updates) if slow else seconds


def run_operations(settings: TrainSettings, task: Task) -> tuple[float, float]:
    """Operations in the matrix products of a whole run, and its updates.

    A network with w weights takes 2w for a value and 6w for a gradient, per example; a product with
    the Fisher matrix 8w.
    """
    s = settings
    n_obs, n_act, n_cost = len(task.obs_names), len(task.act_names), len(task.cost_names)
    policy = weights(n_obs, *s.policy.hidden, n_act)
    data = ALGORITHMS[s.algo].data
    if data == "replay":
        critics = 2 * (1 + n_cost) * weights(n_obs + n_act, *s.critic.hidden, 1)
        # Each network of a critic learns, tells the target's value and the policy's slope.
        gradient = s.replay.batch_size * (12.0 * critics + 10.0 * policy)
        return s.total_steps * s.replay.ratio * gradient, s.total_steps / s.batch_size
    critics = s.critic.members * (1 + n_cost) * weights(n_obs, *s.critic.hidden, 1)
    products = Region.cg_iterations * s.trust_region.fisher_share * (1 + n_cost)
    update = s.batch_size * (
        (6.0 * s.critic.epochs + 2.0) * critics + policy * (16.0 + 8.0 * products)
    )
    if data == "real":
        return s.total_steps / s.batch_size * update, s.total_steps / s.batch_size
    world = s.ensemble.members * weights(n_obs + n_act, *s.ensemble.hidden, 2 * (n_obs + 1))
    share = s.real_share
    # For most of a run the networks disagree half as much as on the first data, or less.
    real = real_samples(
        real_share(0.5, 1.0, rule=share.rule, first_alpha=share.first_alpha),
        batch_size=s.batch_size,
        min_real=share.min_real,
        max_real=share.max_real,
        granularity=s.num_envs,
    )
    update += s.batch_size * 2.5 * (world + policy)
    updates = max(s.total_steps - s.initial_steps, 0) / real
    rows = FIRST_EPOCHS * s.initial_steps + fitted_rows(s, since=s.initial_steps)
    return updates * update + 6.0 * world * rows, updates


def fitted_rows(settings: TrainSettings, *, since: int) -> int:
    """Rows that the fits from a step on pass, in all their epochs: the archive grows until full."""
    s, at, passed = settings.ensemble, since, 0
    while at < settings.total_steps:
        rows = min(at, settings.archive_size)
        every = s.until_due(rows, least=settings.real_share.min_real)
        alike = 1 if rows < settings.archive_size else -(-(settings.total_steps - at) // every)
        passed += alike * s.most_epochs(rows) * rows
        at += alike * every
    return passed


def weights(*widths: int) -> int:
    """Weights of a perceptron, without the biases."""
    return sum(a * b for a, b in pairwise(widths))


def matrix_rate(precision: str, *, width: int | None = None, rounds: int = 5) -> float:
    """Operations per second of one large float32 product, in the best of several rounds."""
    n = width or (2048 if jax.default_backend() == "cpu" else 8192)
    a = jax.random.normal(jax.random.key(0), (n, n))
    with jax.default_matmul_precision(precision):
        product = jax.jit(jnp.matmul).lower(a, a).compile()
    seconds = []
    for _ in range(1 + rounds):
        before = time.perf_counter()
        product(a, a).block_until_ready()
        seconds.append(time.perf_counter() - before)
    return 2.0 * n**3 / min(seconds[1:])


def simulator_rate(
    task: SimulatedTask, num_envs: int, *, steps: int = 50, rounds: int = 3
) -> float:
    """Steps per second of the simulator under random actions, in the best of several rounds."""
    simulator = Simulator(task, num_envs, seed=0)
    act = np.random.default_rng(0).uniform(-1.0, 1.0, (steps, num_envs, len(task.act_names)))
    seconds = []
    for _ in range(rounds):
        before = time.perf_counter()
        for a in act:
            simulator.step(a)
        seconds.append(time.perf_counter() - before)
    return steps * num_envs / min(seconds)
