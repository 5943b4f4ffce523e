"""A run folder examined part by part: what is whole, and what is not as it was written."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console

from cmbpo import columns
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import BEST, Run
from cmbpo.runs.tables import CsvTable, Table, examine
from cmbpo.settings.registry import UntrustedError

STYLES = {"whole": "green", "aside": "yellow", "damaged": "bold red"}
SHOWN = 10
"""Line numbers that are written out."""


class Finding(NamedTuple):
    """One line: how a part of the run is, and which."""

    verdict: Literal["whole", "aside", "damaged"]
    sentence: str


def findings(folder: Path, *, trusted: bool = False) -> Iterator[Finding]:
    """Look at config.json, every checkpoint, the best policy and every line of the records."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = Run.open(folder, trusted=trusted)
    except RunError as error:
        if isinstance(error.__cause__, UntrustedError):
            raise
        yield Finding("damaged", str(error))
        return
    chosen = run.settings
    yield Finding("whole", f"config.json: {chosen.algo} on {chosen.env_id}, seed {chosen.seed}")
    marks: Mapping[str, Any] = {}
    for path in run.checkpoints():
        name = path.relative_to(run.folder)
        try:
            notes = run.notes_of(path)
        except RunError as error:
            yield Finding("damaged", _said(error, path, str(name)))
        else:
            marks = marks or notes["tables"]
            yield Finding("whole", f"{name}: all that update {notes['update']} left")
    yield from _best(run)
    yield from _records(run, marks)
    yield from _others(run)


def _best(run: Run) -> Iterator[Finding]:
    path = run.folder / BEST
    if path.exists():
        try:
            notes = run.notes_of_best()
            kept = f"return {notes['return']:.6g} within the limits at update {notes['update']}"
            yield Finding("whole", f"{BEST}: {kept}")
        except RunError as error:
            yield Finding("damaged", _said(error, path, BEST))


def _records(run: Run, marks: Mapping[str, Any]) -> Iterator[Finding]:
    if run.progress.path.exists() and not run.checkpoints():
        yield Finding("damaged", "checkpoints: there is none to go on from")
    for table in (run.progress, run.episodes):
        name, mark = table.path.name, marks.get(table.path.name, {"rows": 0})
        if not table.path.exists():
            if mark["rows"]:
                yield Finding("damaged", f"{name}: it is lost with its {mark['rows']} rows")
            continue
        try:
            found = examine(table.path)
        except RunError as error:
            yield Finding("damaged", _said(error, table.path, name))
            continue
        wrong = list(_wrong(run, table, found, mark))
        yield from (Finding("damaged", f"{name}: {sentence}") for sentence in wrong)
        if not wrong:
            unchecked = "" if found.checked else ", which carry no checks: an older version's"
            yield Finding("whole", f"{name}: {table.rows} rows{unchecked}")


def _wrong(run: Run, table: CsvTable, found: Table, mark: Mapping[str, Any]) -> Iterator[str]:
    if found.damaged:
        yield f"not as written: {_lines(found.damaged)}"
    if found.gaps:
        yield f"rows are missing, repeated or moved before {_lines(found.gaps)}"
    if not found.checked and found.columns and run.config.get("id"):
        yield "its first line is not as written: the checks of the rows are not found"
    steps = found.columns.get(columns.ENV_STEPS, np.zeros(0))
    if steps.dtype != float or (np.diff(steps) <= 0).any():
        yield f"{columns.ENV_STEPS} does not grow from row to row: updates are repeated"
    if table.rows < mark["rows"] and not found.damaged:
        yield f"{table.rows} rows, but the newest checkpoint noted {mark['rows']}"
    elif found.checks and not found.damaged and mark.get("check", "") not in ("", *found.checks):
        yield "another run's: no row has the check that the newest checkpoint noted"


def _others(run: Run) -> Iterator[Finding]:
    own = {*run.checkpoints()}
    for folder, pattern in ((run.folder, "*.csv.*"), (run.folder / "checkpoints", "*")):
        for path in sorted(folder.glob(pattern)):
            if path not in own and not path.name.startswith("."):
                name = path.relative_to(run.folder)
                yield Finding("aside", f"{name}: no part of the run, and left alone by it")


def _lines(numbers: list[int]) -> str:
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    listed = ", ".join(map(str, numbers[:SHOWN]))
    return f"{'line' if len(numbers) == 1 else 'lines'} {listed}{more}"


def _said(error: RunError, path: Path, name: str) -> str:
    return str(error).replace(str(path), name)


def main(folder: Path, *, trusted: bool = False) -> bool:
    """Print the findings; whether the run is whole."""
    if not folder.is_dir():
        Run.open(folder)  # what is no folder is no damaged run: this says what it is
    console, damaged = Console(highlight=False), 0
    for finding in findings(folder, trusted=trusted):
        console.print(f"{finding.verdict:<9}", style=STYLES[finding.verdict], end="")
        console.print(finding.sentence, soft_wrap=True, markup=False)
        damaged += finding.verdict == "damaged"
    if damaged:
        console.print(f"{folder} is not whole", soft_wrap=True, markup=False)
    else:
        console.print(f"{folder} is whole", soft_wrap=True, markup=False)
    return not damaged
