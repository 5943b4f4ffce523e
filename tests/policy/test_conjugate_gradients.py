"""The solver against NumPy's, on systems of very different sizes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cmbpo.policy.conjugate_gradients import conjugate_gradients


def test_conjugate_gradients_solve_as_numpy_does(x64):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    F, rhs = root @ root.T + np.eye(12), rng.normal(size=(3, 12)) * [[1.0], [1e3], [1e-3]]
    solve = jax.jit(
        partial(conjugate_gradients, lambda v: jnp.array(F) @ v, iterations=60, tolerance=1e-10)
    )
    found, residual = solve(jnp.array(rhs))
    np.testing.assert_allclose(found, np.linalg.solve(F, rhs.T).T, rtol=1e-6, atol=1e-9)
    assert float(residual) < 1e-9


def test_conjugate_gradients_of_nothing_are_nothing():
    found, residual = conjugate_gradients(lambda v: 2.0 * v, jnp.zeros((2, 3)), iterations=5)
    np.testing.assert_array_equal(found, np.zeros((2, 3)))
    assert float(residual) == 0.0


def test_a_matrix_of_k_eigenvalues_needs_k_iterations(x64):
    """The polynomial that vanishes at k eigenvalues has degree k; one less is not enough."""
    rng = np.random.default_rng(1)
    basis, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    F = basis @ np.diag(np.repeat([1.0, 5.0, 40.0], 4)) @ basis.T
    rhs = rng.normal(size=(2, 12))

    def residual(iterations: int) -> float:
        found, said = conjugate_gradients(
            lambda v: jnp.array(F) @ v, jnp.array(rhs), iterations=iterations, tolerance=1e-12
        )
        truth = np.linalg.norm(rhs - np.asarray(found) @ F, axis=1) / np.linalg.norm(rhs, axis=1)
        np.testing.assert_allclose(said, truth.max(), rtol=1e-5, atol=1e-12)
        return float(said)

    assert residual(3) < 1e-10
    assert residual(2) > 1e-3


def test_a_system_that_is_solved_waits_unchanged_for_the_others(x64):
    """The first right-hand side is an eigenvector, so that its first step is its last."""
    F = np.diag([2.0, 3.0, 7.0, 50.0])
    rhs = np.array([[0.0, 3.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    found, residual = conjugate_gradients(
        lambda v: jnp.array(F) @ v, jnp.array(rhs), iterations=10, tolerance=1e-10
    )
    np.testing.assert_allclose(found, rhs / np.diag(F), rtol=1e-9)
    assert float(residual) < 1e-10
