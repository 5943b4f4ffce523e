"""Gymnasium knows the tasks as soon as both are imported, in whichever order."""

import subprocess
import sys

import pytest

from cmbpo.tasks import names, registration


def test_registering_imports_neither_mujoco_nor_jax():
    code = (
        "import sys, gymnasium, cmbpo\n"
        "assert 'cmbpo/AntSafe-v0' in gymnasium.registry\n"
        "assert not {'mujoco', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("order", ["cmbpo, gymnasium", "gymnasium, cmbpo", "cmbpo.cli, gymnasium"])
def test_every_task_can_be_made_whatever_was_imported_first(order):
    code = (
        f"import {order}\n"
        "made = [gymnasium.make(n).spec for n in gymnasium.registry if n.startswith('cmbpo/')]\n"
        "print(*(spec.id for spec in made), {spec.max_episode_steps for spec in made})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [*(f"cmbpo/{name}" for name in names()), "{1000}"]


def test_the_package_alone_imports_neither_gymnasium_nor_numpy():
    code = (
        "import sys, cmbpo, cmbpo.tasks\n"
        "print({'gymnasium', 'mujoco', 'jax', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_registering_twice_changes_nothing():
    import gymnasium

    before = dict(gymnasium.registry)
    registration.register()
    assert gymnasium.registry == before
