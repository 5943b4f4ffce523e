"""A film of one episode, with its score, through the task's Gymnasium environment."""

import contextlib
import itertools
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium
import imageio_ffmpeg
import numpy as np

from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.evaluation.score import Score, with_score
from cmbpo.runs.errors import RunError
from cmbpo.tasks.simulated import SimulatedTask
from cmbpo.tasks.task import Task

GIF_RATE, GIF_WIDTH = 10, 320
"""Most frames a second of a .gif, and most pixels from left to right: it keeps every picture
whole, so that 1000 steps of AntSafe were 118 MB at 20 a second and twice as wide."""
KINDS = (".mp4", ".gif")
SIZE = {"width": 640, "height": 480}
"""Of pictures of the tasks of this package; others come as large as their environment draws."""


class Film(NamedTuple):
    """A film, and how the episode in it ended."""

    path: Path
    score: Score
    size: int = 0
    """Bytes of the file."""

    def remark(self) -> str:
        """How large a .gif is; of others nothing need be said."""
        if self.path.suffix != ".gif":
            return ""
        return f", {self.size / 1e6:,.1f} MB: an .mp4 is sharper and smaller"


def check_name(path: Path) -> None:
    """Refuse a file of a kind that cannot be written."""
    if path.suffix not in KINDS:
        raise RunError(
            f"the video {str(path)!r} has the suffix {path.suffix!r}; allowed: {' or '.join(KINDS)}"
        )


def require_pictures(task: Task) -> None:
    """Draw one: where none can be drawn, that is said before any episode is run."""
    env = _stage(task)
    try:
        env.reset(seed=0)
        _picture(env)
    finally:
        env.close()


def film(
    policy: Callable[[np.ndarray], np.ndarray],
    task: Task,
    path: Path,
    *,
    seed: int,
    cost_limits: Sequence[float] | None = None,
    watch: Callable[[float], None] = lambda share: None,
) -> Film:
    """Film one episode, with `policy` from observation to action, as .mp4 or .gif.

    `watch` is told which share of its pictures is drawn.
    """
    check_name(path)
    rate = 1.0 / task.dt
    every = max(round(rate / GIF_RATE), 1) if path.suffix == ".gif" else 1
    count = -(-task.horizon // every)
    score = Score(task.cost_names, tuple(cost_limits or task.cost_limits), task.horizon)
    frames = _told(_frames(policy, task, score, every=every, seed=seed), count, watch)
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
    return Film(path, score, path.stat().st_size)


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
    # Half the pixels of an odd number are none that it can code.
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    mp4 = [*even, "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p"]
    # Each picture has its own colours: to dither instead of them doubles the file, or more.
    colours = "split[a][b];[a]palettegen=stats_mode=single:max_colors=64[p];[b][p]paletteuse="
    small = f"scale='min({GIF_WIDTH},iw)':-2,{colours}new=1:dither=none"
    coded = ["-filter_complex", small, "-loop", "0"] if path.suffix == ".gif" else mp4
    quiet = ["-y", "-loglevel", "error"]
    return [imageio_ffmpeg.get_ffmpeg_exe(), *quiet, *pixels, "-i", "-", *coded, str(path)]


def _frames(
    policy: Callable[[np.ndarray], np.ndarray],
    task: Task,
    score: Score,
    *,
    every: int,
    seed: int,
) -> Generator[np.ndarray]:
    env = _stage(task)
    try:
        obs, _ = env.reset(seed=seed)
        for time in range(task.horizon):
            if time % every == 0:
                yield with_score(_picture(env), score)
            obs, reward, terminated, truncated, info = env.step(policy(obs))
            score.note(float(reward), info["cost"])
            if terminated or truncated:
                return
    finally:
        env.close()


def _stage(task: Task) -> gymnasium.Env:
    size = SIZE if isinstance(task, SimulatedTask) else {}
    try:
        return task.environment(render_mode="rgb_array", **size)
    except EnvironmentFailure as failure:
        error = failure.__cause__
        if not isinstance(error, TypeError):
            raise
        raise RunError(
            f"the video cannot be drawn: what makes {task.name} takes no render_mode ({error})"
        ) from error


def _picture(env: gymnasium.Env) -> np.ndarray:
    try:
        return np.ascontiguousarray(np.asarray(env.render(), np.uint8)[..., :3])
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
