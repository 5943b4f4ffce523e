"""What every benchmark prints and writes."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

Row = Mapping[str, str | int | float | None]


def show(
    title: str, rows: Sequence[Row], *, notes: str = "", json_file: Path | None = None
) -> None:
    """Print rows as a table; write them, with the machine they were measured on, as JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0),
    )
    for name in names:
        numeric = any(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(
            name,
            justify="right" if numeric else "left",
            no_wrap=not numeric,
            min_width=max(len(word) for word in name.split()),
        )
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in names))
    console = Console()
    console.print(table)
    if notes:
        console.print(notes)
    if json_file is not None:
        content = {
            "title": title,
            "notes": notes,
            "machine": machine(),
            "rows": list(map(dict, rows)),
        }
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(content, indent=2) + "\n")


def machine() -> dict[str, str | int | None]:
    """Where and with which versions something was measured."""
    packages = ("jax", "mujoco", "gymnasium", "numpy")
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{package: version(package) for package in packages},
    }


def interleaved(
    contenders: Mapping[str, Callable[[], None]], *, rounds: int
) -> dict[str, list[float]]:
    """Seconds that each contender takes in each round, all of them in turn in every round."""
    for contender in contenders.values():
        contender()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            before = time.perf_counter()
            contender()
            seconds[name].append(time.perf_counter() - before)
    return seconds


def _cell(value: str | int | float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
