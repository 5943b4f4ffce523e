"""Copies of the user's own environment side by side, each supervised and replaced when it dies."""

import time
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
from jaxtyping import Float, Int

from cmbpo.envs.copies.inline import InlineCopy
from cmbpo.envs.copies.processes import Lost, ProcessCopy, sendable
from cmbpo.envs.copies.supervision import Record, what_is_not_finite
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.task import Mishaps, Outcome

PATIENCE = 5.0
"""Seconds that the processes, all together, have to close their environments."""


class VectorCopies:
    """N copies of an environment, in line or in processes; the physics stays in the copies.

    Each episode begins with a seed drawn from its copy's generator, so that it depends on nothing
    before it. The `state` of a copy is empty: what a copy holds inside cannot be had in general,
    and so running episodes are lost when training is interrupted. So is the episode of a process
    that dies or hangs: another takes its place. What goes wrong too often is a failure.
    """

    restorable = False

    def __init__(self, make: Callable[..., gymnasium.Env], num_envs: int, *, settings: EnvSettings):
        """Make the copies."""
        self.mishaps = Mishaps()
        self._cost_key = settings.cost_key
        self._make: Callable[[int], InlineCopy | ProcessCopy]
        if settings.copies == "processes":
            made = sendable(make)
            self._make = lambda i: ProcessCopy(made, i, settings)
        else:
            self._make = lambda i: InlineCopy(make, i, settings)
        self._copies: list[InlineCopy | ProcessCopy] = []
        self._records = [Record(i, self.mishaps) for i in range(num_envs)]
        try:
            for i in range(num_envs):
                self._copies.append(self._make(i))
            _require_several(self._copies)
            *_, self._n_obs = map(self._ready, range(num_envs))
        except BaseException:
            self.close()
            raise

    def _ready(self, i: int) -> int:
        """Wait until a new copy is made: the entries of its observation."""
        try:
            return int(self._copies[i].answer()[0])
        except Lost as lost:
            raise EnvironmentFailure(f"Copy {i}, while it was made, {lost}") from None

    def begin(
        self, rows: Int[np.ndarray, " ended"], random: Sequence[np.random.Generator]
    ) -> tuple[Float[np.ndarray, "ended state"], Float[np.ndarray, "ended obs"]]:
        """Start an episode in these copies, each with a seed from its own generator."""
        obs = np.empty((len(rows), self._n_obs))
        started = list(zip(rows.tolist(), random, strict=True))
        for i, own in started:
            self._reset(i, own)
        for row, (i, own) in enumerate(started):
            while not self._begun(i, obs[row]):
                self._reset(i, own)
        return np.empty((len(rows), 0)), obs

    def _reset(self, i: int, random: np.random.Generator) -> None:
        seed = int(random.integers(2**31))
        self._records[i].begin(seed)
        self._copies[i].reset(seed)

    def _begun(self, i: int, obs: Float[np.ndarray, " obs"]) -> bool:
        """Whether the episode has begun that was asked for, with an observation that is finite."""
        try:
            obs[:] = self._copies[i].answer()
        except Lost as lost:
            self._replace(i, lost, None)
            return False
        if not (sound := bool(np.isfinite(obs).all())):
            self._records[i].not_finite(what_is_not_finite(obs), None)
        return sound

    def _replace(self, i: int, lost: Lost, act: Float[np.ndarray, " act"] | None) -> None:
        self._records[i].lose(str(lost), act)
        self._copies[i] = self._make(i)
        self._ready(i)

    def step(
        self,
        state: Float[np.ndarray, "N state"],
        obs: Float[np.ndarray, "N obs"],
        act: Float[np.ndarray, "N act"],
    ) -> Outcome:
        """Advance all copies by one step.

        Where a number is not finite, the step is terminal, earns nothing and costs at least 1.
        Where the copy is lost, the episode is truncated in the state that it was in.
        """
        for copy, own in zip(self._copies, act, strict=True):
            copy.step(own)
        n = self._n_obs
        rows = np.zeros((len(act), n + 3 + len(self._cost_key)))
        lost = np.zeros(len(act), bool)
        for i, (copy, record) in enumerate(zip(self._copies, self._records, strict=True)):
            record.step()
            try:
                rows[i] = copy.answer()
            except Lost as how:
                self._replace(i, how, act[i])
                lost[i], rows[i, :n], rows[i, -1] = True, obs[i], 1.0
        next_obs, reward, cost = rows[:, :n].copy(), rows[:, n].copy(), rows[:, n + 1 : -2].copy()
        unsound = ~np.isfinite(rows).all(axis=1).ravel()
        for i in np.flatnonzero(unsound):
            what = what_is_not_finite(next_obs[i], reward[i], cost[i], self._cost_key)
            self._records[i].not_finite(what, act[i])
            next_obs[i], reward[i] = np.nan, 0.0
            cost[i] = np.where(np.isfinite(cost[i]), np.maximum(cost[i], 1.0), 1.0)
        terminated, truncated = rows[:, -2] != 0.0, rows[:, -1] != 0.0
        return Outcome(
            state, next_obs, reward, cost, terminated | unsound, truncated, unsound, lost, {}
        )

    def close(self) -> None:
        """Close the copies and end their processes."""
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.close()
        until = time.monotonic() + PATIENCE
        for copy in copies:
            copy.end(patience=max(until - time.monotonic(), 0.0))


def _require_several(copies: Sequence[InlineCopy | ProcessCopy]) -> None:
    """Refuse copies that are one and the same environment: steps of one would move all."""
    bases = [id(copy.base) for copy in copies if isinstance(copy, InlineCopy)]
    if len(set(bases)) < len(bases):
        raise EnvironmentFailure(
            "what makes the environment returned the same one more than once; allowed: a new one"
            " each time, as in lambda: gymnasium.make(…), or num_envs 1"
        )
