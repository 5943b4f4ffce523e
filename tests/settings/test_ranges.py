"""Every setting refuses what it cannot be, in one sentence that names it and what is allowed."""

import math
import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from cmbpo.settings.overrides import names, with_values
from cmbpo.settings.ranges import Range, fitted, kinds, words
from cmbpo.settings.schema import CriticSettings, TrainSettings

NAMES = list(names())


def kind_of(name: str) -> Any:
    """The declared type of a setting, without the None that some may be instead."""
    group: Any = TrainSettings
    *groups, last = name.split(".")
    for inner in groups:
        group = kinds(group)[inner]
    kind = kinds(group)[last]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = [one for one in typing.get_args(kind) if one is not type(None)]
    return kind


def plain(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def range_of(kind: Any) -> Range | None:
    found = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    return found[0] if found else None


def shaped(kind: Any, number: float | int) -> Any:
    """A number in the form that a setting of this type takes: alone, or as one of a tuple."""
    inner = plain(kind)
    if typing.get_origin(inner) is not tuple:
        return number
    inside = typing.get_args(inner)
    return (number,) * (1 if inside[-1] is Ellipsis else len(inside))


def is_whole(kind: Any) -> bool:
    return int in (plain(kind), *typing.get_args(plain(kind)))


def beyond(kind: Any) -> list[Any]:
    """Values of the right type that are not allowed: just outside each end that there is."""
    if typing.get_origin(plain(kind)) is Literal:
        return ["sideways", ""]
    limits = range_of(kind)
    if limits is None:
        return []
    step = 1 if is_whole(kind) else 1e-9
    found = []
    if math.isfinite(limits.low):
        found.append(limits.low if limits.above else limits.low - step)
    if math.isfinite(limits.high):
        found.append(limits.high if limits.below else limits.high + step)
    return [shaped(kind, number) for number in found]


def wrong_types(kind: Any) -> list[Any]:
    inner = plain(kind)
    texts = str in (inner, *typing.get_args(inner))
    wrong: list[Any] = [{"a": 1}, [[1]], 3 if texts or inner is bool else "many"]
    if inner is not bool:
        wrong += [True]
    if is_whole(kind):
        wrong += [shaped(kind, 1.5)]
    if typing.get_origin(inner) is tuple:
        wrong += [()]
    return wrong


def refusal(name: str, value: Any) -> str:
    with pytest.raises(ValueError, match=r"; allowed: ") as refused:
        with_values(TrainSettings(), {name: value})
    return str(refused.value)


def test_there_are_settings_of_every_group():
    assert {name.split(".")[0] for name in NAMES} >= {"policy", "ensemble", "rollout", "lagrangian"}
    assert sum(bool(beyond(kind_of(name))) for name in NAMES) > 50


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_another_type_is_refused(name: str):
    for value in wrong_types(kind_of(name)):
        said = refusal(name, value)
        assert said.startswith(f"{name} is ")
        assert "\n" not in said


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_or_infinite_is_refused(name: str, number: float):
    said = refusal(name, shaped(kind_of(name), number))
    assert said.startswith(f"{name} is ")
    assert str(number) in said


@pytest.mark.parametrize("name", [name for name in NAMES if beyond(kind_of(name))])
def test_a_value_out_of_range_is_refused_with_what_is_allowed(name: str):
    kind = kind_of(name)
    for value in beyond(kind):
        said = refusal(name, value)
        assert said.startswith(f"{name} is {value!r}; allowed: ")
        if typing.get_origin(plain(kind)) is Literal:
            assert all(choice in said for choice in typing.get_args(plain(kind)))


@pytest.mark.parametrize("name", [name for name in NAMES if range_of(kind_of(name))])
def test_the_ends_of_a_range_belong_to_it_unless_it_says_otherwise(name: str):
    limits = range_of(kind_of(name))
    assert limits is not None
    if math.isfinite(limits.low):
        assert limits.holds(limits.low) != limits.above
    if math.isfinite(limits.high):
        assert limits.holds(limits.high) != limits.below


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Range(1, 2**31 - 1), "1 to 2,147,483,647"),
        (Range(0.0, 1.0), "0.0 to 1.0"),
        (Range(0.0, 1.0, above=True), "above 0.0, up to 1.0"),
        (Range(0.0, 1.0, below=True), "0.0 to below 1.0"),
        (Range(0.0, 1.0, above=True, below=True), "above 0.0, below 1.0"),
        (Range(0.0), "0.0 or more"),
        (Range(0.0, above=True), "above 0.0"),
        (Range(), "finite"),
    ],
)
def test_a_range_is_told_in_words(limits: Range, said: str):
    assert str(limits) == said


def test_a_type_is_told_in_words():
    assert words(kinds(CriticSettings)["bound_cost"]) == "true or false"
    assert words(kinds(CriticSettings)["hidden"]).startswith("one to 16 of a whole number, 1 to")
    assert words(kinds(TrainSettings)["init_from"]) == "a text or None"


def test_one_width_and_a_list_of_widths_are_tuples_too():
    hidden = kinds(CriticSettings)["hidden"]
    assert fitted(64, hidden, "critic.hidden") == (64,)
    assert fitted([64, 32], hidden, "critic.hidden") == (64, 32)
    assert fitted(1, kinds(CriticSettings)["learning_rate"], "critic.learning_rate") == 1.0


def test_numbers_of_numpy_whole_floats_and_paths_are_taken_for_what_they_are():
    seed = kinds(TrainSettings)["seed"]
    assert type(fitted(np.int64(3), seed, "seed")) is int
    assert fitted(1e6, kinds(TrainSettings)["total_steps"], "total_steps") == 10**6
    assert type(fitted(np.float32(0.5), kinds(CriticSettings)["learning_rate"], "x")) is float
    assert fitted(Path("runs/a"), kinds(TrainSettings)["init_from"], "init_from") == "runs/a"
    for wrong in (1.5, np.float64(1.5), True, "1", 1j, np.arange(2)):
        with pytest.raises(ValueError, match=r"seed is .*; allowed: a whole number, 0 to"):
            fitted(wrong, seed, "seed")


def test_lists_are_tuples_and_dicts_are_groups_where_settings_are_made():
    """Outside the checks of types that tests run under: users have none of them."""
    code = (
        "from cmbpo.settings.schema import PolicySettings, TrainSettings\n"
        "made = TrainSettings(cost_limit=[5.0], policy={'hidden': [8, 8]})\n"
        "assert made.cost_limit == (5.0,)\n"
        "assert made.policy == PolicySettings(hidden=(8, 8))\n"
        "for wrong in (5, {'hiden': 8}, [8]):\n"
        "    try: TrainSettings(policy=wrong)\n"
        "    except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 3
    for line in said:
        assert re.match(r"policy is .*; allowed: a dict of settings, such as hidden", line)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ensemble.members": 2}, "ensemble.elites is 5; allowed: 1 to members = 2"),
        ({"rollout.max_horizon": 4}, "rollout.first_horizon is 5; allowed: 1 to max_horizon = 4"),
        ({"rollout.min_horizon": 41}, "rollout.min_horizon is 41; allowed: 1 to max_horizon = 40"),
        ({"real_share.min_real": 5001}, "min_real is 5001; allowed: 1 to max_real = 5000"),
        ({"algo": "TRPOLag"}, "algo is 'TRPOLag'; allowed: trpo-lag"),
        ({"preset": "fast"}, "preset is 'fast'; allowed: default, paper"),
        ({"policy.hidden": (8,) * 17}, "allowed: one to 16 of a whole number, 1 to 65,536"),
        ({"env.cost_key": ("a", "a")}, r"env.cost_key is \('a', 'a'\); allowed: .* each once"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        with_values(TrainSettings(), changes)
