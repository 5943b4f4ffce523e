"""The command line: `cmbpo train · evaluate · tasks · bench · bound`.

Nothing heavy is imported before a command is known, so that help is instant.
"""

import argparse
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cmbpo import __version__, presets
from cmbpo.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class TrainCommand(TrainSettings):
    """Train a policy. Settings start from the preset of the algorithm and the task."""

    resume: str | None = None
    """Run folder to continue, with its own settings (a larger --total-steps is allowed)."""


def train(args: list[str]) -> None:
    """Train a policy, or go on with a run."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--algo", default=TrainSettings.algo)
    first.add_argument("--env-id", "--env_id", default=TrainSettings.env_id)
    first.add_argument("--preset", default=TrainSettings.preset)
    chosen, _ = first.parse_known_args(args)
    start = presets.preset(chosen.algo, chosen.env_id, chosen.preset)
    default = TrainCommand(**{f.name: getattr(start, f.name) for f in fields(start)})
    command = tyro.cli(TrainCommand, args=args, default=default, prog="cmbpo train")

    from cmbpo import train as loop

    if command.resume is not None:
        asked = command.total_steps if _given(args, "--total-steps") else None
        loop.resume(Path(command.resume), total_steps=asked)
        return
    settings = {f.name: getattr(command, f.name) for f in fields(TrainSettings)}
    settings |= {"algo": start.algo, "env_id": start.env_id}
    loop.run(TrainSettings(**settings))


def _given(args: list[str], flag: str) -> bool:
    spellings = (flag, flag.replace("-", "_").replace("__", "--", 1))
    return any(arg.split("=")[0] in spellings for arg in args)


@dataclass(frozen=True)
class EvaluateCommand:
    """Run episodes without learning: return and cost, deterministic and stochastic side by side."""

    run: Annotated[str, tyro.conf.Positional]
    """Run folder."""
    episodes: int = 20
    """Episodes of each kind."""
    seed: int = 1_000_000
    """Seed of the episodes; far from those of training."""
    video: str | None = None
    """File (.mp4 or .gif) for a film of one deterministic episode."""


def evaluate(args: list[str]) -> None:
    """Evaluate the policy of a run."""
    command = tyro.cli(EvaluateCommand, args=args, prog="cmbpo evaluate")

    from cmbpo import evaluate as evaluation

    evaluation.main(
        Path(command.run),
        episodes=command.episodes,
        seed=command.seed,
        video=None if command.video is None else Path(command.video),
    )


@dataclass(frozen=True)
class TasksCommand:
    """List the tasks, or draw one."""

    render: tuple[str, str] | None = None
    """A task and a file: write a picture of the task, e.g. --render AntSafe out.png."""


def tasks(args: list[str]) -> None:
    """List or draw the tasks."""
    command = tyro.cli(TasksCommand, args=args, prog="cmbpo tasks")

    from cmbpo.tasks import listing

    if command.render is None:
        listing.show()
    else:
        listing.draw(command.render[0], Path(command.render[1]))


@dataclass(frozen=True)
class BenchCommand:
    """Measure speed."""

    what: Annotated[Literal["simulator"], tyro.conf.Positional]
    """simulator: many copies of each task, beside bare MuJoCo and Gymnasium's own loop."""
    json: Path | None = None
    """File for the measurements as data."""


def bench(args: list[str]) -> None:
    """Measure speed."""
    command = tyro.cli(BenchCommand, args=args, prog="cmbpo bench")

    from cmbpo.bench import simulator

    {"simulator": simulator.main}[command.what](json=command.json)


@dataclass(frozen=True)
class BoundCommand:
    """Boundary 4.1 on finite problems: how the bound and the truth grow with both errors."""

    out: Path = Path("boundary.png")
    """File for the picture."""


def bound(args: list[str]) -> None:
    """Draw Boundary 4.1."""
    command = tyro.cli(BoundCommand, args=args, prog="cmbpo bound")

    from cmbpo import tightness

    tightness.main(command.out)


COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "tasks": tasks,
    "bench": bench,
    "bound": bound,
}


def usage() -> str:
    """What can be asked for."""
    lines = [f"  {name:<10} {command.__doc__}" for name, command in COMMANDS.items()]
    lines += [
        "",
        f"algorithms: {', '.join(presets.ALGORITHMS)}",
        f"tasks: {', '.join(presets.TASKS)}",
    ]
    title = f"cmbpo {__version__}: safe continuous control from few real samples"
    return "\n".join([title, "", *lines, "", "cmbpo COMMAND --help says more."])


def main() -> None:
    """Entry point of the `cmbpo` command: a user's mistake is one sentence, no traceback."""
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        return
    if args[0] in ("-V", "--version"):
        print(__version__)
        return
    if args[0] not in COMMANDS:
        sys.exit(f"unknown command {args[0]!r}; there are {', '.join(COMMANDS)}")
    try:
        COMMANDS[args[0]](args[1:])
    except (ValueError, FileNotFoundError) as mistake:
        sys.exit(f"cmbpo {args[0]}: {mistake}")
    except BrokenPipeError:
        sys.stderr.close()


if __name__ == "__main__":
    main()
