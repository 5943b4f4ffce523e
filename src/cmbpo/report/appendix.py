"""What stands at the end of the page: settings that differ, versions, and every run."""

from cmbpo import columns
from cmbpo.report.arms import INCIDENTAL, text
from cmbpo.report.drawing.table import Table
from cmbpo.report.reading.read import Collection


def settings(shown: Collection) -> Table | None:
    """The settings that are not the same everywhere.

    That a run of an older version lacks a setting is no difference.
    """
    places = [(arm, task) for task in shown.tasks for arm in shown.arms if task in arm.runs]
    spans = [(shown.title(task), sum(other == task for _, other in places)) for task in shown.tasks]
    table = Table(["setting", *[arm.label for arm, _ in places]], groups=[("", 1), *spans])
    names = dict.fromkeys(name for run in shown.runs for name in run.settings)
    hidden = {*INCIDENTAL, "algo", "env_id", "preset"} - {"total_steps"}
    for name in [n for n in names if n not in hidden]:
        known = {text(run.settings[name]) for run in shown.runs if name in run.settings}
        if len(known) > 1:
            cells = [
                {text(run.settings.get(name, "unknown")) for run in arm.runs[task]}
                for arm, task in places
            ]
            table.rows.append([name, *[", ".join(sorted(values)) for values in cells]])
    return table if table.rows else None


def versions(shown: Collection) -> Table:
    """What the runs ran on; a column for each different set of versions."""
    sets: dict[tuple[tuple[str, str], ...], int] = {}
    for run in shown.runs:
        noted = dict(run.config.get("versions", {}))
        for name in ("device", "commit"):
            noted[name] = str(run.config.get(name) or "unknown")
        noted["commit"] = noted["commit"][:10]
        key = tuple((name, str(value)) for name, value in noted.items())
        sets[key] = sets.get(key, 0) + 1
    head = [f"{count} run{'s' if count > 1 else ''}" for count in sets.values()]
    names = dict.fromkeys(name for key in sets for name, _ in key)
    rows = [[name, *[dict(key).get(name, "–") for key in sets]] for name in names]
    return Table(["", *head], rows, words=1 + len(sets))


def runs(shown: Collection) -> Table:
    """Every run that is shown."""
    head = ["task", "run", "arm", "command", "seed", "steps", "episodes"]
    table = Table(head, words=4, parted=True, stacked=True)
    for task in shown.tasks:
        for arm in shown.arms:
            for run in arm.runs.get(task, []):
                end, asked = run.steps[-1], run.total_steps
                steps = f"{end:,.0f}" if end >= asked else f"{end:,.0f} of {asked:,.0f}"
                command = " ".join(str(word) for word in run.config.get("command", []))
                count = f"{len(run.episodes[columns.EPISODE_ENV_STEPS]):,}"
                cells = [run.name, arm.label, command, str(run.seed), steps, count]
                table.rows.append([shown.title(task), *cells])
    return table
