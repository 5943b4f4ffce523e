"""Draw results/figures/return_and_cost.png from the runs kept in results/.

python benchmarks/figures.py
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, ScalarFormatter

from cmbpo.plot import WINDOW, running_mean
from cmbpo.records import read_table

RESULTS = Path(__file__).parents[1] / "results"
LEVELS = {"HalfCheetahSafe": 3000.0, "AntSafe": 2500.0}
LIMIT = 10.0
RUNS = {
    "paper-seed-0": ("preset paper, seed 0 (stopped early)", "#e69f00"),
    "default-seed-1": ("preset default, seed 1", "#56b4e9"),
    "default-seed-0": ("preset default, seed 0", "#0072b2"),
}


def draw_run(axes: tuple[Axes, Axes], folder: Path, label: str, colour: str) -> None:
    """Running means of return and of cost per 1000 steps over whole windows of episodes."""
    episodes = read_table(folder / "episodes.csv")
    length, steps = episodes["length"], episodes["env_steps"]
    means = (
        running_mean(episodes["return"], np.ones_like(length), WINDOW),
        running_mean(1000.0 * episodes["cost"], length, WINDOW),
    )
    for panel, mean in zip(axes, means, strict=True):
        whole = slice(WINDOW - 1, None)
        panel.plot(steps[whole], mean[whole], color=colour, label=label, linewidth=1.3)
        panel.plot(steps[-1], mean[-1], "o", color=colour, markersize=4)


def main() -> Path:
    """Two rows, one for each task: return left, cost right."""
    figure = Figure(figsize=(10, 6.8), layout="constrained")
    grid = figure.subplots(len(LEVELS), 2)
    for row, (task, level) in zip(grid, LEVELS.items(), strict=True):
        left, right = row
        for name, (label, colour) in RUNS.items():
            folder = RESULTS / f"cmbpo-{task}" / name
            if folder.is_dir():
                draw_run((left, right), folder, label, colour)
        left.axhline(level, color="grey", linestyle=":", label="level of the paper's table")
        left.set(title=f"{task}: return", ylim=(-750, 3400))
        right.axhline(LIMIT, color="black", linestyle="--", label="cost limit")
        right.set_yscale("symlog", linthresh=20.0, linscale=1.5)
        right.set(title=f"{task}: cost per 1000 steps", ylim=(-1, 800))
        right.yaxis.set_major_locator(FixedLocator([0, 5, 10, 15, 20, 50, 100, 200, 500]))
        right.yaxis.set_major_formatter(ScalarFormatter())
        right.yaxis.set_minor_locator(FixedLocator([]))
        for axes in row:
            axes.set(xlim=(0, None))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[-1]:
        axes.set(xlabel="environment steps")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    limit = grid[0, 1].get_legend_handles_labels()
    figure.legend(
        [*handles, limit[0][-1]],
        [*labels, limit[1][-1]],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    path = RESULTS / "figures" / "return_and_cost.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


if __name__ == "__main__":
    print(main())
