"""The policy in the real world: steps, episodes, and what they cost."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cmbpo.networks import Policy
from cmbpo.simulator import Simulator

RECENT = 20
"""Episodes that the running means of return and cost are taken over."""


class Steps(eqx.Module):
    """Steps of trajectories side by side, real or imagined: time first, then the copies.

    `next_obs` is the state that the step led to, never one after a reset. `last` marks the final
    row of each trajectory, however it ended; `terminated` only those that ended in a terminal
    state. Rows that are not `valid` are padding, and their trajectory ends before them.
    """

    obs: Float[Array, "*batch obs"]
    act: Float[Array, "*batch act"]
    next_obs: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch cost"]
    terminated: Bool[Array, "*batch"]
    last: Bool[Array, "*batch"]
    valid: Bool[Array, "*batch"]


@dataclass(frozen=True)
class Episode:
    """One real episode from reset to end, noted when `env_steps` steps had been taken in all."""

    env_steps: int
    ret: float
    cost: tuple[float, ...]
    length: int
    terminated: bool


class Ledger:
    """The running episode of each copy, and what all episodes earned and cost so far."""

    def __init__(self, num_envs: int, n_cost: int):
        """Nothing earned or spent yet."""
        self.ret = np.zeros(num_envs)
        self.cost = np.zeros((num_envs, n_cost))
        self.length = np.zeros(num_envs, int)
        self.env_steps = 0
        self.cumulative_cost = np.zeros(n_cost)
        self.recent = np.full((RECENT, 2 + n_cost), np.nan)

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays."""
        return {name: np.array(value) for name, value in vars(self).items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from `state`."""
        for name, value in state.items():
            setattr(self, name, int(value) if name == "env_steps" else np.array(value))

    def means(self) -> dict[str, float | np.ndarray]:
        """Return, costs and length, each the mean over the newest whole episodes."""
        seen = self.recent[~np.isnan(self.recent[:, 0])]
        mean = seen.mean(axis=0) if len(seen) else np.full(self.recent.shape[1], np.nan)
        return {"Metrics/EpRet": mean[0], "Metrics/EpCost": mean[2:], "Metrics/EpLen": mean[1]}

    def note(
        self,
        reward: np.ndarray,
        cost: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        *,
        cut: np.ndarray,
        allotted: np.ndarray,
    ) -> list[Episode]:
        """Add one step of every copy; the episodes that ended with it.

        An episode that was `cut` before its `allotted` steps, by staggering, is no whole episode:
        it is spent, but not reported.
        """
        self.env_steps += len(reward)
        self.cumulative_cost += cost.sum(axis=0)
        self.ret += reward
        self.cost += cost
        self.length += 1
        ended = terminated | truncated
        if not ended.any():
            return []
        whole = np.flatnonzero(terminated | (truncated & (~cut | (self.length >= allotted))))
        episodes = [
            Episode(
                env_steps=self.env_steps,
                ret=float(self.ret[i]),
                cost=tuple(self.cost[i].tolist()),
                length=int(self.length[i]),
                terminated=bool(terminated[i]),
            )
            for i in whole
        ]
        for running in (self.ret, self.cost, self.length):
            running[ended] = 0
        newest = [(e.ret, e.length, *e.cost) for e in episodes]
        if newest:
            self.recent = np.concatenate([self.recent, np.array(newest)])[-RECENT:]
        return episodes


@jax.jit
def _actions(
    policy: Policy, obs: Float[Array, "N obs"], noise: Float[Array, "N act"]
) -> Float[Array, "N act"]:
    pi = jax.vmap(policy)(obs)
    return pi.mean + jnp.exp(policy.log_std)[None] * noise


def collect(
    simulator: Simulator,
    ledger: Ledger,
    policy: Policy,
    *,
    steps: int,
    rows: int,
    key: PRNGKeyArray,
) -> tuple[Steps, list[Episode]]:
    """Let the policy act for `steps` steps in every copy; the record is padded to `rows` rows.

    The policy's draw is what is recorded; the robot receives it clipped to its action space. The
    policy runs on the CPU, where the simulator is, whatever device learns. Where physics blew up,
    the next state is not finite.
    """
    task, num_envs = simulator.task, simulator.num_envs
    n_obs, n_act = simulator.obs.shape[1], task.action_space.shape[0]
    low, high = task.action_space.low, task.action_space.high
    cpu = jax.devices("cpu")[0]
    policy = jax.device_put(policy, cpu)
    # Drawn without JAX, which would compile a program for each new number of steps.
    random = np.random.Generator(np.random.Philox(key=np.asarray(jax.random.key_data(key), "u8")))
    noise = random.standard_normal((steps, num_envs, n_act), np.float32)

    def blank(*shape: int, dtype: type = np.float32) -> np.ndarray:
        return np.zeros((rows, num_envs, *shape), dtype)

    obs, act, next_obs = blank(n_obs), blank(n_act), blank(n_obs)
    reward, cost = blank(), blank(len(task.cost_limits))
    terminated, last, valid = blank(dtype=bool), blank(dtype=bool), blank(dtype=bool)
    episodes: list[Episode] = []
    for t in range(steps):
        obs[t] = simulator.obs
        act[t] = _actions(policy, obs[t], noise[t])
        step = simulator.step(np.clip(act[t], low, high))
        next_obs[t] = step.next_obs
        reward[t], cost[t] = step.reward, step.cost
        terminated[t], last[t] = step.terminated, step.terminated | step.truncated
        episodes += ledger.note(
            step.reward,
            step.cost,
            step.terminated,
            step.truncated,
            cut=step.cut,
            allotted=step.allotted,
        )
    valid[:steps] = True
    last[steps - 1 :] = True
    record = Steps(*map(jnp.asarray, (obs, act, next_obs, reward, cost, terminated, last, valid)))
    return record, episodes
