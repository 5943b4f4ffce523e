"""The colours of arms, in their order; an arm beyond the last begins anew."""

LIGHT = (
    "#1f6fb4",
    "#d9770a",
    "#2a8f5b",
    "#b3478f",
    "#7a5bd0",
    "#0e8a94",
    "#c43d3d",
    "#8a6d1d",
    "#66707c",
    "#7d9a00",
    "#e3378c",
    "#5a3212",
    "#1a2a6c",
    "#e0a800",
)
"""On white: of the page, and of figures as files."""

DARK = (
    "#62aef2",
    "#f2a14b",
    "#58c98d",
    "#e084c2",
    "#ab95f7",
    "#4cc5cf",
    "#f28080",
    "#d1b15c",
    "#aab4c0",
    "#b9d54a",
    "#ff7ab8",
    "#c79a6b",
    "#9fb0ff",
    "#ffd75e",
)
"""On a dark page."""


def place(arm: int) -> int:
    """Which of the colours the arm of this number has."""
    return arm % len(LIGHT)


def style() -> str:
    """CSS: `--c0`, `--c1`, … are the colours, and an element of class `c0` has `--c` = `--c0`."""
    classes = "\n".join(f".c{n} {{ --c: var(--c{n}); }}" for n in range(len(LIGHT)))
    dark = f"@media (prefers-color-scheme: dark) {{ {_root(DARK)} }}"
    return f"{_root(LIGHT)}\n{dark}\n{classes}"


def _root(colours: tuple[str, ...]) -> str:
    return f":root {{ {' '.join(f'--c{n}: {colour};' for n, colour in enumerate(colours))} }}"
