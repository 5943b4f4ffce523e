"""The flags of `cmbpo train`: for an algorithm, those settings that it reads, with their help."""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, make_dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeVar, Union

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from cmbpo.settings.overrides import help_texts
from cmbpo.settings.ranges import kinds
from cmbpo.settings.registry import ALGORITHMS, TASKS, reads
from cmbpo.settings.schema import TrainSettings

NO_SETTINGS = ("resume", "start_anew", "config", "trust")
"""Flags that say where settings come from."""

_FROM_FILE = "A run's config.json to repeat, with its settings; other flags change single ones."
_RESUME = "Run folder to go on with, with its own settings; a larger --total-steps is allowed."
_TRUST = (
    "Let the run of --resume, or the settings of --config, import, read and send what they name."
)
_START_ANEW = "With --resume: from the first step, with the old records and checkpoints set aside."

C = TypeVar("C")
_numbers = ConstructorRegistry()


def parse(
    kind: type[C] | Any, args: Sequence[str], prog: str, *, default: C | None = None, **more: Any
) -> C:
    """A command from its words; a whole number may be written as in `1e6`."""
    start = {} if default is None else {"default": default}
    return tyro.cli(kind, args=args, prog=prog, registry=_numbers, **start, **more)


def whole_number(text: str) -> int:
    """An integer as users type it: `1000000`, `1_000_000`, `1e6`."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    # The exponent alone may ask for more digits than there is memory.
    if not number.is_finite() or number.adjusted() > 30 or number != int(number):
        raise ValueError(f"{text!r} is no whole number")
    return int(number)


@_numbers.primitive_rule
def _whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda x: type(x) is int,
        str_from_instance=lambda x: [str(x)],
    )


def command(start: TrainSettings) -> type:
    """A dataclass of the settings that `start.algo` reads, with their values as defaults."""
    return _command(_mirror(start, lambda name: reads(start.algo, name), "", "TrainCommand"))


def completion(commands: Mapping[str, Any], shell: Literal["bash", "zsh"]) -> str:
    """A script for a shell, which completes these commands, and `train` for any algorithm."""
    kinds_of = {"train": _of_any_algorithm(), **commands}
    each = [Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds_of.items()]
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        parse(Union[tuple(each)], ["--tyro-print-completion", shell], "cmbpo")  # noqa: UP007
    # What is printed for a shell to choose from is a line each; help may have several.
    lines = [
        line.replace(r"\n", " ") if line.startswith("COMPLETION_SPEC") else line
        for line in script.getvalue().splitlines()
    ]
    # Where nothing of ours fits, the names of files: run folders are given as words.
    files = ["complete -o default -F _tyro_cmbpo cmbpo"] if shell == "bash" else []
    return "\n".join([*lines, *files, ""])


def _of_any_algorithm() -> type:
    """Every setting as a flag, with the names of what this package has as choices."""
    kind = _mirror(TrainSettings(), lambda name: True, "", "TrainCommand")
    names: list[Any] = [
        ("algo", Literal[tuple(ALGORITHMS)], field(default="cmbpo")),  # pyright: ignore
        ("env_id", Literal[tuple(f"{t}-v0" for t in TASKS)], field(default="PointCircle-v0")),  # pyright: ignore
    ]
    return make_dataclass("TrainCommand", names, bases=(_command(kind),), frozen=True, kw_only=True)


def _command(kind: type) -> type:
    """The settings, and the flags that say where they come from."""
    extra = [
        ("resume", Annotated[str | None, tyro.conf.arg(help=_RESUME)], field(default=None)),
        ("start_anew", Annotated[bool, tyro.conf.arg(help=_START_ANEW)], field(default=False)),
        ("config", Annotated[str | None, tyro.conf.arg(help=_FROM_FILE)], field(default=None)),
        ("trust", Annotated[bool, tyro.conf.arg(help=_TRUST)], field(default=False)),
    ]
    whole = make_dataclass("TrainCommand", extra, bases=(kind,), frozen=True, kw_only=True)
    whole.__doc__ = "Train a policy. Settings start from the preset of the algorithm and the task."
    return whole


def _mirror(group: Any, wanted: Callable[[str], bool], prefix: str, name: str) -> type:
    """The group with the settings that are wanted."""
    texts, fields = help_texts(type(group)), []
    for setting, kind in kinds(type(group)).items():
        value = getattr(group, setting)
        if dataclasses.is_dataclass(kind):
            inner = _mirror(value, wanted, f"{setting}.", type(value).__name__)
            if dataclasses.fields(inner):
                told = Annotated[inner, tyro.conf.arg(help=inner.__doc__)]
                fields.append((setting, told, field(default=inner())))
        elif wanted(prefix + setting):
            told = Annotated[kind, tyro.conf.arg(help=texts[setting])]
            fields.append((setting, told, field(default=value)))
    kind = make_dataclass(name, fields, frozen=True, kw_only=True)
    kind.__doc__ = type(group).__doc__
    return kind
