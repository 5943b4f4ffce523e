"""Config files at random: those of real settings, with values, names and bytes changed."""

import copy
import dataclasses
import json
from random import Random
from typing import Any

from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS, TASKS

WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 10**40, -(10**40), 1e400, float("nan"), -1e-9),
    *(
        "",
        "x",
        "3",
        "…",
        "\ud800",
        "x" * 5000,
        "nonsense",
        [],
        [16.0],
        [[1]],
        [1, "a"],
        {},
        {"a": 1},
    ),
)
"""What a setting is replaced by."""


def config(random: Random) -> dict[str, Any]:
    """What the config.json of a run holds."""
    algo, task = random.choice(list(ALGORITHMS)), random.choice(list(TASKS))
    settings = preset(algo, task, random.choice(["default", "paper"]))
    return {"settings": dataclasses.asdict(settings), "versions": {"cmbpo": "0.1.0"}}


def mutated(random: Random) -> str:
    """The text of a config.json with one to three changes."""
    whole = copy.deepcopy(config(random))
    for _ in range(random.randrange(1, 4)):
        place: Any = whole if random.random() < 0.1 else whole.get("settings")
        while isinstance(place, dict) and place and random.random() < 0.6:
            inner = [value for value in place.values() if isinstance(value, dict) and value]
            if not inner:
                break
            place = random.choice(inner)
        if isinstance(place, dict) and place:
            random.choice((_replace, _replace, _replace, _drop, _add))(random, place)
    text = json.dumps(whole)
    return _torn(random, text) if random.random() < 0.1 else text


def _replace(random: Random, place: dict[str, Any]) -> None:
    place[random.choice(list(place))] = random.choice(WRONG)


def _drop(random: Random, place: dict[str, Any]) -> None:
    del place[random.choice(list(place))]


def _add(random: Random, place: dict[str, Any]) -> None:
    place[random.choice(["x", "", "policy.hidden", "…", "env_id ", "dynamics"])] = random.choice(
        WRONG
    )


def _torn(random: Random, text: str) -> str:
    at = random.randrange(len(text))
    return random.choice(
        [text[:at], text[:at] + random.choice('{}[]",:\x00x9') + text[at + 1 :], "[" * 100_000]
    )
