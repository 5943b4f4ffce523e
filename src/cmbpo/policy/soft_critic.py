"""The critics of soft actor-critic: what reward and every cost still amount to after an action.

A cost is a reward that is negative, so that reward and costs share their code: signal 0 is the
reward, signal i is −cᵢ, and "worse" is "less" for all of them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cmbpo.networks import Mlp

TRACKING = 0.005
"""τ: how far the slow copy of the critics moves towards them in a step."""


class SoftCritics(eqx.Module):
    """Q_k(s, a): two networks for each signal, with layer norm.

    The norm bounds what they say of actions that nobody took; without it they diverge where each
    transition is learned from many times (Hiraoka et al. 2022, Nauman et al. 2024).
    """

    nets: Mlp

    def __init__(
        self, n_obs: int, n_act: int, n_signal: int, *, hidden: tuple[int, ...], key: PRNGKeyArray
    ):
        """Untrained networks, independent of each other, with values near zero."""
        widths = (n_obs + n_act, *hidden, 1)

        def net(k: PRNGKeyArray) -> Mlp:
            return Mlp(widths, activation=jax.nn.relu, last_scale=0.01, layer_norm=True, key=k)

        self.nets = jax.vmap(jax.vmap(net))(jax.random.split(key, (n_signal, 2)))

    def __call__(
        self, obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, "signal 2"]:
        """What each network says; `obs` in standard units."""
        x = jnp.concatenate([obs, act])
        return jax.vmap(jax.vmap(lambda net: net(x)[0]))(self.nets)


def pessimistic(values: Float[Array, "*batch signal 2"]) -> Float[Array, "*batch signal"]:
    """The worse of two: the policy looks for errors in its favour (clipped double Q)."""
    return values.min(axis=-1)


def soft_target(
    signal: Float[Array, " signal"],
    next_value: Float[Array, " signal"],
    next_log_prob: Float[Array, ""],
    terminated: Bool[Array, ""],
    *,
    discount: Float[Array, " signal"],
    temperature: Float[Array, ""],
    terminal_value: Float[Array, " signal"],
) -> Float[Array, " signal"]:
    """What Q_k is fitted to after one transition; a' is drawn from the present policy.

        y₀ = r   + γ₀ (Q₀(s', a') − α log π(a'|s'))   the reward, with the entropy to come
        yᵢ = −cᵢ + γᵢ Qᵢ(s', a')                      the costs

    In a terminal state the bracket, and Qᵢ, are `terminal_value`. An episode that is out of time
    ends in a state like any other.
    """
    entropy = jnp.zeros_like(signal).at[0].set(-temperature * next_log_prob)
    return signal + discount * jnp.where(terminated, terminal_value, next_value + entropy)


def after_the_end(
    cost_rate: Float[Array, " cost"], *, cost_discount: float
) -> Float[Array, " signal"]:
    """Value of a terminal state: no more reward, and costs as ever, −c̄/(1 − γ_c).

    A limit is one per step of all episodes together: after a fall the next episode begins, and an
    end must not look cheap for being one.
    """
    return jnp.concatenate([jnp.zeros(1), -cost_rate / (1.0 - cost_discount)])


def track(slow: SoftCritics, critics: SoftCritics) -> SoftCritics:
    """The slow copy one step nearer to the critics: Q' ← Q' + τ (Q − Q')."""
    return jax.tree.map(lambda s, c: s + TRACKING * (c - s), slow, critics)
