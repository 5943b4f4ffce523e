"""A policy at work in MuJoCo's own window, in real time."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import mujoco.viewer
import numpy as np

from cmbpo.evaluation.score import Score
from cmbpo.tasks.drawing.painter import place
from cmbpo.tasks.simulated import Camera, SimulatedTask


def show(
    policy: Callable[[np.ndarray], np.ndarray],
    task: SimulatedTask,
    *,
    seed: int,
    cost_limits: Sequence[float],
) -> list[Score]:
    """Run episode after episode until the window is closed, each with the next seed."""
    model = task.drawing
    data = mujoco.MjData(model)
    env = task.environment()
    scores = []
    with mujoco.viewer.launch_passive(
        model, data, show_left_ui=False, show_right_ui=False
    ) as window:
        with window.lock():
            follow(window.cam, model, task.camera)
        while window.is_running():
            scores.append(Score(task.cost_names, cost_limits, task.horizon))
            _episode(policy, env, window, scores[-1], seed=seed, dt=task.dt)
            seed += 1
    env.close()
    return scores


def follow(cam: mujoco.MjvCamera, model: mujoco.MjModel, camera: Camera) -> None:
    """Let a camera of MuJoCo's track the robot; the user may still turn and zoom."""
    cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    cam.trackbodyid = model.body(camera.body).id
    cam.distance, cam.elevation, cam.azimuth = camera.distance, camera.elevation, camera.azimuth


def _episode(
    policy: Callable[[np.ndarray], np.ndarray],
    env: Any,
    window: Any,
    score: Score,
    *,
    seed: int,
    dt: float,
) -> None:
    obs, _ = env.reset(seed=seed)
    next_picture = time.monotonic()
    ended = False
    while window.is_running() and not ended:
        with window.lock():
            place(window.m, window.d, env.unwrapped.state)
        mark = "COST" if score.costs_now else ""
        window.set_texts((None, None, "\n".join([*score.words(), mark]), None))
        window.sync()
        obs, reward, terminated, truncated, info = env.step(policy(obs))
        score.note(float(reward), info["cost"])
        ended = terminated or truncated
        next_picture += dt
        time.sleep(max(next_picture - time.monotonic(), 0.0))
