"""Calls of the public interface at random, with arguments right and wrong."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import cmbpo
from cmbpo.settings.overrides import names
from cmbpo.settings.registry import ALGORITHMS, TASKS
from tests.mutated_configs import WRONG

PACKAGE = str(Path(cmbpo.__file__).parent)
ODD: tuple[Any, ...] = (
    *WRONG,
    *(object(), int, print, np.float64(3), np.arange(3), b"x", 1j, {1}, range(3), Path("/nowhere")),
)
"""Arguments that are nobody's type."""


@dataclass(frozen=True)
class Call:
    """One call, and how it reads."""

    text: str
    make: Callable[[], Any]


def call(random: Random) -> Call:
    """A call that makes settings or an agent, or opens a run."""
    algo: Any = random.choice(list(ALGORITHMS))
    env: Any = f"{random.choice(list(TASKS))}-v0"
    changes = {_name(random): _value(random) for _ in range(random.randrange(3))}
    if random.random() < 0.15:
        algo = random.choice(ODD)
    if random.random() < 0.15:
        env = random.choice(ODD)
    kind = random.randrange(6)
    if kind == 0:
        start = random.choice(["default", "paper", random.choice(ODD)])
        return Call(f"preset({algo!r}, {env!r}, {start!r})", lambda: cmbpo.preset(algo, env, start))
    if kind == 1:
        own = {name: value for name, value in changes.items() if "." not in name}
        return Call(f"TrainSettings(**{own!r})", lambda: cmbpo.TrainSettings(**own))
    if kind == 2:
        folder = random.choice(ODD)
        return Call(f"load({folder!r})", lambda: cmbpo.load(folder))
    if kind == 3:
        steps = random.choice([1000, 1e6, *ODD])
        return Call(
            f"Agent().learn({steps!r}, callback=5)", lambda: cmbpo.Agent().learn(steps, callback=5)
        )
    return Call(
        f"Agent({algo!r}, {env!r}, **{changes!r})", lambda: cmbpo.Agent(algo, env, **changes)
    )


def attempt(one: Call) -> str | None:
    """None where the call returns, else its sentence; what is no sentence of ours is raised.

    A sentence is ours if the innermost line of the traceback is: not JAX's, NumPy's or Python's.
    A wrong signature is Python's to refuse, in the line of the call.
    """
    try:
        one.make()
    except (ValueError, TypeError) as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1].filename
        signature = isinstance(error, TypeError) and innermost == __file__
        if not signature and (isinstance(error, TypeError) or not innermost.startswith(PACKAGE)):
            raise
        return str(error)
    return None


def _name(random: Random) -> str:
    return random.choice(["x", "policy", "env", "dynamics.hidden", *names()])


def _value(random: Random) -> Any:
    plain = [64, (64, 64), [8], 0.5, "cpu", {"hidden": (8,)}, 1000]
    return random.choice(plain if random.random() < 0.5 else ODD)
