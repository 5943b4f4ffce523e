"""Environments that go wrong, each in one way, and what is to be heard of it.

`BAD` lists them by name. Each is registered with Gymnasium, so that a command takes one as
`--env-id tests.envs.bad_environments:raises_in_step-v0`. All behave as `Fine` does until a copy of
theirs has taken `LATE` steps, over all of its episodes, unless they are wrong from the start.
"""

import os
import signal
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

HORIZON = 10
LATE = 25
"""Steps of a copy after which most of them go wrong."""


class Fine(gymnasium.Env):
    """A random walk in the plane with a cost above 0; nothing is wrong with it."""

    def __init__(self):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)
        self.at = np.zeros(2)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=2)
        return self.begun()

    def step(self, action):
        self.count += 1
        self.at = self.at + 0.1 * self.np_random.normal(size=2) + 0.1 * float(action[0])
        if self.count >= LATE:
            return self.late()
        return self.whole()

    def begun(self) -> Any:
        """What a reset returns."""
        return self.at.copy(), {}

    def whole(self) -> Any:
        """What a step returns when all is well."""
        return self.at.copy(), -float(self.at[0]), False, False, {"cost": float(self.at[1] > 0)}

    def late(self) -> Any:
        """What a step returns later."""
        return self.whole()


class RaisesInInit(Fine):
    def __init__(self):
        super().__init__()
        raise RuntimeError("no robot on port 7")


class RaisesInReset(Fine):
    def begun(self):
        raise RuntimeError("the joints are not homed")


class RaisesInLateReset(Fine):
    def begun(self):
        if self.count >= LATE:
            raise OSError("the arm is held")
        return super().begun()


class RaisesInFirstStep(Fine):
    def whole(self):
        raise ValueError("motor 3 does not answer")


class RaisesInStep(Fine):
    def late(self):
        raise ValueError("motor 3 does not answer")


class RaisesKeyError(Fine):
    def late(self):
        return {"hip": 1}["knee"]


class RaisesInNumpy(Fine):
    def late(self):
        return np.zeros(2) @ np.zeros(3)


class RaisesManyLines(Fine):
    def late(self):
        raise RuntimeError("line one\nline two\n" + "x" * 100_000)


class RaisesUnspeakably(Fine):
    def late(self):
        class UnspeakableError(Exception):
            def __str__(self):
                raise RuntimeError("not even that")

        raise UnspeakableError


class RaisesSystemExit(Fine):
    def late(self):
        raise SystemExit(0)


class RaisesBrokenPipe(Fine):
    def late(self):
        raise BrokenPipeError(32, "Broken pipe")


class RaisesMemoryError(Fine):
    def late(self):
        raise MemoryError


class RaisesEOFError(Fine):
    def late(self):
        raise EOFError("the bus is closed")


class RaisesGeneratorExit(Fine):
    def late(self):
        raise GeneratorExit


class RaisesRecursionError(Fine):
    def late(self):
        return self.late()


class RaisesStopIteration(Fine):
    def late(self):
        return next(iter(()))


class RaisesAssertion(Fine):
    def late(self):
        assert self.count < 0
        return self.whole()


class RaisesInClose(Fine):
    def close(self):
        raise RuntimeError("cannot let go")


class Exits(Fine):
    def late(self):
        os._exit(3)


class ExitsWell(Fine):
    def late(self):
        os._exit(0)


class KillsItself(Fine):
    def late(self):
        os.kill(os.getpid(), signal.SIGKILL)
        return self.whole()


class Crashes(Fine):
    def late(self):
        os.kill(os.getpid(), signal.SIGSEGV)
        return self.whole()


class DiesInReset(Fine):
    def begun(self):
        if self.count >= LATE:
            os._exit(4)
        return super().begun()


class DiesRarely(Fine):
    """In one of three hundred steps; the seed of the episode decides in which."""

    def step(self, action):
        if self.np_random.random() < 1.0 / 300.0 and self.count > 2:
            os._exit(5)
        return super().step(action)


class Hangs(Fine):
    def late(self):
        while True:
            time.sleep(1.0)


class HangsDeaf(Fine):
    """Catches what it can."""

    def late(self):
        while True:
            try:
                time.sleep(3600.0)
            except Exception:
                continue


class HangsInReset(Fine):
    def begun(self):
        if self.count >= LATE:
            time.sleep(3600.0)
        return super().begun()


class HangsInFirstReset(Fine):
    def begun(self):
        time.sleep(3600.0)
        return super().begun()


class HangsInInit(Fine):
    def __init__(self):
        super().__init__()
        time.sleep(3600.0)


class HangsInClose(Fine):
    def close(self):
        time.sleep(3600.0)


class NanObservation(Fine):
    def late(self):
        _, *rest = self.whole()
        return np.array([self.at[0], np.nan]), *rest


class InfiniteObservation(Fine):
    def late(self):
        _, *rest = self.whole()
        return np.array([-np.inf, self.at[1]]), *rest


class InfiniteOnce(Fine):
    def late(self):
        obs, *rest = self.whole()
        return np.where(self.count == LATE, np.inf, obs), *rest


class NanReward(Fine):
    def late(self):
        obs, _, *rest = self.whole()
        return obs, float("nan"), *rest


class InfiniteReward(Fine):
    def late(self):
        obs, _, *rest = self.whole()
        return obs, np.inf, *rest


class NanCost(Fine):
    def late(self):
        *rest, _ = self.whole()
        return *rest, {"cost": np.nan}


class NanInReset(Fine):
    def begun(self):
        return self.at * (np.nan if self.count >= LATE else 1.0), {}


class InfiniteInFirstReset(Fine):
    def begun(self):
        return np.array([np.inf, 0.0]), {}


class NanInReset1(Fine):
    """Every tenth episode begins with what is not a number."""

    def begun(self):
        return self.at * (np.nan if self.np_random.random() < 0.1 else 1.0), {}


class WrongShape(Fine):
    def late(self):
        _, *rest = self.whole()
        return np.zeros(3), *rest


class Grows(Fine):
    def late(self):
        _, *rest = self.whole()
        return np.zeros(2 + self.count), *rest


class Scalar(Fine):
    def late(self):
        _, *rest = self.whole()
        return 1.0, *rest


class ObjectObservation(Fine):
    def late(self):
        _, *rest = self.whole()
        return np.array([None, "x"], dtype=object), *rest


class RaggedObservation(Fine):
    def late(self):
        _, *rest = self.whole()
        return [[1.0], [1.0, 2.0]], *rest


class TextReward(Fine):
    def late(self):
        obs, _, *rest = self.whole()
        return obs, "much", *rest


class VectorReward(Fine):
    def late(self):
        obs, _, *rest = self.whole()
        return obs, np.ones(2), *rest


class VectorTerminated(Fine):
    def late(self):
        obs, reward, _, *rest = self.whole()
        return obs, reward, np.array([True, False]), *rest


class NoInfo(Fine):
    def late(self):
        *rest, _ = self.whole()
        return *rest, None


class NoCost(Fine):
    def late(self):
        *rest, _ = self.whole()
        return *rest, {"costs": 1.0}


class NoneCost(Fine):
    def late(self):
        *rest, _ = self.whole()
        return *rest, {"cost": None}


class FourParts(Fine):
    def late(self):
        obs, reward, terminated, _, info = self.whole()
        return obs, reward, terminated, info


class SixParts(Fine):
    def late(self):
        obs, reward, *rest = self.whole()
        return obs, reward, 0.0, *rest


class NoParts(Fine):
    def late(self):
        return None


class ResetAlone(Fine):
    def begun(self):
        return self.at if self.count >= LATE else super().begun()


class ResetWrongShape(Fine):
    def begun(self):
        return np.zeros(5 if self.count >= LATE else 2), {}


class Bad(NamedTuple):
    """An environment that goes wrong.

    `then` says what becomes of a run: it `stops` before or in training with a failure that says
    `words`; it `goes on`; it `restarts` copies in processes, until they die too often, where in
    line it `stops` if a failure can be had there at all (not if the process itself is gone).
    """

    make: type[Fine]
    then: Literal["stops", "goes on", "restarts"]
    words: str
    inline: bool = True
    """Whether it can be tried in line: it does not end the process that it runs in."""


MOTOR = "ValueError: motor 3 does not answer"
SHAPE = "allowed: numbers of shape (2,)"
PARTS = "allowed: (observation, reward, terminated, truncated, info)"

BAD: dict[str, Bad] = {
    "raises_in_init": Bad(RaisesInInit, "stops", "RuntimeError: no robot on port 7"),
    "raises_in_reset": Bad(RaisesInReset, "stops", "RuntimeError: the joints are not homed"),
    "raises_in_late_reset": Bad(RaisesInLateReset, "stops", "OSError: the arm is held"),
    "raises_in_first_step": Bad(RaisesInFirstStep, "stops", MOTOR),
    "raises_in_step": Bad(RaisesInStep, "stops", MOTOR),
    "raises_key_error": Bad(RaisesKeyError, "stops", "KeyError: 'knee'"),
    "raises_in_numpy": Bad(RaisesInNumpy, "stops", "ValueError: matmul"),
    "raises_many_lines": Bad(RaisesManyLines, "stops", "RuntimeError: line one line two xxx"),
    "raises_unspeakably": Bad(RaisesUnspeakably, "stops", "UnspeakableError"),
    "raises_system_exit": Bad(RaisesSystemExit, "stops", "SystemExit: 0"),
    "raises_broken_pipe": Bad(RaisesBrokenPipe, "stops", "BrokenPipeError"),
    "raises_memory_error": Bad(RaisesMemoryError, "stops", "MemoryError"),
    "raises_eof_error": Bad(RaisesEOFError, "stops", "EOFError: the bus is closed"),
    "raises_generator_exit": Bad(RaisesGeneratorExit, "stops", "GeneratorExit"),
    "raises_recursion_error": Bad(RaisesRecursionError, "stops", "RecursionError"),
    "raises_stop_iteration": Bad(RaisesStopIteration, "stops", "StopIteration"),
    "raises_assertion": Bad(RaisesAssertion, "stops", "AssertionError"),
    "raises_in_close": Bad(RaisesInClose, "goes on", ""),
    "exits": Bad(Exits, "restarts", "status 3", inline=False),
    "exits_well": Bad(ExitsWell, "restarts", "status 0", inline=False),
    "kills_itself": Bad(KillsItself, "restarts", "SIGKILL", inline=False),
    "crashes": Bad(Crashes, "restarts", "SIGSEGV", inline=False),
    "dies_in_reset": Bad(DiesInReset, "restarts", "status 4", inline=False),
    "dies_rarely": Bad(DiesRarely, "goes on", "status 5", inline=False),
    "hangs": Bad(Hangs, "restarts", "step() has not returned"),
    "hangs_deaf": Bad(HangsDeaf, "restarts", "step() has not returned"),
    "hangs_in_reset": Bad(HangsInReset, "restarts", "reset() has not returned"),
    "hangs_in_first_reset": Bad(HangsInFirstReset, "stops", "reset() has not returned"),
    "hangs_in_init": Bad(HangsInInit, "stops", "has not returned"),
    "hangs_in_close": Bad(HangsInClose, "goes on", ""),
    "nan_observation": Bad(NanObservation, "stops", "observation[1] is nan"),
    "infinite_observation": Bad(InfiniteObservation, "stops", "observation[0] is -inf"),
    "infinite_once": Bad(InfiniteOnce, "goes on", "observation[0] is inf"),
    "nan_reward": Bad(NanReward, "stops", "the reward is nan"),
    "infinite_reward": Bad(InfiniteReward, "stops", "the reward is inf"),
    "nan_cost": Bad(NanCost, "stops", "info['cost'] is nan"),
    "nan_in_reset": Bad(NanInReset, "stops", "observation[0] is nan"),
    "infinite_in_first_reset": Bad(InfiniteInFirstReset, "stops", "observation[0] is inf"),
    "nan_in_some_resets": Bad(NanInReset1, "goes on", "observation[0] is nan"),
    "wrong_shape": Bad(WrongShape, "stops", SHAPE),
    "grows": Bad(Grows, "stops", SHAPE),
    "scalar": Bad(Scalar, "stops", SHAPE),
    "object_observation": Bad(ObjectObservation, "stops", SHAPE),
    "ragged_observation": Bad(RaggedObservation, "stops", SHAPE),
    "text_reward": Bad(TextReward, "stops", "the reward is 'much'; allowed: a number"),
    "vector_reward": Bad(VectorReward, "stops", "allowed: a number"),
    "vector_terminated": Bad(VectorTerminated, "stops", "allowed: true or false"),
    "no_info": Bad(NoInfo, "stops", PARTS),
    "no_cost": Bad(NoCost, "stops", "info has no 'cost', but 'costs'"),
    "none_cost": Bad(NoneCost, "stops", "info['cost'] is None; allowed: a number"),
    "four_parts": Bad(FourParts, "stops", PARTS),
    "six_parts": Bad(SixParts, "stops", PARTS),
    "no_parts": Bad(NoParts, "stops", PARTS),
    "reset_alone": Bad(ResetAlone, "stops", "allowed: (observation, info)"),
    "reset_wrong_shape": Bad(ResetWrongShape, "stops", SHAPE),
}


def making(name: str) -> Callable[..., gymnasium.Env]:
    """What makes this one, with its time limit."""

    def make(**options: Any) -> gymnasium.Env:
        del options
        return gymnasium.wrappers.TimeLimit(BAD[name].make(), HORIZON)

    return make


for _name, _bad in {"fine": Bad(Fine, "goes on", ""), **BAD}.items():
    gymnasium.register(
        f"{_name}-v0", entry_point=lambda make=_bad.make, **_: make(), max_episode_steps=HORIZON
    )
