"""Pictures without a screen: how they are drawn, or what to install."""

import sys

import pytest

from cmbpo.tasks.drawing import painter


def software_rendering() -> bool:
    try:
        painter.backend()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return monkeypatch


def test_the_missing_system_package_is_named(no_screen):
    no_screen.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(RuntimeError, match=r"install the system package libegl1 .* or libosmesa6"):
        painter.backend()


@pytest.mark.parametrize(("library", "how"), [("EGL", "egl"), ("OSMesa", "osmesa")])
def test_what_is_installed_draws(library, how, no_screen):
    no_screen.setattr("ctypes.util.find_library", lambda name: name if name == library else None)
    assert painter.backend() == how


def test_a_screen_or_the_users_choice_comes_first(no_screen):
    no_screen.setenv("DISPLAY", ":0")
    assert painter.backend() == "glfw"
    no_screen.setenv("MUJOCO_GL", "egl")
    assert painter.backend() == "egl"
