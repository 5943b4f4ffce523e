"""Where the networks run, and where compiled programs are kept."""

import os
from pathlib import Path
from typing import Literal

import jax

_CUDA = "JAX for CUDA comes with the extra `gpu`, as in pip install '.[gpu]'"


def use(kind: Literal["auto", "cpu", "gpu"]) -> str:
    """Choose the device before anything is computed; keep compiled programs for later runs."""
    # A first update compiles for half a minute, six seconds with this cache.
    if (caches := _caches()) is not None:
        jax.config.update("jax_compilation_cache_dir", str(caches / "cmbpo"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    # On few cores, batched LAPACK calls in an asynchronous program can wait for the very threads
    # that the program holds; each phase is waited for anyway.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if kind == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        backend = jax.default_backend()
    except (RuntimeError, AssertionError):
        raise ValueError(
            f"JAX_PLATFORMS is {os.environ.get('JAX_PLATFORMS')!r}, of which JAX finds nothing;"
            f" allowed: cpu, or leave it out. {_CUDA}"
        ) from None
    if kind == "gpu" and backend != "gpu":
        raise ValueError(f"device is 'gpu' but JAX finds none; allowed: cpu (or auto). {_CUDA}")
    return backend


def _caches() -> Path | None:
    """Where a user's caches are; None for a user without a home, as in some containers."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None
