"""Many copies of a task stepped at once; the one place where NumPy meets the robots."""

import os

import numpy as np
from jaxtyping import Float

from cmbpo.data.real_step import RealStep
from cmbpo.tasks.task import Mishaps, Task, checked


class Simulator:
    """N copies of a task, each reset when its episode ends.

    What steps them is the task's choice (`Task.copies`): threads of MuJoCo, or copies of the user's
    environment. Copy i draws from its own random generator, seeded with (seed, i): the same seed
    and actions give the same trajectories to the bit for any number of threads and of other copies.
    Of a task of this package, copy 0 does what `gymnasium.make(task.env_id)` does after
    `reset(seed=seed)`.
    """

    def __init__(
        self,
        task: Task,
        num_envs: int,
        *,
        seed: int,
        threads: int | None = None,
        stagger: bool = False,
        episode_steps: int | None = None,
    ):
        """Start all copies; with `stagger`, first episodes end at 1/N, 2/N, … of their length.

        `episode_steps`, which may be changed later, is that of the episodes that begin from then
        on, rounded down: at most, and unless given, the horizon.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; allowed: at least 1")
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}; allowed: at least 1, or None for one a core")
        if seed < 0:
            raise ValueError(f"seed is {seed}; allowed: 0 or more")
        self.task = task
        self.num_envs = num_envs
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._copies = task.copies(num_envs, threads=threads or cores or 1)
        self._random = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, i])))
            for i in range(num_envs)
        ]
        self.episode_steps = float(min(episode_steps or task.horizon, task.horizon))
        self._allotted = np.full(num_envs, int(self.episode_steps))
        self._left = self._allotted.copy()
        if stagger:
            self._left = -(-self._allotted * np.arange(1, num_envs + 1) // num_envs)
        self._state, self.obs = self._copies.begin(np.arange(num_envs), self._random)

    def step(self, act: Float[np.ndarray, "N act"]) -> RealStep:
        """Advance all copies; reset those whose episode ended."""
        act = checked(act, (self.num_envs, len(self.task.act_names)))
        out = self._copies.step(self._state, self.obs, act)
        self._left -= 1
        over = self._left <= 0
        self._state, self.obs = out.state, out.obs
        allotted = self._allotted.copy()
        ended = np.flatnonzero(out.truncated | over | out.terminated)
        if len(ended):
            self._reset(ended)
        return RealStep(
            next_obs=out.obs,
            reward=out.reward,
            cost=out.cost,
            terminated=out.terminated,
            truncated=out.truncated | over,
            cut=over & ~out.truncated | out.lost,
            allotted=allotted,
            obs=self.obs,
            lost=out.lost,
        )

    def _reset(self, rows: np.ndarray) -> None:
        state, obs = self._copies.begin(rows, [self._random[i] for i in rows])
        self._state[rows] = state
        self._left[rows] = self._allotted[rows] = int(self.episode_steps)
        # The step just returned holds the old array: its `next_obs` is never one after a reset.
        self.obs = self.obs.copy()
        self.obs[rows] = obs

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the future of the copies depends on, as plain arrays.

        Of copies that are not `restorable`, the physics is not among it.
        """
        return {
            "physics": self._state.copy(),
            "obs": self.obs.copy(),
            "steps_left": self._left.copy(),
            "allotted": self._allotted.copy(),
            "episode_steps": np.array(self.episode_steps),
            "random": np.stack([_pack(random) for random in self._random]),
            "blow_ups": np.array(self.mishaps.not_finite),
            "restarts": np.array(self.mishaps.restarts),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue, to the bit, from what `state` returned.

        Where they are not `restorable`, every copy begins a new episode instead, with the seeds
        that were next; it ends when the one that is lost would have.
        """
        for name, mine in self.state().items():
            if name not in state or np.shape(state[name]) != mine.shape:
                given = np.shape(state[name]) if name in state else "missing"
                raise ValueError(
                    f"simulator state {name!r} is {given}; allowed: shape {mine.shape}"
                    f" ({self.num_envs} copies of {self.task.name})"
                )
        self._state = np.array(state["physics"], np.float64)
        self.obs = np.array(state["obs"], np.float64)
        self._left = np.array(state["steps_left"], np.int64)
        self._allotted = np.array(state["allotted"], np.int64)
        self.episode_steps = float(state["episode_steps"])
        self.mishaps.not_finite = int(state["blow_ups"])
        self.mishaps.restarts = int(state["restarts"])
        for random, packed in zip(self._random, state["random"], strict=True):
            random.bit_generator.state = _unpack(packed)
        if not self.restorable:
            self._state, self.obs = self._copies.begin(np.arange(self.num_envs), self._random)

    @property
    def mishaps(self) -> Mishaps:
        """What went wrong in the copies so far."""
        return self._copies.mishaps

    @property
    def restorable(self) -> bool:
        """Whether `restore` continues the episodes that were running."""
        return self._copies.restorable

    def close(self) -> None:
        """Let go of the processes that the copies run in, if any."""
        self._copies.close()


_LOW = 2**64 - 1


def _pack(random: np.random.Generator) -> np.ndarray:
    """The state of a PCG64 generator as six 64-bit words."""
    held = random.bit_generator.state
    state, inc = held["state"]["state"], held["state"]["inc"]
    words = [state >> 64, state & _LOW, inc >> 64, inc & _LOW, held["has_uint32"], held["uinteger"]]
    return np.array(words, np.uint64)


def _unpack(packed: np.ndarray) -> dict:
    words = [int(word) for word in packed]
    return {
        "bit_generator": "PCG64",
        "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
        "has_uint32": words[4],
        "uinteger": words[5],
    }
