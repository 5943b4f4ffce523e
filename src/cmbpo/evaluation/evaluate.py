"""Episodes without learning: what a policy earns and costs, with and without its noise."""

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

from cmbpo import columns, streams
from cmbpo.envs.find import find_task
from cmbpo.envs.simulator import Simulator
from cmbpo.evaluation import evaluated
from cmbpo.evaluation.evaluated import KINDS, Episodes, cost_label
from cmbpo.evaluation.video import check_name, film, require_pictures
from cmbpo.networks import Actor, Policy, SquashedPolicy
from cmbpo.runs.errors import DamagedError, RunError
from cmbpo.runs.run_folder import Run
from cmbpo.runs.tables import read_table
from cmbpo.runs.tail_cost import NAME
from cmbpo.settings.registry import ALGORITHMS
from cmbpo.tasks.task import Task

Watch = Callable[[str, float], None]
"""Told which kind of episodes run, and how much of them is done."""
Say = Callable[[str], object]
"""Told in sentences what went wrong in the copies."""


class Evaluation(NamedTuple):
    """Episodes of a policy, from the same starts with the mean action and with drawn ones."""

    deterministic: Episodes
    stochastic: Episodes
    cost_limits: tuple[float, ...]
    cost_names: tuple[str, ...]
    horizon: int = 1000

    def __str__(self) -> str:
        """The table as text."""
        console = Console(width=100, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get().rstrip()

    def table(self) -> Table:
        """Both side by side."""
        sides = (self.deterministic, self.stochastic)
        table = Table(caption="± 95 % confidence interval of the mean (Student's t over episodes)")
        table.add_column("")
        for name in KINDS:
            table.add_column(name, justify="right")
        table.add_row("return", *(str(side.mean_return()) for side in sides))
        for i, (name, limit) in enumerate(zip(self.cost_names, self.cost_limits, strict=True)):
            label = cost_label(name, self.cost_names)
            table.add_row(f"{label} per episode", *(str(side.mean_cost(i)) for side in sides))
            tails = (f"{side.tail_cost(i):,.2f}" for side in sides)
            table.add_row(f"{label} of the costliest tenth of episodes ({NAME})", *tails)
            rates = [side.cost_rate(i, self.horizon) for side in sides]
            styles = ["green" if rate.mean <= limit else "bold red" for rate in rates]
            cells = (f"[{s}]{rate}[/]" for s, rate in zip(styles, rates, strict=True))
            table.add_row(f"{label} per {self.horizon} steps (limit {limit:g})", *cells)
        table.add_row("episode length", *(str(side.mean_length()) for side in sides))
        shares = (f"{side.within(self.cost_limits, self.horizon):.0%}" for side in sides)
        table.add_row("episodes within the limit", *shares)
        return table


def evaluate(
    policy: Actor,
    task: Task,
    *,
    episodes: int = 20,
    seed: int = 1_000_000,
    cost_limits: Sequence[float] | None = None,
    watch: Watch = lambda kind, share: None,
    say: Say = warnings.warn,
) -> Evaluation:
    """Run so many episodes of each kind; `cost_limits` are the task's own unless given.

    What goes wrong in the copies is said.
    """
    if type(episodes) is not int or episodes < 1:
        raise ValueError(f"episodes is {episodes!r}; allowed: a whole number, at least 1")
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}; allowed: a whole number, 0 to {2**32 - 1:,}")
    deterministic, stochastic = (
        run_episodes(
            policy,
            task,
            episodes=episodes,
            deterministic=kind == "deterministic",
            seed=seed,
            watch=partial(watch, kind),
            say=say,
        )
        for kind in KINDS
    )
    return Evaluation(
        deterministic,
        stochastic,
        cost_limits=tuple(cost_limits or task.cost_limits),
        cost_names=tuple(task.cost_names),
        horizon=task.horizon,
    )


def run_episodes(
    policy: Actor,
    task: Task,
    *,
    episodes: int,
    deterministic: bool,
    seed: int,
    watch: Callable[[float], None] = lambda share: None,
    say: Say = warnings.warn,
) -> Episodes:
    """Whole episodes, side by side; what goes wrong in the copies is said.

    How many each copy contributes is fixed beforehand: to take those that end first would favour
    short ones.
    """
    copies = min(episodes, task.most_copies)
    wanted = np.full(copies, episodes // copies) + (np.arange(copies) < episodes % copies)
    returns, lengths = np.zeros(copies), np.zeros(copies, int)
    costs = np.zeros((copies, len(task.cost_names)))
    rows: list[list[tuple[float, np.ndarray, int, bool]]] = [[] for _ in range(copies)]
    time = 0
    with closing(Simulator(task, copies, seed=seed)) as simulator:
        while any(len(row) < n for row, n in zip(rows, wanted, strict=True)):
            obs = simulator.obs.astype(np.float32)
            act = _actions(policy, obs, deterministic, seed, time)
            step = simulator.step(np.asarray(act))
            time += 1
            returns, costs, lengths = returns + step.reward, costs + step.cost, lengths + 1
            for i in np.flatnonzero(step.terminated | step.truncated):
                # Copies that are done go on unrecorded: their number is part of the program.
                if len(rows[i]) < wanted[i]:
                    rows[i].append((returns[i], costs[i].copy(), lengths[i], step.terminated[i]))
                returns[i], costs[i], lengths[i] = 0.0, 0.0, 0
            begun = [len(row) + n / task.horizon for row, n in zip(rows, lengths, strict=True)]
            watch(float(np.minimum(begun, wanted).sum() / episodes))
            for sentence in simulator.mishaps.take_sentences():
                say(sentence)
    finished = [episode for row in rows for episode in row]
    return Episodes(*(np.array(column) for column in zip(*finished, strict=True)))


def act(
    policy: Actor, obs: Float[np.ndarray, "*batch obs"], deterministic: bool = True, seed: int = 0
) -> Float[np.ndarray, "*batch act"]:
    """The action for one observation, or those for a batch: the mean, or drawn with `seed`."""
    rows = obs.astype(np.float32).reshape(-1, obs.shape[-1])
    drawn = np.asarray(_actions(policy, rows, deterministic, seed, 0))
    return drawn.reshape(*obs.shape[:-1], drawn.shape[-1])


@jax.jit
def _actions(
    policy: Actor,
    obs: Float[Array | np.ndarray, "N obs"],
    deterministic: bool | Array,
    seed: int | Array,
    time: int | Array,
) -> Float[Array, "N act"]:
    pi = jax.vmap(policy)(jnp.asarray(obs))
    drawn = pi.sample(key=jax.random.fold_in(jax.random.key(seed), time))
    return jnp.clip(jnp.where(deterministic, pi.noiseless, drawn), -1.0, 1.0)


def load_policy(run: Run, task: Task, *, best: bool = False) -> Actor:
    """The policy of a run's newest good checkpoint, or the best that was within the limit."""
    settings = run.settings.policy
    kind = {
        # what a policy sees is no array of a checkpoint: only the settings tell
        "Gaussian": partial(Policy, compresses=settings.compress),
        "squashed": SquashedPolicy,
    }[ALGORITHMS[run.settings.algo].policy]
    template = jax.eval_shape(
        lambda: kind(
            len(task.obs_names),
            len(task.act_names),
            hidden=settings.hidden,
            log_std=settings.log_std,
            last_layer_scale=settings.last_layer_scale,
            key=jax.random.key(0),
        )
    )
    if isinstance(template, Policy):
        # A policy of an older version says nothing of it.
        template = eqx.tree_at(lambda p: p.noise, template, jnp.ones(()))
    under = "learner/policy"
    policy = run.load_best(template).state if best else run.load(template, under=under)
    for path, leaf in jax.tree_util.tree_leaves_with_path(policy):
        if not np.isfinite(leaf).all():
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise RunError(
                f"the policy of {run.folder} has numbers in {name!r} that are not finite: it"
                " cannot act"
            )
    return policy


def steps_of(run: Run, *, best: bool = False) -> int | None:
    """The real steps that the policy has seen, where the records tell."""
    if best:
        return run.notes_of_best()["env_steps"]
    for path in run.checkpoints():
        try:
            rows = run.notes_of(path)["tables"][run.progress.path.name]["rows"]
        except DamagedError:
            continue
        try:
            steps = read_table(run.progress.path).get(columns.ENV_STEPS, np.zeros(0))
        except RunError:
            return None
        told = 0 < rows <= len(steps) and steps.dtype == float and np.isfinite(steps[rows - 1])
        return int(steps[rows - 1]) if told else None
    return None


def main(
    folder: Path,
    *,
    episodes: int,
    seed: int,
    video: Path | None = None,
    out: Path | None = None,
    best: bool = False,
    trusted: bool = False,
) -> None:
    """Evaluate a run folder and print the result; with `video`, film one deterministic episode.

    With `out`, the return, cost and length of every episode are written there.

    The module of an environment that the run names is imported only where it is `trusted`.
    """
    if video is not None:
        check_name(video)
    if out is not None:
        evaluated.require_place(out)
    run = Run.open(folder, trusted=trusted)
    task = find_task(run.settings, trusted=trusted)
    policy = load_policy(run, task, best=best)
    limits = run.settings.cost_limit
    if video is not None:
        require_pictures(task)
    with streams.bars(*KINDS) as watch:
        result = evaluate(
            policy,
            task,
            episodes=episodes,
            seed=seed,
            cost_limits=limits,
            watch=watch,
            say=partial(print, file=sys.stderr),
        )
    console = Console()
    which = "the best policy within the limit, " if best else ""
    words = f"{run.folder}: {which}{episodes} episodes of each kind, seed {seed}"
    console.print(words, highlight=False, markup=False)
    console.print(result.table())
    if out is not None:
        kept = evaluated.Evaluated(
            run=run.id,
            env_steps=steps_of(run, best=best) or 0,
            best=best,
            seed=seed,
            horizon=task.horizon,
            cost_names=tuple(task.cost_names),
            cost_limits=result.cost_limits,
            deterministic=result.deterministic,
            stochastic=result.stochastic,
        )
        evaluated.write(out, kept)
        print(f"episodes: {out}")
    if video is not None:
        with streams.bars("video") as watch:
            made = film(
                lambda obs: act(policy, obs),
                task,
                video,
                seed=seed,
                cost_limits=limits,
                watch=partial(watch, "video"),
            )
        print(f"video: {video}{made.remark()}")
