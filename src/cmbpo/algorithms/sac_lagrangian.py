"""SAC-L: soft actor-critic on values that multipliers penalise, from a replay buffer."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from cmbpo.networks import Mlp, SquashedPolicy
from cmbpo.policy import lagrangian
from cmbpo.policy.lagrangian import PidMultiplier
from cmbpo.policy.soft_actor import policy_loss, temperature_gradient
from cmbpo.policy.soft_critic import SoftCritics, after_the_end, pessimistic, soft_target, track
from cmbpo.settings.schema import TrainSettings

LEARNING_RATE = 3e-4
"""Adam's step size for critics, policy and temperature."""
FIRST_TEMPERATURE = 0.1
"""α before the first update, in rewards' units."""
LEAST_LIMIT = 0.01
"""Share of the horizon that a limit counts as at least, where the excess is divided by it."""

ADAM = optax.adam(LEARNING_RATE)


class SoftLearner(eqx.Module):
    """All that the gradient steps change; `slow` are the critics that targets are made from."""

    policy: SquashedPolicy
    policy_opt: PyTree
    critics: SoftCritics
    critics_opt: PyTree
    slow: SoftCritics
    log_temperature: Float[Array, ""]
    temperature_opt: PyTree


class Batch(eqx.Module):
    """Transitions in the units of the critics: `signal` is the reward, and each cost negated."""

    obs: Float[Array, "batch obs"]
    act: Float[Array, "batch act"]
    next_obs: Float[Array, "batch obs"]
    signal: Float[Array, "batch signal"]
    terminated: Bool[Array, " batch"]


class Pressure(eqx.Module):
    """What the gradient steps of an update are told of the costs.

    λ, and the mean cost of a step, both in the units of the critics.
    """

    multiplier: Float[Array, " cost"]
    cost_rate: Float[Array, " cost"]


class SoftStep(eqx.Module):
    """What a gradient step saw: losses, mean targets of each signal, entropy of the policy."""

    critic_loss: Float[Array, " signal"]
    target: Float[Array, " signal"]
    policy_loss: Float[Array, ""]
    entropy: Float[Array, ""]


def start(
    n_obs: int, n_act: int, n_cost: int, settings: TrainSettings, *, key: PRNGKeyArray
) -> SoftLearner:
    """An untrained policy and untrained critics."""
    key_policy, key_critics = jax.random.split(key)
    p = settings.policy
    policy = SquashedPolicy(
        n_obs,
        n_act,
        hidden=p.hidden,
        log_std=p.log_std,
        last_layer_scale=p.last_layer_scale,
        key=key_policy,
    )
    hidden = settings.critic.hidden
    critics = SoftCritics(n_obs, n_act, 1 + n_cost, hidden=hidden, key=key_critics)
    log_temperature = jnp.log(jnp.full((), FIRST_TEMPERATURE, dtype=float))
    return SoftLearner(
        policy=policy,
        policy_opt=ADAM.init(policy.net),  # pyright: ignore[reportArgumentType]
        critics=critics,
        critics_opt=ADAM.init(critics),  # pyright: ignore[reportArgumentType]
        slow=jax.tree.map(jnp.copy, critics),
        log_temperature=log_temperature,
        temperature_opt=ADAM.init(log_temperature),
    )


def follow(
    multiplier: PidMultiplier,
    cost: Float[Array, " cost"],
    target: Float[Array, " cost"],
    *,
    horizon: int,
    gains: tuple[float, float, float],
) -> PidMultiplier:
    """The multipliers after real steps that cost J_c per horizon.

    The controller gets (J_c − d)/d, at most 2. A limit of next to nothing counts as one step in a
    hundred there: it is divided by.
    """
    excess = lagrangian.relative(cost - target, target, least=LEAST_LIMIT * horizon)
    # J_c is an average over recent updates already.
    return lagrangian.control(multiplier, excess, gains=gains, smoothing=0.0)


def critic_step(
    learner: SoftLearner,
    batch: Batch,
    pressure: Pressure,
    *,
    settings: TrainSettings,
    key: PRNGKeyArray,
) -> tuple[SoftLearner, SoftStep]:
    """One step of Adam on ½(Q_k − y_k)² of both networks of every signal."""
    s, n_cost = settings.advantage, pressure.multiplier.size
    standard = jax.vmap(learner.policy.normaliser)
    next_act, log_prob = jax.vmap(learner.policy)(batch.next_obs).draw(
        jax.random.normal(key, batch.act.shape)
    )
    ahead = pessimistic(jax.vmap(learner.slow)(standard(batch.next_obs), next_act))
    discount = jnp.array([s.discount] + [s.cost_discount] * n_cost)
    end = after_the_end(pressure.cost_rate, cost_discount=s.cost_discount)
    temperature = jnp.exp(learner.log_temperature)

    def target(signal: Array, value: Array, log_prob: Array, terminated: Array) -> Array:
        return soft_target(
            signal,
            value,
            log_prob,
            terminated,
            discount=discount,
            temperature=temperature,
            terminal_value=end,
        )

    wanted = jax.vmap(target)(batch.signal, ahead, log_prob, batch.terminated)

    def loss(critics: SoftCritics) -> tuple[Array, Array]:
        error = jax.vmap(critics)(standard(batch.obs), batch.act) - wanted[:, :, None]
        each = 0.5 * jnp.mean(error**2, axis=(0, 2))
        return each.sum(), each

    gradient, losses = jax.grad(loss, has_aux=True)(learner.critics)
    change, opt = ADAM.update(gradient, learner.critics_opt)
    critics = optax.apply_updates(learner.critics, change)  # pyright: ignore[reportArgumentType]
    slow = track(learner.slow, critics)  # pyright: ignore[reportArgumentType]
    moved = replace(learner, critics=critics, critics_opt=opt, slow=slow)
    zero = jnp.zeros(())
    return moved, SoftStep(losses, wanted.mean(axis=0), policy_loss=zero, entropy=zero)


def policy_step(
    learner: SoftLearner, obs: Float[Array, "batch obs"], pressure: Pressure, *, key: PRNGKeyArray
) -> tuple[SoftLearner, Float[Array, ""], Float[Array, ""]]:
    """One step of Adam each for the policy and its temperature; their loss and entropy."""
    n_act = learner.policy.net.layers[-1].bias.size // 2
    noise = jax.random.normal(key, (len(obs), n_act))

    def loss(net: Mlp) -> tuple[Array, Array]:
        return policy_loss(
            _with_net(learner.policy, net),
            learner.critics,
            obs,
            noise,
            temperature=jnp.exp(learner.log_temperature),
            multiplier=pressure.multiplier,
        )

    (value, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(learner.policy.net)
    change, opt = ADAM.update(gradient, learner.policy_opt)
    net = optax.apply_updates(learner.policy.net, change)  # pyright: ignore[reportArgumentType]
    policy = _with_net(learner.policy, net)  # pyright: ignore[reportArgumentType]
    cooling, temperature_opt = ADAM.update(
        temperature_gradient(entropy, n_act=n_act), learner.temperature_opt
    )
    moved = replace(
        learner,
        policy=policy,
        policy_opt=opt,
        log_temperature=optax.apply_updates(learner.log_temperature, cooling),
        temperature_opt=temperature_opt,
    )
    return moved, value, entropy


def _with_net(policy: SquashedPolicy, net: Mlp) -> SquashedPolicy:
    return eqx.tree_at(lambda p: p.net, policy, net)


def improve(
    learner: SoftLearner,
    draw: Callable[[PRNGKeyArray], Batch],
    pressure: Pressure,
    *,
    settings: TrainSettings,
    real_steps: int,
    key: PRNGKeyArray,
) -> tuple[SoftLearner, SoftStep]:
    """For each real step, `replay.ratio` steps of the critics and one of the policy.

    Each on a batch of its own from `draw`; the record is the mean of all steps.
    """

    def turn(learner: SoftLearner, key: PRNGKeyArray) -> tuple[SoftLearner, SoftStep]:
        key_policy, key_batch, *_ = keys = jax.random.split(key, 2 + settings.replay.ratio)

        def fit(learner: SoftLearner, key: PRNGKeyArray) -> tuple[SoftLearner, SoftStep]:
            key_draw, key_act = jax.random.split(key)
            return critic_step(learner, draw(key_draw), pressure, settings=settings, key=key_act)

        learner, steps = jax.lax.scan(fit, learner, keys[2:])
        step = jax.tree.map(lambda x: x.mean(axis=0), steps)
        learner, loss, entropy = policy_step(learner, draw(key_batch).obs, pressure, key=key_policy)
        return learner, replace(step, policy_loss=loss, entropy=entropy)

    learner, steps = jax.lax.scan(turn, learner, jax.random.split(key, real_steps))
    return learner, jax.tree.map(lambda x: x.mean(axis=0), steps)
