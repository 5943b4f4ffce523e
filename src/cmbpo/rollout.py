"""Imagined trajectories: where they start, where they are cut."""

from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cmbpo.archive import Archive
from cmbpo.collect import Steps
from cmbpo.dynamics import Ensemble, predict
from cmbpo.networks import Policy
from cmbpo.uncertainty import disagreement, robust_mean

FARTHEST = 8.0
"""Standard deviations of the data beyond which no imagined state lies."""


@runtime_checkable
class KnownTask(Protocol):
    """What is known of a task without its simulator."""

    def costs(self, obs: Array, act: Array, next_obs: Array) -> Array:
        """Costs of steps, one column for each constraint."""
        ...

    def terminated(self, obs: Array, act: Array, next_obs: Array) -> Array:
        """Whether steps lead to terminal states."""
        ...


class Starts(eqx.Module):
    """Pr(π_k) of the past policies, newest first, and where their rows lie in the archive."""

    probability: Float[Array, " K"]
    first: Int[Array, " K"]
    count: Int[Array, " K"]

    def effective(self) -> Float[Array, ""]:
        """Effective number of policies: 1/Σ Pr²."""
        return 1.0 / jnp.sum(self.probability**2)

    def draw(
        self, archive: Archive, shape: tuple[int, ...], *, key: PRNGKeyArray
    ) -> Int[Array, "..."]:
        """Positions of start states: a policy by its probability, then any of its rows."""
        key_policy, key_row = jax.random.split(key)
        cumulative = jnp.cumsum(self.probability)
        u = jax.random.uniform(key_policy, shape) * cumulative[-1]
        k = jnp.clip(jnp.searchsorted(cumulative, u, side="right"), 0, self.count.shape[0] - 1)
        within = (jax.random.uniform(key_row, shape) * self.count[k]).astype(jnp.int32)
        return archive.by_age(self.first[k] + jnp.minimum(within, self.count[k] - 1))


def past_policies(
    archive: Archive,
    policy: Policy,
    *,
    temperature: float,
    policies: int = 1024,
    samples: int = 8192,
    key: PRNGKeyArray,
) -> Starts:
    """Boltzmann distribution over past policies (section IV).

        Pr(π_k) ∝ exp(−β · mean KL(π ‖ π_k) over states of π_k)

    The means are over a sample of the archive, evenly spread over it. Policies older than the
    newest `policies` count as one.
    """
    newest = archive.epoch[archive.by_age(archive.size - 1)]
    age = jnp.clip(newest - archive.epoch, 0, policies - 1)
    filled = jnp.arange(archive.capacity) < archive.size
    count = jnp.zeros(policies, jnp.int32).at[age].add(filled.astype(jnp.int32))
    first = archive.size - jnp.cumsum(count)

    jitter = jax.random.uniform(key, (samples,))
    spread = (jnp.arange(samples) + jitter) * (archive.size / samples)
    rows = archive.by_age(jnp.minimum(spread.astype(jnp.int32), archive.size - 1))
    behaviour = jax.tree.map(lambda x: x[rows], archive.behaviour)
    kl = jax.vmap(policy)(archive.obs[rows]).kl(behaviour)
    seen = jnp.zeros(policies).at[age[rows]].add(1.0)
    mean_kl = jnp.zeros(policies).at[age[rows]].add(kl) / jnp.maximum(seen, 1.0)
    logit = jnp.where((count > 0) & (seen > 0), -temperature * jnp.maximum(mean_kl, 0.0), -jnp.inf)
    return Starts(jax.nn.softmax(logit), first, count)


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

    trajectory: Σ D_KL^E ≤ d_H for each (eq. 11, paper); batch: for a quantile of the batch, and
    each at most a hundredfold; schedule: (a, b, n), a horizon from a to b over n updates.
    """
    d_H, inf = jnp.asarray(limit, jnp.float32), jnp.array(jnp.inf)
    longest = jnp.array(max_horizon)
    if kind == "trajectory":
        return Cut(longest, d_H, inf)
    if kind == "batch":
        return Cut(longest, 100.0 * d_H, d_H)
    first, last, updates = schedule
    share = jnp.clip(jnp.asarray(update) / updates, 0.0, 1.0)
    horizon = jnp.floor(first + share * (last - first)).astype(jnp.int32)
    return Cut(horizon, inf, inf)


class Moves(eqx.Module):
    """One imagined step of trajectories side by side."""

    act: Float[Array, "*batch act"]
    next_obs: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "*batch cost"]
    terminated: Bool[Array, "*batch"]
    disagreement: Float[Array, "*batch"]


class World(eqx.Module):
    """The learned world: the ensemble's dynamics and reward, the task's own cost and end."""

    ensemble: Ensemble
    task: KnownTask = eqx.field(static=True)
    cost_over_members: bool = eqx.field(static=True)

    def step(self, policy: Policy, obs: Float[Array, "lanes obs"], *, key: PRNGKeyArray) -> Moves:
        """An action of the policy, and the mean prediction of a random elite for each.

        The cost is the mean over all networks' next states, or that of the chosen one.
        """
        key_act, key_elite = jax.random.split(key)
        lanes, n_obs = obs.shape
        act = jax.vmap(policy)(obs).sample(key=key_act)
        prediction = predict(self.ensemble, obs, act)
        elite = jax.random.choice(key_elite, self.ensemble.elites, (lanes,))
        chosen = prediction.mean[elite, jnp.arange(lanes)]
        data = self.ensemble.input
        lowest = (data.mean - FARTHEST * data.std)[:n_obs]
        highest = (data.mean + FARTHEST * data.std)[:n_obs]

        def moved(delta: Float[Array, "lanes obs"]) -> Float[Array, "lanes obs"]:
            return jnp.clip(obs + delta, lowest[None], highest[None])

        next_obs = moved(chosen[:, :n_obs])
        if self.cost_over_members:
            cost = jax.vmap(lambda mean: self.task.costs(obs, act, moved(mean[:, :n_obs])))(
                prediction.mean
            ).mean(axis=0)
        else:
            cost = self.task.costs(obs, act, next_obs)
        return Moves(
            act=act,
            next_obs=next_obs,
            reward=chosen[:, n_obs],
            cost=cost,
            terminated=self.task.terminated(obs, act, next_obs),
            disagreement=disagreement(prediction),
        )


class Probe(eqx.Module):
    """What a few trajectories tell before a batch is imagined.

    `disagreement` is D̄ of steps that the rule admits, robust to outliers; `horizon` the longest
    trajectory of the batch; `accumulated` the quantile of accumulated disagreement at its end.
    """

    disagreement: Float[Array, ""]
    horizon: Int[Array, ""]
    accumulated: Float[Array, ""]


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

    def unfinished(state: tuple) -> Bool[Array, ""]:
        t, over, _, alive, *_ = state
        return (t < jnp.minimum(cut.horizon, max_horizon)) & ~over & jnp.any(alive)

    def step(state: tuple) -> tuple:
        t, _, obs, alive, spent, accumulated, values, counted = state
        moves = world.step(policy, obs, key=keys[t])
        spent = spent + jnp.where(alive, moves.disagreement, 0.0)
        now = jnp.quantile(spent, quantile)
        over = ~(now <= cut.shared_budget)
        admitted = (t == 0) | ~over
        return (
            t + admitted,
            over,
            moves.next_obs,
            alive & ~moves.terminated & (spent <= cut.budget),
            spent,
            jnp.where(admitted, now, accumulated),
            values.at[t].set(moves.disagreement),
            counted.at[t].set(alive & admitted),
        )

    zeros = jnp.zeros((max_horizon, lanes))
    start = (
        jnp.zeros((), jnp.int32),
        jnp.array(False),
        obs,
        jnp.ones(lanes, bool),
        jnp.zeros(lanes),
        jnp.zeros(()),
        zeros,
        zeros.astype(bool),
    )
    t, over, _, _, _, accumulated, values, counted = jax.lax.while_loop(unfinished, step, start)
    return Probe(
        disagreement=robust_mean(values, counted),
        horizon=jnp.where(over, t, cut.horizon),
        accumulated=accumulated,
    )


class Imagination(eqx.Module):
    """What a batch of imagined steps looks like. Rates are means over its valid steps."""

    rows: Int[Array, ""]
    length: Float[Array, ""]
    disagreement: Float[Array, ""]
    reward_rate: Float[Array, ""]
    cost_rate: Float[Array, " cost"]
    terminated: Float[Array, ""]


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
    accumulated over `cut.budget` (eq. 11): that step is no valid row, and the one before it is the
    trajectory's last.
    """
    key_first, key_starts, key_steps = jax.random.split(key, 3)
    fresh = starts.draw(archive, (steps, lanes), key=key_starts)
    keys = jax.random.split(key_steps, steps)

    def unfinished(state: tuple) -> Bool[Array, ""]:
        t, made, *_ = state
        return (t < steps) & (made < rows)

    def step(state: tuple) -> tuple:
        t, made, obs, spent, length, record, values = state
        moves = world.step(policy, obs, key=keys[t])
        spent, length = spent + moves.disagreement, length + 1
        valid = spent <= cut.budget
        last = moves.terminated | (length >= cut.horizon)
        row = Steps(
            obs=obs,
            act=moves.act,
            next_obs=moves.next_obs,
            reward=moves.reward,
            cost=moves.cost,
            terminated=moves.terminated,
            last=last,
            valid=valid,
        )
        ended = last | ~valid
        return (
            t + 1,
            made + jnp.sum(valid),
            jnp.where(ended[:, None], archive.obs[fresh[t]], moves.next_obs),
            jnp.where(ended, 0.0, spent),
            jnp.where(ended, 0, length),
            jax.tree.map(lambda rows, x: rows.at[t].set(x), record, row),
            values.at[t].set(moves.disagreement),
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
    start = (zero, zero, obs, jnp.zeros(lanes), jnp.zeros(lanes, jnp.int32), nothing, zeros)
    *_, record, values = jax.lax.while_loop(unfinished, step, start)
    record = _close(record)
    return record, _describe(record, values)


def _close(record: Steps) -> Steps:
    """A row that no valid row follows is its trajectory's last."""
    followed = jnp.concatenate([record.valid[1:], jnp.zeros_like(record.valid[:1])])
    valid = record.valid
    return eqx.tree_at(
        lambda s: (s.last, s.terminated),
        record,
        (valid & (record.last | ~followed), valid & record.terminated),
    )


def _describe(record: Steps, values: Float[Array, "T lanes"]) -> Imagination:
    rows, trajectories = jnp.sum(record.valid), jnp.sum(record.last)

    def mean(x: Float[Array, "T lanes"]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(record.valid, x, 0.0)) / jnp.maximum(rows, 1)

    return Imagination(
        rows=rows,
        length=rows / jnp.maximum(trajectories, 1),
        disagreement=mean(values),
        reward_rate=mean(record.reward),
        cost_rate=jax.vmap(mean, in_axes=-1)(record.cost),
        terminated=jnp.sum(record.terminated) / jnp.maximum(trajectories, 1),
    )
