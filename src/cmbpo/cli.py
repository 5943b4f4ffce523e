"""The command line: `cmbpo train · evaluate · watch · report · experiment · tasks · bench …`.

Nothing heavy is imported before a command is known, so that help is instant.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cmbpo import __version__, interruption, streams
from cmbpo.bench.commands import BenchAlgorithms, BenchCommand, BenchSimulator, BenchUpdate
from cmbpo.settings import flags, overrides, plugins, presets, registry
from cmbpo.settings.schema import EnvSettings, TrainSettings
from cmbpo.settings.trust import require_for_training


def train(args: list[str]) -> None:
    """Train a policy, or go on with a run."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # What is missing behind a flag, or is no number, is said below as of every other flag.
    for name in ("algo", "env-id", "preset", "config", "resume"):
        first.add_argument(f"--{name}", f"--{name.replace('-', '_')}", nargs="?")
    first.add_argument("--trust", action="store_true")
    first.add_argument("--start-anew", "--start_anew", action="store_true")
    first.add_argument("--total-steps", "--total_steps", nargs="?")
    chosen, others = first.parse_known_args(args)
    if chosen.resume is not None:
        _resume(chosen, others)
        return
    if chosen.start_anew:
        raise ValueError("--start-anew is given without --resume, the run folder to start anew in")
    start = _from_preset(chosen) if chosen.config is None else _from_file(chosen)
    _require_read(others, start.algo)
    kind = flags.command(start)
    command = flags.parse(kind, args, "cmbpo train", default=kind())
    values = asdict(command) | {"algo": start.algo, "env_id": start.env_id, "preset": start.preset}
    settings = overrides.changed(
        start, {n: v for n, v in values.items() if n not in flags.NO_SETTINGS}
    )

    from cmbpo.training import loop

    with _until_interrupted():
        loop.run(settings)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """What is trained here is saved when a signal asks to stop; the status then tells of it."""
    with interruption.noted(second_raises=True, ends_process=True) as came:
        try:
            yield
        except KeyboardInterrupt:
            if not came:
                raise
    if came:
        sys.exit(interruption.status(came[0]))


def _resume(chosen: argparse.Namespace, others: list[str]) -> None:
    named = ("algo", "env_id", "preset", "config")
    given = [f"--{name.replace('_', '-')}" for name in named if vars(chosen)[name] is not None]
    if extra := [*given, *others]:
        raise ValueError(
            f"{extra[0]} cannot be given with --resume, which goes on with the run's own settings;"
            " allowed: --total-steps, --start-anew and --trust"
        )

    from cmbpo.training import loop

    try:
        steps = None if chosen.total_steps is None else flags.whole_number(chosen.total_steps)
    except ValueError as error:
        raise ValueError(f"--total-steps: {error}") from None
    with _until_interrupted():
        loop.resume(
            Path(chosen.resume),
            total_steps=steps,
            start_anew=chosen.start_anew,
            trusted=chosen.trust,
        )


def _from_preset(chosen: argparse.Namespace) -> TrainSettings:
    plain, names = TrainSettings(), ("algo", "env_id", "preset")
    given = {name: asked for name in names if (asked := getattr(chosen, name)) is not None}
    return presets.preset(*(given.get(name, getattr(plain, name)) for name in names))


def _from_file(chosen: argparse.Namespace) -> TrainSettings:
    """The settings of a run's config.json; what else is given changes them."""
    from cmbpo.runs.config import read_config, settings_from_json

    path = Path(chosen.config)
    settings = settings_from_json(read_config(path), where=str(path), trusted=chosen.trust)
    if not chosen.trust:
        require_for_training(settings)
    if chosen.algo is not None and plugins.asked_for(chosen.algo) != settings.algo:
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
            if overrides.was_known(name):
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
    """File (.mp4, or .gif: half as wide, at most 10 frames a second) for a film of one
    deterministic episode."""
    out: str | None = None
    """File (.json) for return, cost and length of each episode; a report reads
    RUN/evaluation.json."""
    best: bool = False
    """Take the policy that earned most within the limit instead of the newest."""
    trust: bool = False
    """Import the module that the run names: its code runs on this computer."""


def evaluate(args: list[str]) -> None:
    """Evaluate the policy of a run."""
    command = flags.parse(EvaluateCommand, args, "cmbpo evaluate")

    from cmbpo.evaluation import evaluate as evaluation
    from cmbpo.training import device

    device.use("auto")
    evaluation.main(
        Path(command.run),
        episodes=command.episodes,
        seed=command.seed,
        video=None if command.video is None else Path(command.video),
        out=None if command.out is None else Path(command.out),
        best=command.best,
        trusted=command.trust,
    )


@dataclass(frozen=True)
class WatchCommand:
    """See a trained policy at work, in an episode with a new seed: in a window where there is a
    screen, else as a video."""

    what: Annotated[str, tyro.conf.Positional]
    """A task, whose policy comes with this package, or a run folder."""
    video: str | None = None
    """File (.mp4, or .gif: half as wide, at most 10 frames a second) to write instead of opening a
    window."""
    seed: int | None = None
    """Seed of the episode. None: a new one each time."""
    best: bool = False
    """Of a run, take the policy that earned most within the limit instead of the newest."""
    trust: bool = False
    """Import the module that the run names: its code runs on this computer."""

    def __post_init__(self) -> None:
        """Check the values."""
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}; allowed: 0 to {2**32 - 1:,}")


def watch(args: list[str]) -> None:
    """See a trained policy at work."""
    command = flags.parse(WatchCommand, args, "cmbpo watch")

    from cmbpo.evaluation import watch as watching

    watching.main(
        command.what,
        video=None if command.video is None else Path(command.video),
        seed=command.seed,
        best=command.best,
        trusted=command.trust,
    )


@dataclass(frozen=True)
class ExportCommand:
    """Write the deterministic policy of a run, with its normaliser and the action's bounds, for a
    robot's computer: with nothing but NumPy, with an ONNX runtime, or with a C compiler."""

    run: Annotated[str, tyro.conf.Positional]
    """Run folder."""
    file: Annotated[str, tyro.conf.Positional]
    """File to write: policy.npz for NumPy, policy.onnx (extra `onnx`) or policy.h for C."""
    best: bool = False
    """Take the policy that earned most within the limit instead of the newest."""
    trust: bool = False
    """Import the module that the run names: its code runs on this computer."""


def export(args: list[str]) -> None:
    """Write the policy of a run for a robot."""
    command = flags.parse(ExportCommand, args, "cmbpo export")

    from cmbpo.evaluation import export as exporting
    from cmbpo.training import device

    device.use("auto")
    exporting.main(Path(command.run), Path(command.file), best=command.best, trusted=command.trust)


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """Examine an environment of your own: what is fine, what will hurt, what is refused. The exit
    status is 0 if it can be trained on."""

    env_id: str
    """The environment, as in my_package:MyRobot-v0."""
    env: EnvSettings = EnvSettings()


def check(args: list[str]) -> None:
    """Examine an environment of your own."""
    command = flags.parse(CheckCommand, args, "cmbpo check")

    from cmbpo.envs import check as checking

    if not checking.main(command.env_id, command.env):
        sys.exit(1)


@dataclass(frozen=True)
class TasksCommand:
    """List the tasks, or draw one."""

    render: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="TASK FILE")] = None
    """A task and a file (.png, .jpg or .webp): write a picture of the task, e.g. --render AntSafe
    out.png."""


def tasks(args: list[str]) -> None:
    """List or draw the tasks."""
    command = flags.parse(TasksCommand, args, "cmbpo tasks")
    if command.render is not None and len(command.render) != 2:
        raise ValueError(
            f"--render is {' '.join(command.render)!r}; allowed: a task and a file, as in --render"
            " AntSafe out.png"
        )

    from cmbpo.tasks import listing

    if command.render is None:
        listing.show()
    else:
        listing.draw(command.render[0], Path(command.render[1]))


@dataclass(frozen=True)
class ExperimentCommand:
    """Run the paper's evidence, or a grid of your own: tasks × algorithms × settings × seeds. The
    same command again goes on."""

    what: Annotated[Literal["figure2", "figure3", "table1", "grid"], tyro.conf.Positional]
    """figure2: CMBPO and four baselines; figure3: the ablations; table1: the safe algorithms; grid:
    what --algos, --envs and --grid say."""
    seeds: int = 4
    """Runs of each task and algorithm."""
    first_seed: int = 0
    """Seed of the first of them."""
    total_steps: int | None = None
    """Real environment steps of each run. None: what the preset says."""
    envs: tuple[str, ...] = ()
    """Tasks, as in --envs AntSafe PointCircle, or environments of your own, as in
    my_package:MyRobot-v0. None given: those of the figure or table; of a grid, PointCircle."""
    algos: tuple[str, ...] = ()
    """Algorithms, also cmbpo-no-alpha, cmbpo-schedule1 and cmbpo-schedule2 (figure3). None given:
    those of the figure or table; of a grid, cmbpo."""
    grid: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """Settings with the values to try, as in --grid trust-region.max-kl=0.01,0.02
    policy.hidden=64x64,128x128; every combination is run."""
    stop_losers: bool = False
    """Stop the worse half of the arms at half of the steps, and with many arms at a quarter, an
    eighth …: within the limit by return, before those beyond it by cost."""
    preset: str = "default"
    """Where the settings start from: default, or paper (the printed algorithm)."""
    set: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
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
    """Run Figure 2, Figure 3, Table I or a grid of settings."""
    command = flags.parse(ExperimentCommand, args, "cmbpo experiment")

    from cmbpo.experiments import drive, plan

    jobs = plan.jobs(
        command.what,
        seeds=range(command.first_seed, command.first_seed + command.seeds),
        envs=command.envs,
        algos=command.algos,
        overrides=[word for words in command.set for word in words],
        grid=[word for words in command.grid for word in words],
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
        stop_losers=command.stop_losers,
    )
    sys.exit(status)


def bench(args: list[str]) -> None:
    """Measure speed."""
    command = flags.parse(BenchCommand, args, "cmbpo bench", description="Measure speed.")
    name = {BenchSimulator: "simulator", BenchAlgorithms: "algorithms", BenchUpdate: "update"}
    module = importlib.import_module(f"cmbpo.bench.{name[type(command)]}")
    module.main(**vars(command))


@dataclass(frozen=True)
class BoundCommand:
    """Boundary 4.1 on finite problems: how the bound and the truth grow with both errors."""

    out: Path = Path("boundary.png")
    """File for the picture (.png, .pdf or .svg)."""


def bound(args: list[str]) -> None:
    """Draw Boundary 4.1."""
    out = flags.parse(BoundCommand, args, "cmbpo bound").out
    # It takes a minute until something is written there.
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"--out is {str(out)!r}; allowed: a name in .png, .pdf or .svg")
    if not out.parent.is_dir():
        raise ValueError(f"--out is {str(out)!r}, but there is no folder {out.parent}")

    from cmbpo.theory import tightness
    from cmbpo.training import device

    device.use("auto")
    tightness.main(out)


@dataclass(frozen=True)
class VerifyCommand:
    """Examine a run folder: its settings, every checkpoint, the best policy and every line of its
    records. The exit status is 0 if all of it is as it was written."""

    run: Annotated[str, tyro.conf.Positional]
    """Run folder."""
    trust: bool = False
    """Import the module of the algorithm that the run names, which runs its code."""


def verify(args: list[str]) -> None:
    """Examine a run folder for damage."""
    command = flags.parse(VerifyCommand, args, "cmbpo verify")

    from cmbpo.runs import verify as verifying

    if not verifying.main(Path(command.run), trusted=command.trust):
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
    command = flags.parse(ReportCommand, args, "cmbpo report")

    from cmbpo import report as reporting

    reporting.main(command.runs, command.out.expanduser())


@dataclass(frozen=True)
class CompletionCommand:
    """Print what makes a shell complete commands, flags and names, to be put where it reads it:
    cmbpo completion bash > ~/.local/share/bash-completion/completions/cmbpo."""

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional]
    """The shell; for zsh, a file _cmbpo in a folder of its fpath."""


def completion(args: list[str]) -> None:
    """Print the completion script of a shell."""
    command = flags.parse(CompletionCommand, args, "cmbpo completion")
    kinds = {
        "evaluate": EvaluateCommand,
        "watch": WatchCommand,
        "report": ReportCommand,
        "export": ExportCommand,
        "verify": VerifyCommand,
        "check": CheckCommand,
        "experiment": ExperimentCommand,
        "tasks": TasksCommand,
        "bench": BenchCommand,
        "bound": BoundCommand,
        "completion": CompletionCommand,
    }
    print(flags.completion(kinds, command.shell), end="")


COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "watch": watch,
    "report": report,
    "export": export,
    "verify": verify,
    "check": check,
    "experiment": experiment,
    "tasks": tasks,
    "bench": bench,
    "bound": bound,
    "completion": completion,
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
    """What the words of the command line ask for: a user's mistake is one sentence."""
    streams.prepare()
    args = sys.argv[1:]
    command = f"cmbpo {args[0]}" if args and args[0] in COMMANDS else "cmbpo"
    with interruption.stopped_at_once():
        try:
            try:
                _run(args)
            finally:
                # Here and not at exit, where nobody could be told: --help ends in SystemExit.
                sys.stdout.flush()
        except Exception as error:
            if isinstance(error, OSError) and error.filename == streams.OUTPUT:
                streams.go_silent(1)
                if isinstance(error, BrokenPipeError):
                    sys.exit(interruption.status(signal.SIGPIPE))
            if (said := sentence(error)) is None:
                raise
            sys.exit("\n".join([f"{command}: {said}", *getattr(error, "__notes__", ())]))


def sentence(error: Exception) -> str | None:
    """What went wrong, for its user; None where it is an error of this package, not of theirs."""
    from cmbpo.envs.failures import EnvironmentFailure

    if isinstance(error, ValueError | EnvironmentFailure):
        return str(error)
    if isinstance(error, OSError):
        why = error.strerror or str(error)
        return f"{error.filename}: {why}" if error.filename else why
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        smaller = "--num-envs, --batch-size, --archive-size or the widths of networks"
        return f"not enough memory ({' '.join(str(error).split())}); what needs less: {smaller}"
    if "environment variable MUJOCO_GL" in str(error):
        value = os.environ.get("MUJOCO_GL")
        return f"MUJOCO_GL is {value!r}; allowed: egl, osmesa, glfw, or leave it out"
    return None


def _run(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
    elif args[0] in ("-V", "--version"):
        print(__version__)
    elif args[0] not in COMMANDS:
        raise ValueError(f"unknown command {args[0]!r}; there are {', '.join(COMMANDS)}")
    else:
        COMMANDS[args[0]](args[1:])


if __name__ == "__main__":
    main()
