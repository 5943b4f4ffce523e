"""Imagined trajectories, and where they are cut."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cmbpo.data.archive import Archive
from cmbpo.data.start_states import Starts
from cmbpo.model.disagreement import robust_mean
from cmbpo.model.world import World
from cmbpo.networks import Policy
from cmbpo.trajectory import Steps


class Cut(eqx.Module):
    """Where trajectories end: by length, by their own disagreement, by that of the batch.

    `horizon` is the longest trajectory, `budget` the most that one may accumulate, and
    `shared_budget` what the `quantile` of a batch may accumulate at its common horizon.
    """

    horizon: Int[Array, ""]
    budget: Float[Array, ""]
    shared_budget: Float[Array, ""]


def cut_rule(
    kind: Literal["batch", "trajectory", "schedule"],
    *,
    limit: Float[Array, ""] | float,
    max_horizon: int,
    schedule: tuple[int, int, int],
    update: Int[Array, ""] | int,
) -> Cut:
    """The rule by its name, at an update, for the limit d_H.

        trajectory:  Σ D_KL^E ≤ d_H for each (eq. 13, paper)
        batch:       for a quantile of the batch, and each at most a hundredfold
        schedule:    (a, b, n), a horizon from a to b over n updates

    A trajectory that is cut has not ended: V stands for what would have followed.
    """
    d_H, inf = jnp.asarray(limit, jnp.float32), jnp.array(jnp.inf)
    longest = jnp.array(max_horizon)
    if kind == "trajectory":
        return Cut(longest, d_H, inf)
    if kind == "batch":
        # Cut one by one, costly states would be missing from the batch: they are where the networks
        # disagree. The hundredfold only stops trajectories that have left all data.
        return Cut(longest, 100.0 * d_H, d_H)
    first, last, updates = schedule
    share = jnp.clip(jnp.asarray(update) / updates, 0.0, 1.0)
    horizon = jnp.floor(first + share * (last - first)).astype(jnp.int32)
    return Cut(horizon, inf, inf)


class Probe(eqx.Module):
    """What a few trajectories tell before a batch is imagined.

    `disagreement` is D̄ of steps that the rule admits, robust to outliers; `horizon` the longest
    trajectory of the batch.
    """

    disagreement: Float[Array, ""]
    horizon: Int[Array, ""]


class _Probing(NamedTuple):
    """Where probing trajectories are: the step, whether the shared budget is over, and each lane.

    `values` and `counted` are by step and lane: the disagreement, and whether it enters D̄.
    """

    t: Int[Array, ""]
    over: Bool[Array, ""]
    obs: Float[Array, "lanes obs"]
    alive: Bool[Array, " lanes"]
    spent: Float[Array, " lanes"]
    values: Float[Array, "T lanes"]
    counted: Bool[Array, "T lanes"]


def probe(
    world: World,
    policy: Policy,
    obs: Float[Array, "lanes obs"],
    cut: Cut,
    *,
    quantile: float,
    max_horizon: int,
    key: PRNGKeyArray,
) -> Probe:
    """Trajectories from `obs`, only to measure disagreement and the batch's common horizon.

    The horizon is the last step, at least 1, up to which the `quantile` over trajectories of
    accumulated disagreement stays within `cut.shared_budget`. D̄ is over the steps up to there,
    for each trajectory up to the step, included, that would exceed `cut.budget`.
    """
    lanes = obs.shape[0]
    keys = jax.random.split(key, max_horizon)

    def unfinished(now: _Probing) -> Bool[Array, ""]:
        in_time = now.t < jnp.minimum(cut.horizon, max_horizon)
        return in_time & ~now.over & jnp.any(now.alive)

    def step(now: _Probing) -> _Probing:
        moves = world.step(policy, now.obs, key=keys[now.t])
        # A lane that ended keeps what it spent: it was a trajectory of the batch like any other.
        spent = now.spent + jnp.where(now.alive, moves.disagreement, 0.0)
        # Written so that a NaN, of networks that exploded, counts as over the budget.
        over = ~(jnp.quantile(spent, quantile) <= cut.shared_budget)
        admitted = (now.t == 0) | ~over
        return _Probing(
            t=now.t + admitted,
            over=over,
            obs=moves.next_obs,
            alive=now.alive & ~moves.terminated & (spent <= cut.budget),
            spent=spent,
            values=now.values.at[now.t].set(moves.disagreement),
            counted=now.counted.at[now.t].set(now.alive & admitted),
        )

    zeros = jnp.zeros((max_horizon, lanes))
    start = _Probing(
        t=jnp.zeros((), jnp.int32),
        over=jnp.array(False),
        obs=obs,
        alive=jnp.ones(lanes, bool),
        spent=jnp.zeros(lanes),
        values=zeros,
        counted=zeros.astype(bool),
    )
    end = jax.lax.while_loop(unfinished, step, start)
    return Probe(
        disagreement=robust_mean(end.values, end.counted),
        horizon=jnp.where(end.over, end.t, cut.horizon),
    )


class Imagination(eqx.Module):
    """What a batch of imagined steps looks like. Rates are means over its valid steps.

    `length` is the mean over trajectories that began early enough to reach their horizon, or with
    the batch where that is longer: a full batch cuts off the others, and the more the longer they
    would have been.
    """

    rows: Int[Array, ""]
    length: Float[Array, ""]
    reward_rate: Float[Array, ""]
    cost_rate: Float[Array, " cost"]
    terminated: Float[Array, ""]


class _Imagining(NamedTuple):
    """Where a batch is: the steps of all lanes, the rows made, each lane, and the record so far."""

    t: Int[Array, ""]
    made: Int[Array, ""]
    obs: Float[Array, "lanes obs"]
    spent: Float[Array, " lanes"]
    length: Int[Array, " lanes"]
    record: Steps


def imagine(
    world: World,
    policy: Policy,
    archive: Archive,
    starts: Starts,
    cut: Cut,
    *,
    rows: Int[Array, ""] | int,
    steps: int,
    lanes: int,
    key: PRNGKeyArray,
) -> tuple[Steps, Imagination]:
    """At least `rows` valid steps, as far as `steps` × `lanes` hold them.

    Each lane imagines trajectories one after the other, from new start states. A trajectory ends in
    a terminal state, at `cut.horizon`, or where its next step would take the disagreement it has
    accumulated over `cut.budget` (eq. 13): that step is no valid row, and the one before it is the
    trajectory's last.
    """
    key_first, key_starts, key_steps = jax.random.split(key, 3)
    fresh = starts.draw(archive, (steps, lanes), key=key_starts)
    keys = jax.random.split(key_steps, steps)

    def unfinished(now: _Imagining) -> Bool[Array, ""]:
        return (now.t < steps) & (now.made < rows)

    def step(now: _Imagining) -> _Imagining:
        moves = world.step(policy, now.obs, key=keys[now.t])
        spent, length = now.spent + moves.disagreement, now.length + 1
        # Where the budget is over, the step is cut off: it is no row of the batch.
        valid = spent <= cut.budget
        last = moves.terminated | (length >= cut.horizon)
        row = Steps(
            obs=now.obs,
            act=moves.act,
            next_obs=moves.next_obs,
            reward=moves.reward,
            cost=moves.cost,
            terminated=moves.terminated,
            last=last,
            valid=valid,
        )
        ended = last | ~valid
        return _Imagining(
            t=now.t + 1,
            made=now.made + jnp.sum(valid),
            obs=jnp.where(ended[:, None], archive.obs[fresh[now.t]], moves.next_obs),
            spent=jnp.where(ended, 0.0, spent),
            length=jnp.where(ended, 0, length),
            record=jax.tree.map(lambda rows, x: rows.at[now.t].set(x), now.record, row),
        )

    zero, zeros = jnp.zeros((), jnp.int32), jnp.zeros((steps, lanes))
    nothing = Steps(
        obs=jnp.zeros((steps, lanes, archive.obs.shape[1])),
        act=jnp.zeros((steps, lanes, archive.act.shape[1])),
        next_obs=jnp.zeros((steps, lanes, archive.obs.shape[1])),
        reward=zeros,
        cost=jnp.zeros((steps, lanes, archive.cost.shape[1])),
        terminated=zeros.astype(bool),
        last=zeros.astype(bool),
        valid=zeros.astype(bool),
    )
    obs = archive.obs[starts.draw(archive, (lanes,), key=key_first)]
    start = _Imagining(
        t=zero,
        made=zero,
        obs=obs,
        spent=jnp.zeros(lanes),
        length=jnp.zeros(lanes, jnp.int32),
        record=nothing,
    )
    end = jax.lax.while_loop(unfinished, step, start)
    record = _close(end.record)
    longest = jnp.minimum(cut.horizon, end.t)
    return record, _describe(record, last_start=end.t - longest)


def _close(record: Steps) -> Steps:
    """A row that no valid row follows is its trajectory's last."""
    followed = jnp.concatenate([record.valid[1:], jnp.zeros_like(record.valid[:1])])
    valid = record.valid
    return eqx.tree_at(
        lambda s: (s.last, s.terminated),
        record,
        (valid & (record.last | ~followed), valid & record.terminated),
    )


def _describe(record: Steps, *, last_start: Int[Array, ""]) -> Imagination:
    """Lengths are of the trajectories that begin up to the step `last_start`."""
    rows, trajectories = jnp.sum(record.valid), jnp.sum(record.last)
    # The step after which each lane's trajectory before this one ended is where this one began.
    after = jnp.arange(1, record.valid.shape[0] + 1)[:, None]
    ended = jax.lax.cummax(jnp.where(record.last | ~record.valid, after, 0))
    began = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    counted = record.last & (began <= last_start)

    def mean(x: Float[Array, "T lanes"]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(record.valid, x, 0.0)) / jnp.maximum(rows, 1)

    return Imagination(
        rows=rows,
        length=jnp.sum(jnp.where(counted, after - began, 0)) / jnp.maximum(jnp.sum(counted), 1),
        reward_rate=mean(record.reward),
        cost_rate=jax.vmap(mean, in_axes=-1)(record.cost),
        terminated=jnp.sum(record.terminated) / jnp.maximum(trajectories, 1),
    )
