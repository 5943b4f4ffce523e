"""The same panels as PNG and PDF, for a paper."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from PIL import Image

from cmbpo.report.arms import ArmRuns
from cmbpo.report.drawing import colours
from cmbpo.report.drawing.axes import short
from cmbpo.report.drawing.panel import Panel, spread

MOST_ROWS = 100
"""Rows of panels that fit on a picture of the largest size."""


def write(
    folder: Path, name: str, rows: Mapping[str, Sequence[Panel]], arms: Sequence[ArmRuns]
) -> None:
    """Write `name.png` and `name.pdf`: rows of two or three panels for each of the first tasks."""
    rows = dict(list(rows.items())[:MOST_ROWS])
    longest = max(len(panels) for panels in rows.values())
    width = 2 if longest in (2, 4) else min(longest, 3)
    cut = [
        (task, panels[i : i + width])
        for task, panels in rows.items()
        for i in range(0, len(panels), width)
    ][:MOST_ROWS]
    figure = Figure(figsize=(4.2 * width, 2.9 * len(cut) + 0.5), layout="constrained")
    grid = figure.subplots(len(cut), width, squeeze=False)
    shown: set[int] = set()
    for cells, (task, panels) in zip(grid, cut, strict=True):
        for axes in cells[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(cells, panels, strict=False):
            draw(axes, panel)
            title = re.sub("([Jε])_(.)", r"$\1_\2$", _plain(panel.title))
            axes.set_title(f"{_plain(task)}: {title}", fontsize=9)
            shown |= {x.arm.colour for x in [*panel.lines, *panel.marks]}
    handles = [
        Line2D([], [], color=_colour(arm), label=_plain(arm.label))
        for arm in arms
        if arm.colour in shown
    ]
    # a letter of this size takes 0.075 inches, the line before it as much as six
    longest_label = max((len(str(handle.get_label())) for handle in handles), default=0)
    fit = int(4.2 * width / (0.075 * (longest_label + 6)))
    ncols = min(max(fit, 1), 4)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=ncols, frameon=False, fontsize=9
    )
    for suffix in ("png", "pdf"):
        # without a date: the same runs give the same file
        facts = {"CreationDate": None} if suffix == "pdf" else {}
        path = folder / f"{name}.{suffix}"
        if path.is_symlink():  # replaced, not followed
            path.unlink()
        figure.savefig(path, dpi=120, metadata=facts)
        # laid out once, the same for both
        figure.set_layout_engine("none")
    _save_room(folder / f"{name}.png")


def _plain(words: str) -> str:
    """Words in which no dollar begins a formula."""
    return words.replace("$", r"\$")


def _save_room(path: Path) -> None:
    """The picture in 256 colours, a third of its size."""
    with Image.open(path) as whole:
        few = whole.convert("RGB").quantize(
            256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        )
    few.save(path, optimize=True)


def draw(axes: Axes, panel: Panel) -> None:
    """Draw a panel into an axes."""
    for which, axis in (("x", panel.x), ("y", panel.y)):
        getattr(axes, f"set_{which}scale")("function", functions=(axis.warp, axis.unwarp))
        getattr(axes, f"set_{which}lim")(axis.low, axis.high)
        getattr(axes, f"set_{which}label")(axis.label, fontsize=8)
        part = getattr(axes, f"{which}axis")
        part.set_major_locator(FixedLocator(axis.ticks()))
        part.set_minor_locator(NullLocator())
        part.set_major_formatter(FuncFormatter(lambda value, _: short(float(value))))
    for band in panel.bands:
        axes.fill_between(
            band.x, band.low, band.high, color=_colour(band.arm), alpha=0.15, linewidth=0
        )
    for line in panel.lines:
        main = line.weight == "main"
        axes.plot(
            line.x,
            line.y,
            color=_colour(line.arm),
            linewidth=1.4 if main else 0.6,
            alpha=1.0 if main else 0.45,
            linestyle="--" if line.dashed else "-",
        )
    for mark in panel.marks:
        axes.errorbar(mark.x, mark.y, mark.error, fmt="o", color=_colour(mark.arm), markersize=4)
    _quote(axes, panel)
    for rule in panel.rules:
        if rule.y is None:
            ends = [max(panel.x.low, panel.y.low), min(panel.x.high, panel.y.high)]
            axes.plot(ends, ends, color="black", linestyle="--", linewidth=0.9)
        else:
            colour, style = ("black", "--") if rule.dashed else ("grey", ":")
            axes.axhline(rule.y, color=colour, linestyle=style, linewidth=1.0)
    axes.grid(alpha=0.2)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _quote(axes: Axes, panel: Panel) -> None:
    """The paper's numbers as diamonds, with their names upright beside one another."""
    at = [float(panel.x.fraction(np.array(quoted.x))) for quoted in panel.quoted]
    for quoted, shown in zip(panel.quoted, spread(at, gap=0.035, end=1.0), strict=True):
        colour = _colour(quoted.arm) if quoted.arm else "black"
        axes.plot(
            quoted.x,
            quoted.y,
            "D",
            markerfacecolor="white",
            color=colour,
            markersize=5,
            clip_on=False,
            zorder=4,
        )
        below = float(panel.y.fraction(np.array(quoted.y))) > 0.5
        axes.annotate(
            quoted.name,
            (shown, quoted.y),
            xycoords=("axes fraction", "data"),
            xytext=(0, -6 if below else 6),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            rotation=90,
            fontsize=7,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )


def _colour(arm: ArmRuns) -> str:
    return colours.LIGHT[colours.place(arm.colour)]
