"""MuJoCo's window shows episode after episode until it is closed; its camera tracks the robot."""

from contextlib import nullcontext
from typing import Any

import mujoco
import mujoco.viewer
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.evaluation import viewer
from tests.evaluation.test_evaluate import Cliff


class Window:
    """What `launch_passive` gives, without a screen; closed after so many pictures."""

    def __init__(self, m: mujoco.MjModel, d: mujoco.MjData, pictures: int):
        self.m, self.d, self.left = m, d, pictures
        self.cam = mujoco.MjvCamera()
        self.positions: list[np.ndarray] = []
        self.texts: list[str] = []

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def lock(self) -> Any:
        return nullcontext()

    def is_running(self) -> bool:
        return len(self.positions) < self.left

    def set_texts(self, texts: tuple) -> None:
        self.texts.append(texts[2])

    def sync(self) -> None:
        self.positions.append(self.d.qpos.copy())


@pytest.fixture
def opened(monkeypatch):
    windows = []

    def launch(model, data, **_):
        windows.append(Window(model, data, pictures=100))
        return windows[-1]

    monkeypatch.setattr(mujoco.viewer, "launch_passive", launch)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return windows


def test_episodes_follow_each_other_until_the_window_is_closed(opened):
    scores = viewer.show(lambda obs: np.array([1.0, 0.0]), Cliff(), seed=0, cost_limits=(10.0,))
    (window,) = opened
    assert len(window.positions) == 100
    assert len(scores) > 5, "each ends where the point has gone too far"
    assert sum(score.steps for score in scores) == 100
    assert len(np.unique(window.positions, axis=0)) > 50, "it moves"
    assert window.texts[0].startswith("return 0\ncost 0 of 10")


@pytest.mark.parametrize("name", cmbpo.tasks.names())
def test_the_camera_tracks_the_robot(name):
    task = cmbpo.tasks.get(name)
    model, cam = task.drawing, mujoco.MjvCamera()
    viewer.follow(cam, model, task.camera)
    data, scene = mujoco.MjData(model), mujoco.MjvScene(model, 1000)
    data.qpos[0] = 20.0
    for _ in range(100):
        mujoco.mj_forward(model, data)
        mujoco.mjv_updateScene(
            model, data, mujoco.MjvOption(), None, cam, mujoco.mjtCatBit.mjCAT_ALL, scene
        )
    assert cam.lookat[0] == pytest.approx(20.0, abs=1.0)
