"""What every test runs under: JAX on the CPU, rank promotion an error, doubles on request."""

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Doubles, for tests of a formula against its definition."""
    with jax.enable_x64(True):
        yield
