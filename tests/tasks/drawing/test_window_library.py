"""MuJoCo is imported without another process."""

import os
import subprocess
import sys

import pytest

from cmbpo.tasks.drawing import window_library


def imported(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {n: x for n, x in os.environ.items() if n not in ("MUJOCO_GL", "PYGLFW_LIBRARY")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment | variables,
        check=True,
    )


def test_mujoco_starts_no_other_python_which_an_interruption_would_leave_behind():
    done = imported(
        "import cmbpo, subprocess\n"
        "started = []\n"
        "class Noted(subprocess.Popen):\n"
        "    def __init__(self, args, **options):\n"
        "        started.append(args)\n"
        "        super().__init__(args, **options)\n"
        "subprocess.Popen = Noted\n"
        "import mujoco, glfw\n"
        "print(started, glfw.get_version()[0])"
    )
    assert done.stdout == "[] 3\n"


@pytest.mark.parametrize("kind", ["x11", "wayland"])
def test_the_library_suits_the_screen_and_the_users_choice_stands(kind, monkeypatch):
    monkeypatch.setenv("XDG_SESSION_TYPE", kind)
    monkeypatch.delenv("PYGLFW_LIBRARY_VARIANT", raising=False)
    monkeypatch.delenv(window_library.VARIABLE, raising=False)
    window_library.name()
    found = os.environ[window_library.VARIABLE]
    assert os.path.exists(found)
    assert f"/{kind}/" in found
    monkeypatch.setenv(window_library.VARIABLE, "mine.so")
    window_library.name()
    assert os.environ[window_library.VARIABLE] == "mine.so"
