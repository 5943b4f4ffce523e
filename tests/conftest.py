"""What every test runs under: JAX on the CPU, rank promotion an error, doubles on request."""

import os

# One thread for each worker, and no asynchronous dispatch: on two cores, batched LAPACK calls in
# an asynchronous program can wait for the very threads that the program holds.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

from pathlib import Path

import jax
import pytest

# What one worker has compiled another need not: half of the suite's time was compilation.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_enable_async_dispatch", False)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Doubles, for tests of a formula against its definition."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def compiled_fast():
    """Programs that are soon compiled, not fast ones: for what is tiny and runs for seconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
