"""Command lines at random, from the flags there really are, with values right and wrong."""

import contextlib
import dataclasses
import io
import math
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal
from unittest import mock

import tyro

from cmbpo import cli
from cmbpo.settings import flags
from cmbpo.settings.presets import preset
from cmbpo.settings.ranges import Range, kinds
from cmbpo.settings.registry import ALGORITHMS, TASKS

RIGHT = 0.88
"""Share of the values that are of the right kind and range."""

WRONG = (
    *("", " ", "-", "--", "-1", "0", "1.5", "1e400", "nan", "inf", "-inf", "0x10", "1_000", "٣"),
    *(
        "many",
        "None",
        "True",
        "…",
        "α",
        "\udcff",
        "{}",
        "[]",
        "a=b",
        "../..",
        "/dev/null",
        "/nowhere",
    ),
    *(
        "9" * 40,
        "1e6",
        "-1e-9",
        "--seed",
        "--help=1",
        "[bold]x[/]",
        "%s%n",
        "a\nb",
        "'; ls",
        "x" * 5000,
    ),
)
"""What users type by mistake, and what they should never type."""

SEAMS = {
    "cmbpo.training.loop": ("run", "resume"),
    "cmbpo.evaluation.evaluate": ("main",),
    "cmbpo.runs.verify": ("main",),
    "cmbpo.evaluation.export": ("main",),
    "cmbpo.evaluation.watch": ("main",),
    "cmbpo.envs.check": ("main",),
    "cmbpo.tasks.listing": ("show", "draw"),
    "cmbpo.experiments.drive": ("main",),
    "cmbpo.report": ("main",),
    "cmbpo.theory.tightness": ("main",),
    "cmbpo.bench.simulator": ("main",),
    "cmbpo.bench.algorithms": ("main",),
    "cmbpo.bench.update": ("main",),
}
"""Where the work of a command begins."""


@dataclass(frozen=True)
class Outcome:
    """How a command line ended."""

    status: int
    began: str | None
    """The function that would have begun the work, by its module."""
    said: str
    """All that it printed, on both outputs."""

    @property
    def parsed(self) -> bool:
        """Whether the line was understood; its values may have been refused afterwards."""
        return self.status != 2


def line(random: Random) -> list[str]:
    """A command with some of its flags, in any order."""
    if random.random() < 0.03:
        return [random.choice(WRONG) for _ in range(random.randrange(4))]
    name = random.choice(["train"] * 4 + list(cli.COMMANDS))
    if name == "train":
        return [name, *_train(random)]
    if name == "bench":
        kinds = {"simulator": cli.BenchSimulator, "algorithms": cli.BenchAlgorithms}
        which = random.choice([*kinds, "update"])
        return [name, which, *_flags(random, kinds.get(which, cli.BenchUpdate))]
    return [name, *_flags(random, getattr(cli, f"{name.capitalize()}Command"))]


def attempt(words: list[str]) -> Outcome:
    """What becomes of a line, up to where its work would begin; a bug raises what it raises."""
    began: list[str] = []
    out = io.StringIO()
    with contextlib.ExitStack() as stack:
        for module, functions in SEAMS.items():
            for function in functions:
                stack.enter_context(
                    mock.patch(f"{module}.{function}", _noting(f"{module}.{function}", began))
                )
        stack.enter_context(mock.patch.object(sys, "argv", ["cmbpo", *words]))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(out))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        try:
            cli.main()
            status: Any = 0
        except SystemExit as end:
            status = end.code
    said = out.getvalue() + (status if isinstance(status, str) else "")
    code = 1 if isinstance(status, str) else int(status or 0)
    return Outcome(code, began[0] if began else None, said)


def _noting(name: str, began: list[str]) -> Callable[..., Any]:
    def begin(*_: Any, **__: Any) -> Any:
        began.append(name)
        return name in ("cmbpo.envs.check.main", "cmbpo.runs.verify.main")

    return begin


def _train(random: Random) -> list[str]:
    algo, task = random.choice(list(ALGORITHMS)), random.choice(list(TASKS))
    start = random.choice(["default", "paper"])
    words = ["--algo", algo, "--env-id", f"{task}-v0", "--preset", start]
    if random.random() < 0.1:
        words[random.choice((1, 3, 5))] = random.choice(WRONG)
    return [*words, *_flags(random, _command_of(algo, task, start))]


@cache
def _command_of(algo: str, task: str, start: str) -> type:
    return flags.command(preset(algo, task, start))


def _flags(random: Random, command: type) -> list[str]:
    needed, offered = [], {}
    for name, kind in _dotted(command):
        if name not in ("algo", "env_id", "preset", *flags.NO_SETTINGS):
            positional = _is_positional(kind)
            needed += _words(random, kind) if positional else []
            offered |= {} if positional else {name: kind}
    required = ["env_id"] if command is cli.CheckCommand else []
    chosen = random.sample(list(offered), min(len(offered), random.randrange(4)))
    groups = [needed]
    for name in {*required, *chosen}:
        kind = dict(_dotted(command))[name]
        flag = "--" + name.replace("_", "-")
        if _plain(kind) is bool and random.random() < 0.9:
            group, dot, last = flag[2:].rpartition(".")
            groups.append([random.choice([flag, f"--{group}{dot}no-{last}"])])
        else:
            groups.append([flag, *_words(random, kind)])
    if random.random() < 0.05:
        groups.append([random.choice(WRONG)])
    if random.random() < 0.05:
        groups.append(["--" + random.choice(list(offered) or ["x"])[:-1] + "x", "3"])
    random.shuffle(groups)
    # What takes any number of words would take the place of a positional that follows it.
    groups.sort(key=lambda group: group is not needed)
    return [word for group in groups for word in group]


def _dotted(command: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, kind in kinds(command).items():
        inner = _plain(kind)
        if dataclasses.is_dataclass(inner):
            yield from _dotted(typing.cast(type, inner), f"{prefix}{name}.")
        else:
            yield prefix + name, kind


def _is_positional(kind: Any) -> bool:
    return typing.get_args(tyro.conf.Positional[int])[1] in getattr(kind, "__metadata__", ())


def _plain(kind: Any) -> Any:
    return _plain(typing.get_args(kind)[0]) if typing.get_origin(kind) is Annotated else kind


def _words(random: Random, kind: Any) -> list[str]:
    """A value as typed: mostly one that the type allows."""
    if random.random() > RIGHT:
        return [random.choice(WRONG) for _ in range(random.choice((1, 1, 1, 0, 2)))]
    limits = [x for x in getattr(kind, "__metadata__", ()) if isinstance(x, Range)]
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        inner = typing.cast(Any, inside[0])
        if limits and typing.get_origin(inner) is not tuple:
            return [_number(random, inner, limits[0])]
        if limits:
            of = typing.get_args(inner)
            count = random.randrange(1, 4) if of[-1] is Ellipsis else len(of)
            return [_number(random, of[0], limits[0]) for _ in range(count)]
        return _words(random, inner)
    if origin in (types.UnionType, typing.Union):
        return _words(random, random.choice([x for x in inside if x is not types.NoneType]))
    if origin is Literal:
        return [str(random.choice(inside))]
    if origin is tuple:
        count = random.randrange(1, 3) if inside[-1] is Ellipsis else len(inside)
        return [word for _ in range(count) for word in _words(random, inside[0])][:count]
    if kind in (int, float):
        return [_number(random, kind, Range(1, 1000))]
    if kind is bool:
        return [random.choice(["True", "False"])]
    return [random.choice(["a", "AntSafe", "runs", "robots:Arm-v0", "policy.npz", os.devnull])]


def _number(random: Random, kind: Any, limits: Range) -> str:
    """A number of the range, its ends and beyond them included now and then."""
    low = limits.low if math.isfinite(limits.low) else -10
    high = limits.high if math.isfinite(limits.high) else low + 10
    if random.random() < 0.1:
        return str(random.choice([low, high, low - 1, high + 1]))
    if kind is int:
        number = random.randint(int(low), int(min(high, low + random.choice((3, 100, 10**6)))))
        return random.choice([str(number), str(number), f"{number:e}", f"{number}.0"])
    return str(random.uniform(low, high))


def config_line(path: Path) -> list[str]:
    """The command that trains with a config.json."""
    return ["train", "--config", str(path)]
