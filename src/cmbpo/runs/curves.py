"""The picture that a run leaves behind: return and cost over real environment steps."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from cmbpo import columns
from cmbpo.runs.config import read_config
from cmbpo.runs.files import whole_file
from cmbpo.runs.tables import read_table

WINDOW = 20
"""Episodes in the running mean."""


def plot_run(folder: str | Path) -> Path:
    """Draw `curves.png` into a run folder: return left, cost per horizon right, limit dashed."""
    folder = Path(folder)
    config = read_config(folder)
    episodes = _table(folder / "episodes.csv")
    for name in columns.EPISODES:
        episodes.setdefault(name, np.zeros(0))
    settings = config["settings"]
    task = settings["env_id"].rsplit("/", 1)[-1]
    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(f"{settings['algo']} · {task} · seed {settings['seed']}")
    left, right = figure.subplots(1, 2)
    steps = episodes[columns.EPISODE_ENV_STEPS]
    left.plot(steps, episodes[columns.EPISODE_RETURN], ".", color="C0", alpha=0.2, markersize=4)
    mean = running_mean(episodes[columns.EPISODE_RETURN], np.ones_like(steps), WINDOW)
    left.plot(steps, mean, color="C0")
    left.set(title=f"return per episode (line: mean of {WINDOW})")
    horizon = config.get("horizon", 1000)
    _draw_costs(right, episodes, _cost_limits(folder, config), horizon)
    for axes in (left, right):
        axes.set(xlabel="environment steps", xlim=(0, None))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    path = folder / "curves.png"
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=120)
    return path


def running_mean(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"], window: int
) -> Float[np.ndarray, " n"]:
    """Σ values / Σ weights over the last `window` entries, or as many as there are."""

    def sums(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        total = np.concatenate([np.zeros(1), np.cumsum(x)])
        ends = np.arange(1, len(total))
        return total[ends] - total[np.maximum(ends - window, 0)]

    return sums(values) / sums(weights)


def _draw_costs(
    axes: Axes, episodes: dict[str, np.ndarray], limits: list[float], horizon: int
) -> None:
    """Each cost with its limit. Falling early is not cheap: an episode counts by its length."""
    several = columns.episode_cost("")
    names = [name for name in episodes if name.startswith(several)] or [columns.EPISODE_COST]
    top = 0.0
    for i, name in enumerate(names):
        colour = f"C{1 + i}"
        rate = horizon * episodes[name] / episodes[columns.EPISODE_LENGTH]
        axes.plot(
            episodes[columns.EPISODE_ENV_STEPS], rate, ".", color=colour, alpha=0.2, markersize=4
        )
        mean = running_mean(horizon * episodes[name], episodes[columns.EPISODE_LENGTH], WINDOW)
        label = name.removeprefix(several).replace("_", " ")
        axes.plot(episodes[columns.EPISODE_ENV_STEPS], mean, color=colour, label=label)
        top = max(top, 1.15 * mean.max(initial=0.0))
        if i < len(limits):
            axes.axhline(limits[i], color=colour if len(names) > 1 else "black", linestyle="--")
            top = max(top, 1.5 * limits[i])
    # single episodes may lie far above: the mean and the limit set the scale
    axes.set(title=f"cost per {horizon} steps", ylim=(-0.02 * top, max(top, 1.0)))
    if len(names) > 1:
        axes.legend(frameon=False)


def _cost_limits(folder: Path, config: dict) -> list[float]:
    """What the run was held to: its own setting, or the task's limits as the run noted them."""
    limits = config["settings"]["cost_limit"]
    if limits is None:
        progress = _table(folder / "progress.csv")
        limits = [x[-1] for x in columns.each(progress, columns.LIMIT).values() if x.size]
    return [float(limit) for limit in limits]


def _table(path: Path) -> dict[str, np.ndarray]:
    return read_table(path) if path.exists() else {}
