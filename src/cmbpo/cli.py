"""The command line: `cmbpo train · evaluate · report · experiment · tasks · bench · bound`.

Nothing heavy is imported before a command is known, so that help is instant.
"""

import argparse
import importlib
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cmbpo import __version__
from cmbpo.settings import aliases, flags, overrides, presets, registry
from cmbpo.settings.schema import EnvSettings, TrainSettings
from cmbpo.settings.trust import require_for_training


def train(args: list[str]) -> None:
    """Train a policy, or go on with a run."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, default in (("algo", None), ("env-id", None), ("preset", None), ("config", None)):
        first.add_argument(f"--{name}", f"--{name.replace('-', '_')}", default=default)
    first.add_argument("--resume")
    first.add_argument("--trust", action="store_true")
    first.add_argument("--start-anew", "--start_anew", action="store_true")
    first.add_argument("--total-steps", "--total_steps", type=int)
    chosen, others = first.parse_known_args(args)
    if chosen.resume is not None:
        _resume(chosen, others)
        return
    if chosen.start_anew:
        raise ValueError("--start-anew is given without --resume, the run folder to start anew in")
    start = _from_file(chosen) if chosen.config else _from_preset(chosen)
    _require_read(others, start.algo)
    kind = flags.command(start)
    command = tyro.cli(kind, args=args, default=kind(), prog="cmbpo train")
    values = asdict(command) | {"algo": start.algo, "env_id": start.env_id, "preset": start.preset}
    settings = overrides.changed(
        start, {n: v for n, v in values.items() if n not in flags.NO_SETTINGS}
    )

    from cmbpo.training import loop

    loop.run(settings)


def _resume(chosen: argparse.Namespace, others: list[str]) -> None:
    named = ("algo", "env_id", "preset", "config")
    given = [f"--{name.replace('_', '-')}" for name in named if vars(chosen)[name]]
    if extra := [*given, *(word for word in others if word.startswith("-"))]:
        raise ValueError(
            f"{extra[0]} cannot be given with --resume, which goes on with the run's own settings;"
            " allowed: --total-steps, --start-anew and --trust"
        )

    from cmbpo.training import loop

    loop.resume(
        Path(chosen.resume),
        total_steps=chosen.total_steps,
        start_anew=chosen.start_anew,
        trusted=chosen.trust,
    )


def _from_preset(chosen: argparse.Namespace) -> TrainSettings:
    plain = TrainSettings()
    algo, env_id = chosen.algo or plain.algo, chosen.env_id or plain.env_id
    return presets.preset(algo, env_id, chosen.preset or plain.preset)


def _from_file(chosen: argparse.Namespace) -> TrainSettings:
    """The settings of a run's config.json; what else is given changes them."""
    from cmbpo.runs.config import read_config, settings_from_json

    path = Path(chosen.config)
    settings = settings_from_json(read_config(path), where=str(path))
    if not chosen.trust:
        require_for_training(settings)
    if chosen.algo is not None and registry.algorithm_name(chosen.algo) != settings.algo:
        raise ValueError(f"--algo is {chosen.algo!r}; allowed with {path}: {settings.algo}")
    for name in ("env_id", "preset"):
        given = getattr(chosen, name)
        if given is not None and given != getattr(settings, name):
            flag = name.replace("_", "-")
            raise ValueError(
                f"--{flag} is {given!r}; allowed with {path}: {getattr(settings, name)}"
            )
    return settings


def _require_read(args: list[str], algo: str) -> None:
    """Refuse a flag that is a setting, but none that this algorithm reads."""
    for word in args:
        if word.startswith("--"):
            name = word[2:].split("=")[0].replace("-", "_")
            group, dot, last = name.rpartition(".")
            name = group + dot + last.removeprefix("no_")
            if aliases.is_older(name):
                raise ValueError(overrides.what_became_of(name, flag=True))
            if name in overrides.names() and not registry.reads(algo, name):
                flag = word.split("=")[0]
                raise ValueError(f"{flag} is not read by {algo}: leave it out, it changes nothing")


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
    best: bool = False
    """Take the policy that earned most within the limit instead of the newest."""
    trust: bool = False
    """Import the module that the run names: its code runs on this computer."""


def evaluate(args: list[str]) -> None:
    """Evaluate the policy of a run."""
    command = tyro.cli(EvaluateCommand, args=args, prog="cmbpo evaluate")

    from cmbpo.evaluation import evaluate as evaluation

    evaluation.main(
        Path(command.run),
        episodes=command.episodes,
        seed=command.seed,
        video=None if command.video is None else Path(command.video),
        best=command.best,
        trusted=command.trust,
    )


@dataclass(frozen=True)
class ExportCommand:
    """Write the deterministic policy of a run, with its normaliser and the action's bounds, for a
    computer that has nothing but NumPy."""

    run: Annotated[str, tyro.conf.Positional]
    """Run folder."""
    file: Annotated[str, tyro.conf.Positional]
    """File to write, as in policy.npz; numpy_policy.py, which reads it, is put beside it."""
    best: bool = False
    """Take the policy that earned most within the limit instead of the newest."""
    trust: bool = False
    """Import the module that the run names: its code runs on this computer."""


def export(args: list[str]) -> None:
    """Write the policy of a run for a robot."""
    command = tyro.cli(ExportCommand, args=args, prog="cmbpo export")

    from cmbpo.evaluation import export as exporting

    exporting.main(
        Path(command.run),
        Path(command.file),
        best=command.best,
        trusted=command.trust,
    )


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """Examine an environment of your own: what is fine, what will hurt, what is refused. The exit
    status is 0 if it can be trained on."""

    env_id: str
    """The environment, as in my_package:MyRobot-v0."""
    env: EnvSettings = EnvSettings()


def check(args: list[str]) -> None:
    """Examine an environment of your own."""
    command = tyro.cli(CheckCommand, args=args, prog="cmbpo check")

    from cmbpo.envs import check as checking

    if not checking.main(command.env_id, command.env):
        sys.exit(1)


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
class ExperimentCommand:
    """Run the paper's evidence: tasks × algorithms × seeds. The same command again goes on."""

    what: Annotated[Literal["figure2", "figure3", "table1"], tyro.conf.Positional]
    """figure2: CMBPO and four baselines; figure3: the ablations; table1: the safe algorithms."""
    seeds: int = 4
    """Runs of each task and algorithm."""
    first_seed: int = 0
    """Seed of the first of them."""
    total_steps: int | None = None
    """Real environment steps of each run. None: what the preset says."""
    envs: tuple[str, ...] = ()
    """Tasks, as in --envs AntSafe PointCircle. None given: those of the figure or table."""
    algos: tuple[str, ...] = ()
    """Algorithms, also cmbpo-no-alpha, cmbpo-schedule1 and cmbpo-schedule2 (figure3)."""
    preset: str = "default"
    """Where the settings start from: default, or paper (the printed algorithm)."""
    set: tuple[str, ...] = ()
    """Settings of the runs that read them, as in --set rollout.lanes=200 policy.hidden=64,64."""
    log_dir: str = "runs/experiments"
    """Folder of the runs; experiments share what they have in common."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the networks run."""
    jobs: int | None = None
    """Runs at once on this machine. None: one a core, or four a GPU with two cores each."""
    ray: str | None = None
    """Address of a Ray cluster to run on, as in 10.0.0.1:6379 or auto (extra `ray`)."""
    cpus_per_run: float = 2
    """CPUs that a run takes of the Ray cluster."""
    gpus_per_run: float | None = None
    """GPUs that a run takes of the Ray cluster. None: a quarter, where there are any."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("seeds", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; allowed: at least 1")


def experiment(args: list[str]) -> None:
    """Run Figure 2, Figure 3 or Table I."""
    command = tyro.cli(ExperimentCommand, args=args, prog="cmbpo experiment")

    from cmbpo.experiments import drive, plan

    jobs = plan.jobs(
        command.what,
        seeds=range(command.first_seed, command.first_seed + command.seeds),
        envs=command.envs,
        algos=command.algos,
        overrides=command.set,
        total_steps=command.total_steps,
        preset=command.preset,
        log_dir=command.log_dir,
        device=command.device,
    )
    status = drive.main(
        jobs,
        device=command.device,
        at_once=command.jobs,
        ray=command.ray,
        cpus=command.cpus_per_run,
        gpus=command.gpus_per_run,
    )
    sys.exit(status)


@dataclass(frozen=True)
class BenchSimulator:
    """Steps per second of each task, beside bare MuJoCo and Gymnasium's own loop."""

    json: Path | None = None
    """File for the measurements as data."""


@dataclass(frozen=True)
class BenchAlgorithms:
    """Environment steps per CPU-second of the model-free algorithms, learning included."""

    envs: tuple[str, ...] = ()
    """Tasks, as in --envs HalfCheetahSafe AntCircle. None given: all."""
    algos: tuple[str, ...] = ()
    """Algorithms, as in --algos cpo trpo. None given: all that are model-free."""
    updates: int = 5
    """Updates of each that are measured."""
    cores: int = 2
    """CPU cores to use."""
    json: Path | None = None
    """File for the measurements as data."""


@dataclass(frozen=True)
class BenchUpdate:
    """Time of each phase of a CMBPO update, and how far it is above what the machine allows."""

    env_id: str = "HalfCheetahSafe-v0"
    """Task."""
    preset: str = "default"
    """Settings: default or paper."""
    updates: int = 8
    """Updates that are measured."""
    archive_rows: int | None = None
    """Real steps in the archive before the first update. None: what the preset says."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the networks run."""
    json: Path | None = None
    """File for the measurements as data."""


BenchCommand = (
    Annotated[BenchSimulator, tyro.conf.subcommand("simulator")]
    | Annotated[BenchAlgorithms, tyro.conf.subcommand("algorithms")]
    | Annotated[BenchUpdate, tyro.conf.subcommand("update")]
)


def bench(args: list[str]) -> None:
    """Measure speed."""
    command = tyro.cli(BenchCommand, args=args, prog="cmbpo bench", description="Measure speed.")
    name = {BenchSimulator: "simulator", BenchAlgorithms: "algorithms", BenchUpdate: "update"}
    module = importlib.import_module(f"cmbpo.bench.{name[type(command)]}")
    module.main(**vars(command))


@dataclass(frozen=True)
class BoundCommand:
    """Boundary 4.1 on finite problems: how the bound and the truth grow with both errors."""

    out: Path = Path("boundary.png")
    """File for the picture."""


def bound(args: list[str]) -> None:
    """Draw Boundary 4.1."""
    command = tyro.cli(BoundCommand, args=args, prog="cmbpo bound")

    from cmbpo.theory import tightness

    tightness.main(command.out)


@dataclass(frozen=True)
class VerifyCommand:
    """Examine a run folder: its settings, every checkpoint, the best policy and every line of its
    records. The exit status is 0 if all of it is as it was written."""

    run: Annotated[str, tyro.conf.Positional]
    """Run folder."""


def verify(args: list[str]) -> None:
    """Examine a run folder for damage."""
    command = tyro.cli(VerifyCommand, args=args, prog="cmbpo verify")

    from cmbpo.runs import verify as verifying

    if not verifying.main(Path(command.run)):
        sys.exit(1)


@dataclass(frozen=True)
class ReportCommand:
    """Make one page of many runs: learning curves, Table I, safety, the model and its promises."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders that hold them; those in a folder `tuning` only if it is named."""
    out: Path = Path("report")
    """Folder for report.html and figures/."""


def report(args: list[str]) -> None:
    """Make a page and figures from runs."""
    command = tyro.cli(ReportCommand, args=args, prog="cmbpo report")

    from cmbpo import report as reporting

    reporting.main(command.runs, command.out)


COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "report": report,
    "export": export,
    "verify": verify,
    "check": check,
    "experiment": experiment,
    "tasks": tasks,
    "bench": bench,
    "bound": bound,
}


def usage() -> str:
    """What can be asked for."""
    lines = [f"  {name:<10} {command.__doc__}" for name, command in COMMANDS.items()]
    lines += [
        "",
        f"algorithms: {', '.join(registry.ALGORITHMS)}",
        f"tasks: {', '.join(registry.TASKS)}",
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
    except BrokenPipeError:
        sys.stderr.close()
    except (ValueError, FileNotFoundError) as mistake:
        sys.exit("\n".join([f"cmbpo {args[0]}: {mistake}", *getattr(mistake, "__notes__", ())]))
    except OSError as trouble:
        sys.exit(f"cmbpo {args[0]}: {trouble.filename or 'a file'}: {trouble.strerror or trouble}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
