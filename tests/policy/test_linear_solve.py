"""Elimination against NumPy's solver, alone and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.policy.linear_solve import solve


def positive_definite(random: np.random.Generator, n: int) -> np.ndarray:
    root = random.normal(size=(n, n))
    return root @ root.T + 0.1 * np.eye(n)


def discounted_chain(random: np.random.Generator, n: int) -> np.ndarray:
    chain = random.dirichlet(np.ones(n), size=n)
    return np.eye(n) - 0.99 * chain


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("matrix", [positive_definite, discounted_chain])
@pytest.mark.parametrize("n", [1, 3, 12])
def test_it_agrees_with_numpy(matrix, n):
    random = np.random.default_rng(n)
    A = np.stack([matrix(random, n) for _ in range(50)])
    rhs = random.normal(size=(50, n, 2))
    found = jax.jit(jax.vmap(solve))(jnp.asarray(A), jnp.asarray(rhs))
    np.testing.assert_allclose(found, np.linalg.solve(A, rhs), rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_its_gradient_is_the_adjoint_solve():
    random = np.random.default_rng(0)
    A, b, w = discounted_chain(random, 5), random.normal(size=(5, 1)), random.normal(size=5)
    gradient = jax.grad(lambda b: jnp.asarray(w) @ solve(jnp.asarray(A), b)[:, 0])(jnp.asarray(b))
    np.testing.assert_allclose(gradient[:, 0], np.linalg.solve(A.T, w), rtol=1e-8)
