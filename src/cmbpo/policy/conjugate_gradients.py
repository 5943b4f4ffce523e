"""F⁻¹ times a few vectors, where F is only known as a product."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


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

    def unfinished(carry):
        i, _, _, _, rr = carry
        return (i < iterations) & jnp.any(rr > tolerance**2 * size)

    def step(carry):
        i, x, residual, p, rr = carry
        fp = products(p)
        open_ = rr > tolerance**2 * size
        a = jnp.where(open_, rr / jnp.where(open_, jnp.sum(p * fp, axis=1), 1.0), 0.0)[:, None]
        x = x + a * p
        residual = residual - a * fp
        rr_new = jnp.sum(residual**2, axis=1)
        p = residual + (rr_new / jnp.where(open_, rr, 1.0))[:, None] * p
        return i + 1, x, residual, p, rr_new

    start = (0, jnp.zeros_like(rhs), rhs, rhs, jnp.sum(rhs**2, axis=1))
    _, x, _, _, rr = jax.lax.while_loop(unfinished, step, start)
    return x, jnp.sqrt(jnp.max(rr / size))
