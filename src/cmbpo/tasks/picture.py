"""Pictures of a task, also on machines without a screen."""

import ctypes.util
import os
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
from jaxtyping import Float

from cmbpo.tasks.task import Task

_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


class Painter:
    """Draws states of a task through a camera that follows the robot; opens no context before that."""

    def __init__(self, task: Task, width: int, height: int):
        """Remember what to draw and how large."""
        self._task = task
        self._size = (width, height)
        self._look_at = np.zeros(3)
        self._renderer: MujocoRenderer | None = None
        self._data: mujoco.MjData | None = None

    def paint(self, state: Float[np.ndarray, " state"], mode: str) -> Any:
        """Draw a state: as an array of pixels with `rgb_array`, in a window with `human`."""
        model = self._task.drawing
        if self._renderer is None or self._data is None:
            self._data = mujoco.MjData(model)
            self._renderer = self._open(self._data, mode)
        self._data.time = state[0]
        self._data.qpos[:] = state[1 : 1 + model.nq]
        self._data.qvel[:] = state[1 + model.nq : 1 + model.nq + model.nv]
        mujoco.mj_forward(model, self._data)
        self._look_at[:2] = self._data.body(self._task.camera["body"]).xpos[:2]
        self._look_at[2] = self._task.camera["height"]
        return self._renderer.render(mode)

    def close(self) -> None:
        """Free the context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _open(self, data: mujoco.MjData, mode: str) -> MujocoRenderer:
        if mode == "rgb_array" and "MUJOCO_GL" not in os.environ:
            backend = _backend()
            if backend is not None:
                os.environ["MUJOCO_GL"] = backend
        camera = self._task.camera
        view = {name: camera[name] for name in ("distance", "elevation", "azimuth")}
        width, height = self._size
        buffer = self._task.drawing.vis.global_
        buffer.offwidth, buffer.offheight = max(buffer.offwidth, width), max(buffer.offheight, height)
        return MujocoRenderer(
            self._task.drawing,
            data,
            default_cam_config=view | {"lookat": self._look_at},
            width=width,
            height=height,
            camera_id=-1,
        )


def _backend() -> str | None:
    """How to draw without a screen; None where there is one."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if screen or not sys.platform.startswith("linux"):
        return None
    for backend, library in _LIBRARIES.items():
        if ctypes.util.find_library(library):
            return backend
    raise RuntimeError(
        "pictures need software rendering, and neither EGL nor OSMesa is installed; "
        "install the system package libegl1 (apt-get install libegl1) or libosmesa6"
    )


def render(task: Task, path: Path, *, width: int = 960, height: int = 540, steps: int = 30) -> None:
    """Write a picture of the task, some steps after a start at rest, to a PNG file."""
    import imageio.v3

    from cmbpo.tasks.environment import TaskEnv

    env = TaskEnv(task, render_mode="rgb_array", width=width, height=height)
    try:
        env.reset(seed=0)
        for _ in range(steps):
            env.step(np.zeros(len(task.act_names)))
        imageio.v3.imwrite(path, env.render(), extension=".png")
    finally:
        env.close()
