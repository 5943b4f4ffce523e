"""Where the networks run, and where compiled programs are kept."""

import os
from pathlib import Path
from typing import Literal

import jax


def use(kind: Literal["auto", "cpu", "gpu"]) -> str:
    """Choose the device before anything is computed; keep compiled programs for later runs."""
    # A first update compiles for half a minute, six seconds with this cache.
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cmbpo"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    # On few cores, batched LAPACK calls in an asynchronous program can wait for the very threads
    # that the program holds; each phase is waited for anyway.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if kind == "cpu":
        jax.config.update("jax_platforms", "cpu")
    backend = jax.default_backend()
    if kind == "gpu" and backend != "gpu":
        raise ValueError(
            "device is 'gpu' but JAX finds none; allowed: cpu (or auto). JAX for CUDA comes with"
            " the extra `gpu`, as in pip install '.[gpu]'"
        )
    return backend
