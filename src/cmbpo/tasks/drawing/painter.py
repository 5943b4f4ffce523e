"""Pictures of a task, also on machines without a screen."""

import ctypes.util
import os
import sys
from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
from jaxtyping import Float

from cmbpo.tasks.simulated import SimulatedTask

_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}
_ADVICE = (
    "for pictures without a screen install the system package libegl1 (apt-get install libegl1"
    " libgl1) or libosmesa6, and leave MUJOCO_GL unset"
)


class Painter:
    """Draws states of a task through a camera that follows the robot; opens nothing before that."""

    def __init__(self, task: SimulatedTask, width: int, height: int):
        """Remember what to draw and how large."""
        self._task = task
        self._size = (width, height)
        self._look_at = np.zeros(3)
        self._canvas: tuple[MujocoRenderer, mujoco.MjData] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy opens a canvas of its own."""
        return type(self), (self._task, *self._size)

    def paint(self, state: Float[np.ndarray, " state"], mode: str) -> Any:
        """Draw a state: as an array of pixels with `rgb_array`, in a window with `human`."""
        model = self._task.drawing
        first = self._canvas is None
        if self._canvas is None:
            data = mujoco.MjData(model)
            self._canvas = self._open(data, mode), data
        renderer, data = self._canvas
        place(model, data, state)
        self._look_at[:2] = data.body(self._task.camera.body).xpos[:2]
        self._look_at[2] = self._task.camera.height
        if renderer.viewer is not None:  # the first picture opens it, with a copy of `_look_at`
            renderer.viewer.cam.lookat[:] = self._look_at
        try:
            return renderer.render(mode)
        except Exception as error:
            if not first:
                raise
            # each library of OpenGL fails in its own way where a driver or a screen is missing
            how = os.environ.get("MUJOCO_GL", "glfw")
            raise RuntimeError(f"OpenGL cannot draw here by {how} ({error}); {_ADVICE}") from error

    def close(self) -> None:
        """Free the context."""
        if self._canvas is not None:
            self._canvas[0].close()
            self._canvas = None

    def _open(self, data: mujoco.MjData, mode: str) -> MujocoRenderer:
        if mode == "rgb_array":
            os.environ.setdefault("MUJOCO_GL", backend())
        camera = self._task.camera
        view = {
            "distance": camera.distance,
            "elevation": camera.elevation,
            "azimuth": camera.azimuth,
            "lookat": self._look_at,
        }
        width, height = self._size
        buffer = self._task.drawing.vis.global_
        buffer.offwidth, buffer.offheight = (
            max(buffer.offwidth, width),
            max(buffer.offheight, height),
        )
        return MujocoRenderer(
            self._task.drawing,
            data,
            default_cam_config=view,
            width=width,
            height=height,
            camera_id=-1,
        )


def place(model: mujoco.MjModel, data: mujoco.MjData, state: Float[np.ndarray, " state"]) -> None:
    """Put the robot where a state [time, qpos, qvel, …] has it."""
    data.time = state[0]
    data.qpos[:] = state[1 : 1 + model.nq]
    data.qvel[:] = state[1 + model.nq : 1 + model.nq + model.nv]
    mujoco.mj_forward(model, data)


def has_screen() -> bool:
    """Whether a window can be opened here, as far as the system says."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(screen) or not sys.platform.startswith("linux")


def backend() -> str:
    """How OpenGL draws here, as MuJoCo names it; an error says what to install if it cannot."""
    if "MUJOCO_GL" in os.environ:
        return os.environ["MUJOCO_GL"]
    if has_screen():
        return "glfw"
    for name, library in _LIBRARIES.items():
        if ctypes.util.find_library(library):
            return name
    raise RuntimeError(f"there is no screen, and neither EGL nor OSMesa is installed; {_ADVICE}")
