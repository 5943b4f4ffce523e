"""A panel as inline SVG. Its colours come from the page, so that it follows a dark one."""

import json
from html import escape

import numpy as np

from cmbpo.report.drawing import colours
from cmbpo.report.drawing.axes import Axis, short
from cmbpo.report.drawing.panel import Line, Panel, spread

WIDTH, HEIGHT = 440, 282
LEFT, RIGHT, TOP, BOTTOM = 56, 428, 10, 236
CLOSE = 0.4
"""Units of the drawing by which a line may miss a point that is left out."""


def draw(panel: Panel) -> str:
    """The panel as an `svg` element."""
    axes = {"x": _scale(panel.x, LEFT, RIGHT), "y": _scale(panel.y, BOTTOM, TOP)}
    return "".join(
        [
            f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(panel.title)}" data-axes="{escape(json.dumps(axes))}">',
            _frame(panel),
            _bands(panel),
            *[_line(panel, line) for line in panel.lines],
            _rules(panel),
            _marks(panel),
            _quoted(panel),
            f'<line class="cross" y1="{TOP}" y2="{BOTTOM}" x1="-9" x2="-9"/>',
            "</svg>",
        ]
    )


def _scale(axis: Axis, start: int, end: int) -> dict:
    """What the page needs to turn a place back into a value."""
    return {
        "kind": axis.kind,
        "low": axis.low,
        "high": axis.high,
        "knee": axis.knee,
        "start": start,
        "end": end,
    }


def _x(panel: Panel, value: np.ndarray | float) -> np.ndarray:
    return np.asarray(LEFT + (RIGHT - LEFT) * panel.x.fraction(np.asarray(value, float)))


def _y(panel: Panel, value: np.ndarray | float) -> np.ndarray:
    return np.asarray(BOTTOM + (TOP - BOTTOM) * panel.y.fraction(np.asarray(value, float)))


def _frame(panel: Panel) -> str:
    parts = []
    for value in panel.y.ticks():
        y = float(_y(panel, value))
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4.5:.1f}" class="end">{short(value)}</text>')
    for value in panel.x.ticks():
        x = float(_x(panel, value))
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" class="mid">{short(value)}</text>')
    middle = (LEFT + RIGHT) / 2
    parts.append(
        f'<text class="mid name" x="{middle}" y="{HEIGHT - 7}">{escape(panel.x.label)}</text>'
    )
    if panel.y.label:
        at = f'x="{LEFT + 6}" y="{TOP + 13}"'
        parts.append(f'<text class="name" {at}>↑ {escape(panel.y.label)}</text>')
    return "".join(parts)


def _bands(panel: Panel) -> str:
    parts = []
    for band in panel.bands:
        there = _points(_x(panel, band.x), _y(panel, band.high))
        back = _points(_x(panel, band.x)[::-1], _y(panel, band.low)[::-1])
        parts.append(f'<polygon class="band {_arm(band.arm.colour)}" points="{there} {back}"/>')
    return "".join(parts)


def _line(panel: Panel, line: Line) -> str:
    kind = f"{line.weight} dashed" if line.dashed else line.weight
    x, y = _x(panel, line.x), _y(panel, line.y)
    kept = needed(x, y)
    places = _points(x[kept], y[kept])
    note = escape(line.note)
    end = ""
    if line.weight == "main" and not line.dashed and len(line.x):
        end = (
            f'<circle class="dot {_arm(line.arm.colour)}" cx="{x[-1]:.1f}" cy="{y[-1]:.1f}"'
            ' r="2.6"/>'
        )
    return (
        f'<polyline class="{kind} {_arm(line.arm.colour)}" data-note="{note}" points="{places}"/>'
        f"{end}"
    )


def needed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points of a line, drawn without the others, leave it where it is (Douglas, Peucker)."""
    kept = np.zeros(len(x), bool)
    kept[:1] = kept[-1:] = True
    spans = [(0, len(x) - 1)] if len(x) else []
    while spans:
        first, last = spans.pop()
        inside = slice(first + 1, last)
        straight = np.interp(x[inside], x[[first, last]], y[[first, last]])
        missed = np.abs(y[inside] - straight)
        if missed.size and missed.max() > CLOSE:
            worst = first + 1 + int(missed.argmax())
            kept[worst] = True
            spans += [(first, worst), (worst, last)]
    return kept


def _rules(panel: Panel) -> str:
    parts = []
    for rule in panel.rules:
        if rule.y is None:
            ends = np.array([max(panel.x.low, panel.y.low), min(panel.x.high, panel.y.high)])
            places = _points(_x(panel, ends), _y(panel, ends))
        else:
            y = float(_y(panel, rule.y))
            places = f"{LEFT},{y:.1f} {RIGHT},{y:.1f}"
        kind = "rule" if rule.dashed else "rule level"
        parts.append(
            f'<polyline class="{kind}" points="{places}"><title>{escape(rule.note)}</title>'
            "</polyline>"
        )
    return "".join(parts)


def _marks(panel: Panel) -> str:
    parts = []
    for mark in panel.marks:
        x, y = float(_x(panel, mark.x)), float(_y(panel, mark.y))
        title = f"<title>{escape(mark.note)}</title>"
        low, high = _y(panel, np.array([mark.y - mark.error, mark.y + mark.error]))
        parts.append(
            f'<g class="mark {_arm(mark.arm.colour)}"><line x1="{x:.1f}" x2="{x:.1f}" '
            f'y1="{low:.1f}" y2="{high:.1f}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3.4">{title}'
            "</circle></g>"
        )
    return "".join(parts)


def _quoted(panel: Panel) -> str:
    """Diamonds, and their names upright beside one another, on the side with more room."""
    at = [float(_x(panel, quoted.x)) for quoted in panel.quoted]
    parts = []
    for quoted, x, shown in zip(
        panel.quoted, at, spread(at, gap=15.0, end=float(RIGHT)), strict=True
    ):
        y = float(_y(panel, quoted.y))
        below = y < (TOP + BOTTOM) / 2
        side, shift = ("end", 9) if below else ("start", -9)
        colour = f" c{colours.place(quoted.arm.colour)}" if quoted.arm else ""
        name = escape(quoted.name)
        parts.append(
            f'<path class="paper{colour}" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z">'
            f'<title>{name} in the paper</title></path><text class="{side} paper-name" '
            f'transform="translate({shown + 4:.1f} {y + shift:.1f}) rotate(-90)">{name}</text>'
        )
    return "".join(parts)


def _arm(colour: int) -> str:
    return f"arm c{colours.place(colour)} n{colour}"


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
