"""What has gone wrong in one copy lately, and when that is too much to go on."""

from collections import deque

import numpy as np
from jaxtyping import Float

from cmbpo.envs.failures import EnvironmentFailure, moment, told
from cmbpo.tasks.task import Mishaps

MOST_LOST, AMONG = 5, 20
"""Episodes lost with the copy's process, among its newest, that end the run."""
MOST_UNSOUND = 20
"""Episodes of a copy on end that end with a number that is not finite, that end the run."""


class Record:
    """The episodes of the copy of this number; what goes wrong is counted and said in `mishaps`."""

    def __init__(self, number: int, mishaps: Mishaps):
        """Before its first episode."""
        self.number, self._mishaps = number, mishaps
        self._seed, self._age = 0, 0
        self._steps = 0
        self._lost = deque([False], AMONG)
        self._ended_unsound = False
        self._unsound, self._since = 0, 0

    def begin(self, seed: int) -> None:
        """An episode begins."""
        self._seed, self._age = seed, 0
        self._lost.append(False)
        if not self._ended_unsound:
            self._unsound = 0
        self._ended_unsound = False

    def step(self) -> None:
        """A step of it."""
        self._age += 1
        self._steps += 1

    def lose(self, how: str, act: Float[np.ndarray, " act"] | None) -> None:
        """Its process died or hung, in the step with this action or in its reset."""
        self._lost[-1] = True
        lost = told(f"Copy {self.number} {how}", self._moment(act))
        if self._lost.count(True) >= MOST_LOST:
            raise EnvironmentFailure(
                f"{lost} It keeps doing so: {MOST_LOST} of its newest {len(self._lost)} episodes"
                " were lost."
            )
        self._mishaps.restarts += 1
        self._mishaps.say(f"{lost} It was started anew, and its episode is lost.")

    def not_finite(self, what: str, act: Float[np.ndarray, " act"] | None) -> None:
        """A number of the step with this action, or of its reset, is not finite."""
        self._ended_unsound = True
        self._unsound += 1
        self._since = self._steps if self._unsound == 1 else self._since
        named = told(f"Not finite: {what}", self._moment(act))
        if self._unsound >= MOST_UNSOUND:
            raise EnvironmentFailure(
                f"{named} So have ended the newest {MOST_UNSOUND} episodes of the copy, each of"
                f" them; it began {self._steps - self._since} steps of the copy earlier."
            )
        self._mishaps.not_finite += 1
        if self._mishaps.not_finite == 1:
            then = "ends its episode, earns nothing and costs at least 1"
            follows = "Another episode begins instead" if act is None else f"Such a step {then}"
            self._mishaps.say(f"{named} {follows}; more of it is counted in the log.")

    def _moment(self, act: Float[np.ndarray, " act"] | None) -> str:
        return moment(self.number, self._seed, self._age, act)


def what_is_not_finite(
    obs: Float[np.ndarray, " obs"],
    reward: float = 0.0,
    cost: Float[np.ndarray, " cost"] | None = None,
    cost_key: tuple[str, ...] = (),
) -> str:
    """The first number of a step that is infinite or none, by its name and value."""
    for i in np.flatnonzero(~np.isfinite(obs)):
        return f"observation[{i}] is {obs[i]}"
    if not np.isfinite(reward):
        return f"the reward is {reward}"
    assert cost is not None
    return ", ".join(
        f"info[{key!r}] is {c}" for key, c in zip(cost_key, cost, strict=True) if not np.isfinite(c)
    )
