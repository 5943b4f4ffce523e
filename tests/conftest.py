"""What every test runs under: JAX on the CPU, rank promotion an error, doubles on request."""

import os
from pathlib import Path

# One thread for each worker, and no asynchronous dispatch: on two cores, batched LAPACK calls in
# an asynchronous program can wait for the very threads that the program holds.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

# What one worker has compiled another need not, nor the commands that tests start: half of the
# suite's time was compilation.
CACHE = Path(__file__).parents[1] / ".jax_cache"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_enable_async_dispatch", False)
jax.config.update("jax_numpy_rank_promotion", "raise")


SOON = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
"""Of XLA's ways to make a program of the CPU those that take it least time."""


def soon_compiled(config: pytest.Config) -> bool:
    """Whether programs are soon compiled, not fast: most run once, for milliseconds.

    Slow tests, and the commands that tests start, compile as users do; with
    `-m "slow or not slow"` every test does.
    """
    return config.option.markexpr in ("", "not slow")


def pytest_configure(config: pytest.Config) -> None:
    if not soon_compiled(config):
        return
    # the key of a kept program does not tell the flags, so these have a folder of their own
    jax.config.update("jax_compilation_cache_dir", str(CACHE / "soon"))
    given = os.environ["XLA_FLAGS"]
    os.environ["XLA_FLAGS"] = f"{given} {SOON}"
    jax.jit(lambda: 0)()  # XLA reads its flags once, here
    # commands have the flags of users
    os.environ["XLA_FLAGS"] = given
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64():
    """Doubles, for tests of a formula against its definition."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def compiled_fast(pytestconfig):
    """Programs that are soon compiled in slow tests, too: for what is tiny and runs for seconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", soon_compiled(pytestconfig))


@pytest.fixture
def optimised(pytestconfig):
    """Programs that are fast, not soon compiled: for what is run for seconds."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", soon_compiled(pytestconfig))
