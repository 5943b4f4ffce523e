"""How well observations tell a cost: a small network fitted to some steps and tried on others."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from cmbpo.networks import Mlp

HELD_OUT = 0.25


class Predictability(NamedTuple):
    """A score on steps that were not fitted, and what guessing would score."""

    measure: str
    score: float
    base: float


def predictability(
    obs: Float[np.ndarray, "n obs"],
    act: Float[np.ndarray, "n act"],
    next_obs: Float[np.ndarray, "n obs"],
    cost: Float[np.ndarray, " n"],
    *,
    seed: int,
) -> Predictability:
    """Average precision for costs of two values, R² otherwise.

    The steps held out are the last ones, so that no episode but one is on both sides.
    """
    x = np.concatenate([obs, act, next_obs], axis=1)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-6)
    x = np.clip(np.nan_to_num(x), -10.0, 10.0).astype(np.float32)
    split = int((1.0 - HELD_OUT) * len(x))
    binary = len(np.unique(cost)) <= 2
    y = (cost > cost.min()).astype(np.float32) if binary else cost.astype(np.float32)
    centre, scale = y[:split].mean(), max(float(y[:split].std()), 1e-6)
    key = jax.random.key(seed)
    said = np.asarray(_fitted(x[:split], (y[:split] - centre) / scale, x[split:], key=key))
    held = y[split:]
    if binary:
        return Predictability(
            "average precision", average_precision(said, held), float(held.mean())
        )
    error = np.mean((said * scale + centre - held) ** 2) / max(float(held.var()), 1e-12)
    return Predictability("R²", 1.0 - float(error), 0.0)


def average_precision(score: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """The mean, over the true ones, of the share of true ones among all that score as high."""
    if not true.any():
        return 0.0
    ranked = true[np.argsort(-score, kind="stable")]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    return float(precision[ranked > 0].mean())


@partial(jax.jit, static_argnames=("steps", "batch"))
def _fitted(
    x: Float[Array | np.ndarray, "n in"],
    y: Float[Array | np.ndarray, " n"],
    unseen: Float[Array | np.ndarray, "m in"],
    *,
    key: Array,
    steps: int = 3000,
    batch: int = 256,
) -> Float[Array, " m"]:
    """What least squares on (x, y) says of the rows unseen."""
    key_net, key_rows = jax.random.split(key)
    net = Mlp((x.shape[1], 64, 64, 1), activation=jax.nn.silu, key=key_net)
    adam = optax.adamw(optax.cosine_decay_schedule(2e-3, steps), weight_decay=1e-3)

    def loss(net: Mlp, rows: Array) -> Array:
        said = jax.vmap(net)(jnp.asarray(x)[rows])[:, 0]
        return jnp.mean((said - jnp.asarray(y)[rows]) ** 2)

    def step(carry: PyTree, rows: Array) -> tuple[PyTree, None]:
        net, state = carry
        change, state = adam.update(jax.grad(loss)(net, rows), state, net)
        return (optax.apply_updates(net, change), state), None

    rows = jax.random.randint(key_rows, (steps, batch), 0, x.shape[0])
    start: PyTree = (net, adam.init(eqx.filter(net, eqx.is_array)))
    (net, _), _ = jax.lax.scan(step, start, rows)
    return jax.vmap(net)(jnp.asarray(unseen))[:, 0]
