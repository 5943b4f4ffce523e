"""Single settings changed, in the same way from the command line, from Python and from a file."""

import ast
import dataclasses
import difflib
import importlib
import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from cmbpo.settings import aliases
from cmbpo.settings.ranges import fitted, kinds
from cmbpo.settings.registry import ALGORITHMS, TASKS, reads
from cmbpo.settings.schema import TrainSettings

G = TypeVar("G")


def names(group: type = TrainSettings, prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name, as in `policy.hidden`."""
    for name, kind in kinds(group).items():
        if dataclasses.is_dataclass(kind):
            yield from names(typing.cast(type, kind), f"{prefix}{name}.")
        else:
            yield prefix + name


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    dotted: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            dotted |= flat(value, f"{prefix}{name}.")
        else:
            dotted[prefix + name] = value
    return dotted


def changed(settings: TrainSettings, changes: Mapping[str, Any]) -> TrainSettings:
    """The settings with other values, all at once; what is not named stays as it is.

    A value may be named as `{"policy.hidden": (64, 64)}` or as `{"policy": {"hidden": (64, 64)}}`.
    One that the algorithm does not read is refused: it would change nothing.
    """
    given = flat(changes)
    for name in given:
        require_known(name)
        if not reads(settings.algo, name):
            raise ValueError(
                f"{name} is not read by {settings.algo}: leave it out, it changes nothing"
            )
    return with_values(settings, given)


def require_known(name: str) -> None:
    """Refuse a name that is no setting, with the one it is called now where it was renamed."""
    known = list(names())
    if name in known:
        return
    if was_known(name):
        raise ValueError(what_became_of(name))
    group = name.split(".")[0]
    inside = [n for n in known if n.startswith(f"{group}.")]
    if name == group and inside:
        raise ValueError(
            f"{name} is a group of settings; allowed: those that change, as in {inside[0]}"
        )
    near = inside or difflib.get_close_matches(name, known, n=3) or ["--help lists all"]
    raise ValueError(f"unknown setting {name!r}; there are: {', '.join(near)}")


def was_known(name: str) -> bool:
    """Whether an older version had this setting, and today's has not."""
    now = aliases.renamed(name)
    today = any(n == now or n.startswith(f"{now}.") for n in names())
    return aliases.is_older(name) and (today or now in {*aliases.CONSTANTS, *aliases.DERIVED})


def what_became_of(name: str, *, flag: bool = False) -> str:
    """In a sentence, what a setting of an older version is today; `flag`: as a command says it."""
    now = aliases.renamed(name)
    if now in aliases.CONSTANTS:
        return f"{name} is no setting any more: it is {aliases.CONSTANTS[now]!r} always"
    if now in aliases.DERIVED:
        return f"{name} is no setting any more: it is {aliases.DERIVED[now]}"
    if flag:
        name, now = (f"--{x.replace('_', '-')}" for x in (name, now))
    return f"{name} is called {now} now"


def with_values(group: G, values: Mapping[str, Any], prefix: str = "") -> G:
    """A group of settings with these values, by dotted names that exist."""
    types = kinds(type(group))
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        name, dot, rest = key.partition(".")
        if dot:
            inner.setdefault(name, {})[rest] = value
        else:
            own[name] = fitted(value, types[name], prefix + name)
    for name, inside in inner.items():
        own[name] = with_values(getattr(group, name), inside, f"{prefix}{name}.")
    return replace(typing.cast(Any, group), **own)


def parsed(assignments: Sequence[str]) -> dict[str, Any]:
    """The values that `KEY=VALUE …` give."""
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"{assignment!r}; allowed: KEY=VALUE, as in real_share.min_real=500")
        values[key.strip().replace("-", "_")] = literal(text.strip())
    return values


_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"


def literal(text: str) -> Any:
    """A value as it is typed behind `KEY=`: `64,64` and `64x64` are two numbers."""
    parts = text.split("x") if re.fullmatch(rf"{_NUMBER}(x{_NUMBER})+", text) else [text]
    try:
        values = [ast.literal_eval(part) for part in parts]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
    return tuple(values) if len(values) > 1 else values[0]


def spelt(value: Any) -> str:
    """A value as it is typed where commas part values: `64x64` for two numbers."""
    if isinstance(value, tuple | list):
        return "x".join(map(spelt, value))
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@cache
def short(name: str) -> str:
    """The last part of a setting's name, as in `max-kl`; the whole where others end like it."""
    last = name.rpartition(".")[2]
    alone = sum(other.rpartition(".")[2] == last for other in names()) == 1
    return (last if alone else name).replace("_", "-")


@cache
def help_texts(group: type) -> dict[str, str]:
    """What the source says under each setting of a group."""
    module = importlib.import_module(group.__module__)
    (source,) = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == group.__name__
    ]
    texts = {}
    for field, said in zip(source.body, source.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr):
            assert isinstance(field.target, ast.Name)
            text = inspect.cleandoc(typing.cast(Any, said.value).value).replace("\n", " ")
            texts[field.target.id] = text.replace("{algorithms}", ", ".join(ALGORITHMS)).replace(
                "{tasks}", ", ".join(f"{task}-v0" for task in TASKS)
            )
    return texts
