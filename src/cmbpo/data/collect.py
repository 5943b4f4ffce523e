"""The policy in the real world: steps, episodes, and what they cost."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cmbpo.data.ledger import Episode, Ledger
from cmbpo.data.real_step import Steppable
from cmbpo.networks import Actor
from cmbpo.trajectory import Steps


@jax.jit
def _actions(
    policy: Actor, obs: Float[Array, "N obs"], noise: Float[Array, "N act"]
) -> Float[Array, "N act"]:
    return jax.vmap(policy.act)(obs, noise)


def collect(
    simulator: Steppable,
    ledger: Ledger,
    policy: Actor,
    *,
    steps: int,
    rows: int,
    key: PRNGKeyArray,
) -> tuple[Steps, list[Episode]]:
    """Let the policy act for `steps` steps in every copy; the record is padded to `rows` rows.

    The policy's draw is what is recorded; the robot receives it clipped to [−1, 1]. The
    policy runs on the CPU, where the simulator is, whatever device learns. Where physics blew up,
    the next state is not finite; where a copy was lost, the row is no data.
    """
    task, num_envs = simulator.task, simulator.num_envs
    n_obs, n_act = simulator.obs.shape[1], len(task.act_names)
    cpu = jax.devices("cpu")[0]
    policy = jax.device_put(policy, cpu)
    # Drawn without JAX, which would compile a program for each new number of steps.
    random = np.random.Generator(np.random.Philox(key=np.asarray(jax.random.key_data(key), "u8")))
    noise = random.standard_normal((steps, num_envs, n_act), np.float32)

    # Padded to `rows`: α changes the number of steps, and another shape would compile anew.
    def blank(*shape: int, dtype: type = np.float32) -> np.ndarray:
        return np.zeros((rows, num_envs, *shape), dtype)

    obs, act, next_obs = blank(n_obs), blank(n_act), blank(n_obs)
    reward, cost = blank(), blank(len(task.cost_limits))
    terminated, last, valid = blank(dtype=bool), blank(dtype=bool), blank(dtype=bool)
    episodes: list[Episode] = []
    for t in range(steps):
        obs[t] = simulator.obs
        act[t] = _actions(policy, obs[t], noise[t])
        step = simulator.step(np.clip(act[t], -1.0, 1.0))
        next_obs[t] = step.next_obs
        reward[t], cost[t] = step.reward, step.cost
        valid[t] = ~step.lost
        terminated[t], last[t] = step.terminated, step.terminated | step.truncated
        episodes += ledger.note(
            step.reward,
            step.cost,
            step.terminated,
            step.truncated,
            cut=step.cut,
            allotted=step.allotted,
        )
    # The record is cut here though the episodes run on: the last row bootstraps with V.
    last[steps - 1 :] = True
    record = Steps(*map(jnp.asarray, (obs, act, next_obs, reward, cost, terminated, last, valid)))
    return record, episodes
