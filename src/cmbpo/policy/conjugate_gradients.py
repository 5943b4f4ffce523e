"""F⁻¹ times a few vectors, where F is only known as a product."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class _Solving(NamedTuple):
    """Where the systems are: solutions, residuals, their squared lengths, and next directions."""

    iteration: Int[Array, ""]
    x: Float[Array, "k n"]
    residual: Float[Array, "k n"]
    direction: Float[Array, "k n"]
    squared: Float[Array, " k"]


def conjugate_gradients(
    product: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    rhs: Float[Array, "k n"],
    *,
    iterations: int,
    tolerance: float = 1e-5,
) -> tuple[Float[Array, "k n"], Float[Array, ""]]:
    """X with F xᵢ = rhsᵢ for a positive definite F given as a product; largest relative residual.

    The systems advance together, so that each pass over the states serves all; they end when all
    residuals are below `tolerance`, relative to their right-hand sides.
    """
    products = jax.vmap(product)
    size = jnp.maximum(jnp.sum(rhs**2, axis=1), jnp.finfo(rhs.dtype).tiny)

    def unfinished(now: _Solving) -> Bool[Array, ""]:
        return (now.iteration < iterations) & jnp.any(now.squared > tolerance**2 * size)

    def step(now: _Solving) -> _Solving:
        fp = products(now.direction)
        # A system that is solved stands still: another step would divide zero by zero.
        open_ = now.squared > tolerance**2 * size
        curvature = jnp.where(open_, jnp.sum(now.direction * fp, axis=1), 1.0)
        a = jnp.where(open_, now.squared / curvature, 0.0)[:, None]
        residual = now.residual - a * fp
        squared = jnp.sum(residual**2, axis=1)
        b = (squared / jnp.where(open_, now.squared, 1.0))[:, None]
        return _Solving(
            iteration=now.iteration + 1,
            x=now.x + a * now.direction,
            residual=residual,
            direction=residual + b * now.direction,
            squared=squared,
        )

    start = _Solving(
        iteration=jnp.zeros((), jnp.int32),
        x=jnp.zeros_like(rhs),
        residual=rhs,
        direction=rhs,
        squared=jnp.sum(rhs**2, axis=1),
    )
    end = jax.lax.while_loop(unfinished, step, start)
    return end.x, jnp.sqrt(jnp.max(end.squared / size))
