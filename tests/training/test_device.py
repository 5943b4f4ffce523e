"""The device is chosen, or its absence said, before anything is computed."""

import json
import os
import pwd
import subprocess
import sys

import jax
import pytest

from cmbpo.training import device


def test_a_gpu_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with pytest.raises(
        ValueError, match=r"device is 'gpu' but JAX finds none; allowed: cpu .*\[gpu\]"
    ):
        device.use("gpu")


def test_the_backend_that_is_found_is_told(monkeypatch):
    assert device.use("cpu") == "cpu"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert device.use("auto") == device.use("gpu") == "gpu"


def test_compiled_programs_are_kept_where_caches_are(tmp_path):
    """In a process of its own: the folder is chosen once."""
    code = (
        "import json, jax; from cmbpo.training import device; device.use('cpu')\n"
        "c = jax.config\n"
        "print(json.dumps([c.jax_compilation_cache_dir, c.jax_platforms]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"XDG_CACHE_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
    )
    assert json.loads(done.stdout) == [str(tmp_path / "cmbpo"), "cpu"]


def test_a_program_from_the_cache_is_taken_without_a_word(tmp_path):
    code = (
        "import cmbpo, jax, jax.numpy as jnp; from cmbpo.training import device\n"
        "device.use('cpu')\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "print(jax.jit(lambda x: jnp.linalg.inv(x + jnp.eye(2)))(jnp.zeros((2, 2))).sum())"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )
        assert (done.stdout, done.stderr) == ("2.0\n", "")
    assert list((tmp_path / "cmbpo").iterdir())


def test_a_user_without_a_home_has_no_caches(monkeypatch):
    """As in containers: no HOME, and no entry among the system's users."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    assert device.use("cpu") == "cpu"


def test_a_platform_that_is_none_is_named_with_its_variable(monkeypatch):
    def nothing() -> str:
        raise RuntimeError("Unable to initialize backend")

    monkeypatch.setenv("JAX_PLATFORMS", "nonsense")
    monkeypatch.setattr(jax, "default_backend", nothing)
    with pytest.raises(ValueError, match=r"JAX_PLATFORMS is 'nonsense'.*allowed: cpu.*\[gpu\]"):
        device.use("auto")
