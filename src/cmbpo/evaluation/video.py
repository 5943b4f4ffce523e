"""A film of one episode, through the task's Gymnasium environment."""

import contextlib
import itertools
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import gymnasium
import imageio_ffmpeg
import numpy as np

from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.runs.errors import RunError
from cmbpo.tasks.task import Task

GIF_RATE = 20
"""Most frames a second of a .gif."""
KINDS = (".mp4", ".gif")


def check_name(path: Path) -> None:
    """Refuse a file of a kind that cannot be written."""
    if path.suffix not in KINDS:
        raise RunError(
            f"the video {str(path)!r} has the suffix {path.suffix!r}; allowed: {' or '.join(KINDS)}"
        )


def film(
    policy: Callable[[np.ndarray], np.ndarray],
    task: Task,
    path: Path,
    *,
    seed: int,
    watch: Callable[[float], None] = lambda share: None,
) -> Path:
    """Film one episode, with `policy` from observation to action, as .mp4 or .gif.

    `watch` is told which share of its pictures is drawn.
    """
    check_name(path)
    rate = 1.0 / task.dt
    every = max(round(rate / GIF_RATE), 1) if path.suffix == ".gif" else 1
    count = -(-task.horizon // every)
    frames = _told(_frames(policy, task, every=every, seed=seed), count, watch)
    # Its suffix tells the encoder the kind; only the whole film takes the name that was asked for.
    unfinished = path.absolute().with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _encode(frames, unfinished, rate / every)
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"could not write {path}: {error.strerror or error}") from error
    finally:
        frames.close()
        unfinished.unlink(missing_ok=True)
    return path


def _told(
    frames: Generator[np.ndarray], count: int, watch: Callable[[float], None]
) -> Generator[np.ndarray]:
    """The pictures; each tells its share of so many, or of fewer, if the episode ends before."""
    with contextlib.closing(frames):
        for number, frame in enumerate(frames):
            watch(number / count)
            yield frame
    watch(1.0)


def _encode(frames: Iterator[np.ndarray], path: Path, rate: float) -> None:
    first = next(frames)
    command = _command(path, first.shape, rate)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as encoder:
        with contextlib.suppress(BrokenPipeError):  # then the encoder says below what was wrong
            assert encoder.stdin is not None
            for frame in itertools.chain([first], frames):
                encoder.stdin.write(frame.tobytes())
        _, complaint = encoder.communicate()
    if encoder.returncode:
        said = complaint.decode(errors="replace").strip().splitlines() or ["the encoder failed"]
        raise OSError(said[-1])


def _command(path: Path, shape: tuple[int, ...], rate: float) -> list[str]:
    height, width, _ = shape
    pixels = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:g}"]
    coded = ["-loop", "0"] if path.suffix == ".gif" else ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
    quiet = ["-y", "-loglevel", "error"]
    return [imageio_ffmpeg.get_ffmpeg_exe(), *quiet, *pixels, "-i", "-", *coded, str(path)]


def _frames(
    policy: Callable[[np.ndarray], np.ndarray], task: Task, *, every: int, seed: int
) -> Generator[np.ndarray]:
    env = _stage(task)
    try:
        obs, _ = env.reset(seed=seed)
        for time in range(task.horizon):
            if time % every == 0:
                yield _picture(env)
            obs, _, terminated, truncated, _ = env.step(policy(obs))
            if terminated or truncated:
                return
    finally:
        env.close()


def _stage(task: Task) -> gymnasium.Env:
    try:
        return task.environment(render_mode="rgb_array")
    except EnvironmentFailure as failure:
        error = failure.__cause__
        if not isinstance(error, TypeError):
            raise
        raise RunError(
            f"the video cannot be drawn: what makes {task.name} takes no render_mode ({error})"
        ) from error


def _picture(env: gymnasium.Env) -> np.ndarray:
    try:
        return np.asarray(env.render(), np.uint8)
    except Exception as error:  # each graphics library fails in its own way
        modes = env.metadata.get("render_modes") or []
        if "rgb_array" not in modes:
            raise RunError(
                f"the video cannot be drawn: {env.unwrapped} has no render mode 'rgb_array' (it"
                f" has: {', '.join(map(repr, modes)) or 'none'})"
            ) from error
        raise RunError(
            f"the video cannot be drawn: {error}; without a screen MuJoCo draws with the system "
            "package libegl1 or libosmesa6 (MUJOCO_GL=egl or MUJOCO_GL=osmesa chooses)"
        ) from error
