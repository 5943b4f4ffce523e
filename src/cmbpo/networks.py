"""The networks: perceptrons, the policies π_θ(a|s), the value functions V and V_c."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Activation = Callable[[Float[Array, " n"]], Float[Array, " n"]]


class Linear(eqx.Module):
    """x ↦ Wx + b, with W random in Glorot's way at the start and b zero."""

    weight: Float[Array, "n_out n_in"]
    bias: Float[Array, " n_out"]

    def __init__(self, n_in: int, n_out: int, *, scale: float, key: PRNGKeyArray):
        """Draw W from U(−w, w), w = `scale` · √(6/(n_in + n_out))."""
        w = scale * (6.0 / (n_in + n_out)) ** 0.5
        self.weight = jax.random.uniform(key, (n_out, n_in), minval=-w, maxval=w)
        self.bias = jnp.zeros(n_out)

    def __call__(self, x: Float[Array, " n_in"]) -> Float[Array, " n_out"]:
        """Wx + b."""
        # As x Wᵀ: of a batch the result then lies row by row, and nothing is transposed.
        return x @ self.weight.T + self.bias


class Mlp(eqx.Module):
    """A multilayer perceptron with a linear last layer.

    With `layer_norm`, what each hidden layer gives its activation has mean 0 and deviation 1.
    """

    layers: tuple[Linear, ...]
    activation: Activation = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)

    def __init__(
        self,
        widths: tuple[int, ...],
        *,
        activation: Activation,
        last_scale: float = 1.0,
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        """Connect `widths`, from input to output."""
        scales = [1.0] * (len(widths) - 2) + [last_scale]
        keys = jax.random.split(key, len(scales))
        self.layers = tuple(
            Linear(n_in, n_out, scale=scale, key=k)
            for n_in, n_out, scale, k in zip(widths, widths[1:], scales, keys, strict=False)
        )
        self.activation = activation
        self.layer_norm = layer_norm

    def __call__(self, x: Float[Array, " n_in"]) -> Float[Array, " n_out"]:
        """The output for one input."""
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x)
            if self.layer_norm:
                x = jax.nn.standardize(x)
            x = self.activation(x)
        return last(x)


class Normaliser(eqx.Module):
    """x ↦ (x − mean)/std, and back."""

    mean: Float[Array, "*members n"]
    std: Float[Array, "*members n"]

    def __call__(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """In standard units."""
        return (x - self.mean) / self.std

    def undo(self, z: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Back from standard units."""
        return z * self.std + self.mean


def identity_normaliser(n: int) -> Normaliser:
    """The normaliser that changes nothing."""
    return Normaliser(jnp.zeros(n), jnp.ones(n))


class Gaussian(eqx.Module):
    """A normal distribution with diagonal covariance, over actions."""

    mean: Float[Array, "*batch act"]
    log_std: Float[Array, "*batch act"]

    @property
    def noiseless(self) -> Float[Array, "*batch act"]:
        """The action without noise: the mean."""
        return self.mean

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*batch act"]:
        """One draw."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, act: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        """log p(a) = −½ Σ ((a−μ)/σ)² + 2 log σ + log 2π."""
        z = (act - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2 + 2.0 * self.log_std + jnp.log(2.0 * jnp.pi), axis=-1)

    def kl(self, other: "Gaussian") -> Float[Array, "*batch"]:
        """KL(self ‖ other) = Σ log(σ'/σ) + (σ² + (μ−μ')²)/(2σ'²) − ½."""
        variance = jnp.exp(2.0 * (self.log_std - other.log_std))
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return jnp.sum(other.log_std - self.log_std + 0.5 * (variance + z**2 - 1.0), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """Σ log σ + ½ log 2πe."""
        return jnp.sum(self.log_std + 0.5 * jnp.log(2.0 * jnp.pi * jnp.e), axis=-1)


class SquashedGaussian(eqx.Module):
    """The distribution of a = tanh(u), u normal with diagonal covariance: never beyond ±1."""

    mean: Float[Array, "*batch act"]
    log_std: Float[Array, "*batch act"]

    @property
    def noiseless(self) -> Float[Array, "*batch act"]:
        """The action without noise: tanh of the mean, which is the median."""
        return jnp.tanh(self.mean)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*batch act"]:
        """One draw."""
        return self.draw(jax.random.normal(key, self.mean.shape))[0]

    def draw(
        self, noise: Float[Array, "*batch act"]
    ) -> tuple[Float[Array, "*batch act"], Float[Array, "*batch"]]:
        """The action that a standard normal draw makes, and the log-density of that action.

        log π(a) = log N(u; μ, σ²) − Σ log(1 − a²), with 1 − tanh²(u) = 4/(eᵘ + e⁻ᵘ)², whose
        logarithm is taken as 2(log 2 − u − log(1 + e⁻²ᵘ)): no action is too close to its bound.
        """
        before = self.mean + jnp.exp(self.log_std) * noise
        slope = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
        normal = Gaussian(self.mean, self.log_std).log_prob(before)
        return jnp.tanh(before), normal - jnp.sum(slope, axis=-1)


class Actor(eqx.Module):
    """A policy as those know it who act with it, whatever its distribution."""

    net: eqx.AbstractVar[Mlp]
    normaliser: eqx.AbstractVar[Normaliser]

    @abstractmethod
    def __call__(self, obs: Float[Array, " obs"]) -> Gaussian | SquashedGaussian:
        """The distribution over actions in one state."""

    @abstractmethod
    def act(self, obs: Float[Array, " obs"], noise: Float[Array, " act"]) -> Float[Array, " act"]:
        """The action that a standard normal draw makes in one state."""


class Policy(Actor):
    """π_θ(a|s): a Gaussian with a tanh network as mean and one deviation for all states.

    θ is (`net`, `log_std`). `normaliser` and `noise`, the factor on the deviation, are no part of
    θ: an update keeps them. Where the policy `compresses`, the net sees sign(z)·log(1 + |z|) of an
    observation z in standard units: those units are of the first steps, later states lie tens of
    them away, and tanh is flat there.
    """

    net: Mlp
    log_std: Float[Array, " act"]
    normaliser: Normaliser
    noise: Float[Array, ""]
    compresses: bool = eqx.field(static=True)

    def __init__(
        self,
        n_obs: int,
        n_act: int,
        *,
        hidden: tuple[int, ...],
        log_std: float,
        last_layer_scale: float,
        compresses: bool = False,
        key: PRNGKeyArray,
    ):
        """An untrained policy."""
        widths = (n_obs, *hidden, n_act)
        self.compresses = compresses
        self.net = Mlp(widths, activation=jnp.tanh, last_scale=last_layer_scale, key=key)
        self.log_std = jnp.full(n_act, log_std, dtype=float)
        self.normaliser = identity_normaliser(n_obs)
        self.noise = jnp.ones(())

    @property
    def log_deviation(self) -> Float[Array, " act"]:
        """log σ of the actions."""
        return self.log_std + jnp.log(self.noise)

    def __call__(self, obs: Float[Array, " obs"]) -> Gaussian:
        """The distribution over actions in one state."""
        return Gaussian(self.net(self.seen(obs)), self.log_deviation)

    def seen(self, obs: Float[Array, " obs"]) -> Float[Array, " obs"]:
        """What the net sees of an observation."""
        z = self.normaliser(obs)
        return jnp.sign(z) * jnp.log1p(jnp.abs(z)) if self.compresses else z

    def act(self, obs: Float[Array, " obs"], noise: Float[Array, " act"]) -> Float[Array, " act"]:
        """μ(s) + σ·noise."""
        return self(obs).mean + jnp.exp(self.log_deviation) * noise


LOG_STD_RANGE = (-5.0, 2.0)
"""Where the deviation of a squashed policy stays, before the tanh."""


class SquashedPolicy(Actor):
    """π_θ(a|s): tanh of a Gaussian whose mean and deviation both are the state's.

    `net` has ReLU layers and returns both, the means first. `normaliser` is no part of θ.
    """

    net: Mlp
    normaliser: Normaliser

    def __init__(
        self,
        n_obs: int,
        n_act: int,
        *,
        hidden: tuple[int, ...],
        log_std: float,
        last_layer_scale: float,
        key: PRNGKeyArray,
    ):
        """An untrained policy."""
        widths = (n_obs, *hidden, 2 * n_act)
        net = Mlp(widths, activation=jax.nn.relu, last_scale=last_layer_scale, key=key)
        first = jnp.concatenate([jnp.zeros(n_act), jnp.full(n_act, log_std, dtype=float)])
        self.net = eqx.tree_at(lambda n: n.layers[-1].bias, net, first)
        self.normaliser = identity_normaliser(n_obs)

    def __call__(self, obs: Float[Array, " obs"]) -> SquashedGaussian:
        """The distribution over actions in one state."""
        mean, log_std = jnp.split(self.net(self.normaliser(obs)), 2)
        return SquashedGaussian(mean, jnp.clip(log_std, *LOG_STD_RANGE))

    def act(self, obs: Float[Array, " obs"], noise: Float[Array, " act"]) -> Float[Array, " act"]:
        """tanh(μ(s) + σ(s)·noise)."""
        return self(obs).draw(noise)[0]


class Critic(eqx.Module):
    """A value function: the mean of several networks, in standard units inside."""

    members: Mlp
    input: Normaliser
    output: Normaliser

    def __init__(self, n_obs: int, *, hidden: tuple[int, ...], members: int, key: PRNGKeyArray):
        """Untrained networks, independent of each other, with values near zero."""
        widths = (n_obs, *hidden, 1)

        def member(k: PRNGKeyArray) -> Mlp:
            # Near zero at first: the first advantages are then rewards, not noise of the networks.
            return Mlp(widths, activation=jax.nn.silu, last_scale=0.01, key=k)

        self.members = jax.vmap(member)(jax.random.split(key, members))
        self.input = identity_normaliser(n_obs)
        self.output = identity_normaliser(1)

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, ""]:
        """V(s)."""
        standard = jax.vmap(lambda net: net(self.input(obs)))(self.members)
        return self.output.undo(standard.mean(axis=0))[0]
