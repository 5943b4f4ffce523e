"""Whether an environment can be trained on, and what about it will hurt, line by line."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from jaxtyping import Float, Int
from rich.console import Console

from cmbpo.envs.adapter import EnvAdapter, adapt, adapted
from cmbpo.envs.cost_predictability import predictability
from cmbpo.envs.custom_task import CustomTask, complaints
from cmbpo.envs.failures import EnvironmentFailure, Guard
from cmbpo.envs.making import Environment, horizon_of, maker, require_made, time_limit
from cmbpo.envs.random_steps import Transitions, random_steps
from cmbpo.envs.spaces import action_refusal, entry_names, observation_refusal
from cmbpo.settings.registry import is_built_in
from cmbpo.settings.schema import EnvSettings

STEPS = 10_000
"""Random steps that an environment is judged by."""
FEW = 100
"""Steps of the rarer of two costs below which nothing is said of whether observations tell it."""
SLOW = 1e-3
"""Seconds of a step from which on a process for each copy is worth its overhead."""
STYLES = {"fine": "green", "hurts": "yellow", "refused": "bold red"}


class Finding(NamedTuple):
    """One line: what was looked at, how it is, and what to do about it."""

    verdict: Literal["fine", "hurts", "refused"]
    sentence: str


def fine(sentence: str) -> Finding:
    """Nothing to do."""
    return Finding("fine", sentence)


def hurts(sentence: str) -> Finding:
    """It trains, but worse than it could."""
    return Finding("hurts", sentence)


def refused(sentence: str) -> Finding:
    """It does not train."""
    return Finding("refused", sentence)


def examine(env: Environment, settings: EnvSettings, *, steps: int = STEPS) -> Iterator[Finding]:
    """Look at an environment, one finding after the other; ends early where nothing more works."""
    make = maker(env)
    try:
        with Guard(settings.timeout)("Making it"):
            first = make()
        require_made(first)
    except EnvironmentFailure as failure:
        yield refused(str(failure))
        return
    spaces = list(_spaces(first))
    yield from spaces
    if any(finding.verdict == "refused" for finding in spaces):
        return
    limit = _time_limit(first, settings.horizon)
    yield limit
    horizon = settings.horizon or time_limit(first) or 1000
    if limit.verdict == "refused":
        settings = replace(settings, horizon=None if time_limit(first) else horizon)
    try:
        one = adapt(first, settings.cost_key, timeout=settings.timeout)
        began = time.perf_counter()
        rows = random_steps(one, steps, horizon=horizon, seed=0)
        seconds = (time.perf_counter() - began) / steps
        other = adapted(make, settings.cost_key, timeout=settings.timeout)
        repeats = _repeats(one, other, horizon)
    except EnvironmentFailure as failure:
        yield refused(str(failure))
        return
    yield _speed(seconds)
    yield repeats
    yield from _numbers(rows)
    yield from _endings(rows, horizon)
    for i, name in enumerate(settings.cost_key):
        yield from _cost(rows, i, name, horizon)
    yield from _functions(make, one, settings, rows)


def _spaces(env: gymnasium.Env) -> Iterator[Finding]:
    for problem, space, what in (
        (observation_refusal(env.observation_space), env.observation_space, "observation"),
        (action_refusal(env.action_space), env.action_space, "action"),
    ):
        if problem is not None:
            yield refused(problem)
        else:
            several = (
                f", the {len(space.spaces)} entries of a Dict" if isinstance(space, Dict) else ""
            )
            yield fine(f"{what}: a vector of {len(entry_names(space))}{several}")
    if isinstance(env.action_space, Box):
        stuck = np.flatnonzero(env.action_space.low == env.action_space.high)
        if 0 < len(stuck) < env.action_space.low.size:
            yield hurts(f"entries of the action whose low and high are the same: {_listed(stuck)}")


def _listed(indices: Int[np.ndarray, " n"]) -> str:
    return "index " + ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")


def _time_limit(env: gymnasium.Env, asked: int | None) -> Finding:
    try:
        return fine(f"episodes are truncated after {horizon_of(env, 'it', asked)} steps")
    except ValueError as error:
        return refused(str(error))


def _speed(seconds: float) -> Finding:
    told = f"{1.0 / seconds:,.0f} steps a second in one copy"
    if seconds < SLOW:
        return fine(f"{told}: copies in line (the default) are fastest")
    return hurts(f"{told}: --env.copies processes runs each copy in a process of its own")


def _repeats(one: EnvAdapter, other: EnvAdapter, horizon: int, steps: int = 200) -> Finding:
    first, second = (random_steps(env, steps, horizon=horizon, seed=1) for env in (one, other))
    for name, a, b in zip(Transitions._fields, first, second, strict=True):
        if not np.array_equal(a, b, equal_nan=True):
            step = int(np.argmax((a != b).reshape(len(a), -1).any(axis=1)))
            return hurts(
                f"not repeatable: after the same reset(seed=…) and actions, {name} differs in step"
                f" {step}; draw every random number from self.np_random"
            )
    return fine(f"repeatable: the same seed and actions gave the same {steps} steps to the bit")


def _numbers(rows: Transitions) -> Iterator[Finding]:
    sound = np.isfinite(rows.next_obs).all(axis=1) & np.isfinite(rows.reward)
    if not sound.all():
        yield hurts(
            f"{(~sound).mean():.1%} of the steps have observations or rewards that are not finite;"
            " they count as terminal, earn nothing and cost at least 1"
        )
    seen = rows.obs[np.isfinite(rows.obs).all(axis=1)]
    still = np.flatnonzero((seen == seen[:1]).all(axis=0) & (len(seen) > 0))
    if len(still):
        yield hurts(f"entries of the observation that never change: {_listed(still)}")
    if not still.size and sound.all():
        yield fine("observations and rewards are finite, and every observation moves")


def _endings(rows: Transitions, horizon: int) -> Iterator[Finding]:
    ends = np.flatnonzero(rows.terminated | rows.truncated)
    if not len(ends):
        yield fine("no episode ended")
        return
    lengths = np.diff(ends, prepend=-1)
    ended = rows.terminated[ends]
    early = ~ended & (lengths < horizon)
    if early.any():
        yield hurts(
            f"{early.sum()} of {len(ends)} episodes were truncated by the environment before its"
            f" time limit of {horizon}; they count as whole episodes, and the cost limit, which is"
            f" for {horizon} steps, holds for their cost per {horizon} steps"
        )
    if len(ends) > 2 and ended.all() and len(set(lengths)) == 1:
        yield hurts(
            f"every episode terminated after exactly {lengths[0]} steps: a time limit should be"
            " truncated, not terminated, or its value is learned as zero"
        )
        return
    yield fine(
        f"{ended.mean():.0%} of {len(ends)} episodes terminated, after {lengths.mean():.0f} steps"
        " on average"
    )


def _cost(rows: Transitions, which: int, name: str, horizon: int) -> Iterator[Finding]:
    cost = rows.cost[:, which]
    finite = np.isfinite(cost)
    if not finite.any():
        yield refused(f"{name!r} was {cost[0]} in the first and finite in no step; allowed: finite")
        return
    if not finite.all():
        yield hurts(
            f"{name!r} is not finite in {(~finite).mean():.1%} of the steps; they count as"
            " terminal, earn nothing and cost 1"
        )
    cost = np.where(rows.sound, cost, np.where(finite, np.maximum(cost, 1.0), 1.0))
    if (cost < 0).any():
        yield hurts(
            f"{name!r} is negative in {(cost < 0).mean():.1%} of the steps: that buys off others"
        )
    paid = int(np.count_nonzero(cost))
    told = (
        f"{name!r}: {np.mean(cost) * horizon:.3g} per {horizon} steps with random actions,"
        f" not 0 in {paid / len(cost):.2%} of the steps, largest {cost.max():.3g}"
    )
    if not paid:
        yield hurts(
            f"{name!r} was 0 in all of {len(cost):,} random steps: either random actions are safe,"
            " or it is never set"
        )
        return
    yield fine(told)
    if cost.max() <= 1.0 and cost.min() >= 0.0:
        yield fine(f"{name!r} is within 0 and 1 a step: --critic.bound-cost may be set")
    sound = Transitions(*(part[rows.sound] for part in rows))
    yield from _clue_observations(sound, cost[rows.sound], name)


def _clue_observations(
    rows: Transitions, cost: Float[np.ndarray, " n"], name: str
) -> Iterator[Finding]:
    values, counts = np.unique(cost, return_counts=True)
    if len(values) < 2:
        yield hurts(f"{name!r} was {cost[0]:g} in all sound steps: random actions change nothing")
        return
    if len(values) == 2 and counts.min() < FEW:
        rarer = int(np.argmin(counts))
        yield hurts(
            f"{name!r} was {values[rarer]:g} in {counts[rarer]} steps only, too few to say whether"
            " observations tell it"
        )
        return
    clue = predictability(rows.obs, rows.act, rows.next_obs, cost, seed=0)
    told = (
        f"observations tell {name!r}: on steps not fitted, {clue.measure} {clue.score:.2f} where"
        f" guessing gives {clue.base:.2f}"
    )
    if clue.score - clue.base >= 0.5 * (1.0 - clue.base):
        yield fine(told)
    else:
        yield hurts(
            told.replace("tell", "hardly tell", 1)
            + "; CMBPO imagines costs from observations, so let it see what costs depend on"
        )


def _functions(
    make: Callable[..., gymnasium.Env],
    env: EnvAdapter,
    settings: EnvSettings,
    rows: Transitions,
    steps: int = 1000,
) -> Iterator[Finding]:
    unlimited = (np.inf,) * len(settings.cost_key)
    task = CustomTask(make, name="", cost_limits=unlimited, settings=settings)
    some = Transitions(*(part[:steps] for part in rows))
    wrong = complaints(task, some)
    yield from (refused(complaint) for complaint in wrong)
    for name, offered in (("cost", task.knows_cost), ("terminated", task.knows_termination)):
        told = f"{name}(obs, act, next_obs)"
        if not offered and env.has_wrapper_attr(name):
            yield fine(
                f"what it has as {name!r} is no function {told} and is not used: CMBPO learns it"
                " (the others need none)"
            )
        elif not offered:
            yield fine(f"no function {told} is offered: CMBPO learns it (the others need none)")
        elif not any(f" {told}" in complaint for complaint in wrong):
            yield fine(f"its function {told} agrees with {len(some.obs)} steps, on JAX arrays")


def main(env: str, settings: EnvSettings) -> bool:
    """Print the findings; whether the environment can be trained on."""
    console, trainable, warned = Console(highlight=False), True, 0
    if is_built_in(env):
        console.print(f"{env} is a task of this package and needs no check")
        return True
    for finding in examine(env, settings):
        console.print(f"{finding.verdict:<8}", style=STYLES[finding.verdict], end="")
        console.print(finding.sentence, soft_wrap=True, markup=False)
        trainable &= finding.verdict != "refused"
        warned += finding.verdict == "hurts"
    if trainable:
        console.print(f"{env} can be trained on; lines that hurt: {warned}")
    else:
        console.print(f"{env} cannot be trained on yet")
    return trainable
