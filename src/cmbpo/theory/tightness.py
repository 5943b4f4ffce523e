"""How tight Boundary 4.1 is: over random problems, over the hardest ones, and in a picture.

cmbpo bound        draws boundary.png and prints the numbers (about a minute)
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cmbpo.theory.bound import Boundary, Cmdp, boundary, epsilon, saturated_epsilon, total_variation

SIZES = ((3, 2), (5, 4))
"""States and actions of the random problems."""


class Logits(eqx.Module):
    """Free numbers that `problem` turns into a CMDP and two policies."""

    transition: Float[Array, "*batch state act state"]
    model: Float[Array, "*batch state act state"]
    signal: Float[Array, "*batch state act state"]
    start: Float[Array, "*batch state"]
    policy: Float[Array, "*batch state act"]
    new_policy: Float[Array, "*batch state act"]

    def __init__(
        self, n_states: int, n_acts: int, *, scale: float | Float[Array, ""], key: PRNGKeyArray
    ):
        """Normal numbers; the larger `scale`, the nearer to a deterministic problem."""
        step, choice = (n_states, n_acts, n_states), (n_states, n_acts)
        shapes = (step, step, step, (n_states,), choice, choice)
        # one draw cut in pieces: six draws take ten times as long to compile
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        numbers = jnp.split(scale * jax.random.normal(key, (int(ends[-1]),)), ends[:-1])
        (self.transition, self.model, self.signal, self.start, self.policy, self.new_policy) = (
            x.reshape(shape) for x, shape in zip(numbers, shapes, strict=True)
        )


class Scales(eqx.Module):
    """The three numbers that Boundary 4.1 depends on beside δᵐᵃˣ."""

    eps_pi: Float[Array, "*batch"]
    eps_m: Float[Array, "*batch"]
    discount: Float[Array, "*batch"]


Step = tuple[Cmdp, Float[Array, "state act"], Float[Array, "state act"]]
"""A problem, π and π': what `boundary` takes."""


def towards(
    p: Float[Array, "*batch outcome"], q: Float[Array, "*batch outcome"], distance: Float[Array, ""]
) -> Float[Array, "*batch outcome"]:
    """The way from p to q, until the largest D_TV from p is `distance`, or to its end."""
    return p + jnp.minimum(1.0, distance / total_variation(p, q).max()) * (q - p)


def problem(logits: Logits, scales: Scales) -> Step:
    """A problem of these ε_π and ε_m (less where the logits' own ends are nearer)."""
    P, policy = jax.nn.softmax(logits.transition), jax.nn.softmax(logits.policy)
    cmdp = Cmdp(
        transition=P,
        model=towards(P, jax.nn.softmax(logits.model), scales.eps_m),
        signal=jnp.tanh(logits.signal),
        start=jax.nn.softmax(logits.start),
        discount=scales.discount,
    )
    return cmdp, policy, towards(policy, jax.nn.softmax(logits.new_policy), scales.eps_pi)


def random_step(n_states: int, n_acts: int, *, key: PRNGKeyArray) -> Step:
    """A problem by chance: ε_π, ε_m in [0.001, 0.5] and 1−γ in [0.01, 0.5], log-uniformly."""
    key_logits, key_scales = jax.random.split(key)
    low = jnp.log(jnp.array([1e-3, 1e-3, 0.01, 0.5]))
    high = jnp.log(jnp.array([0.5, 0.5, 0.5, 3.0]))
    eps_pi, eps_m, away, scale = jnp.exp(
        jax.random.uniform(key_scales, (4,), minval=low, maxval=high)
    )
    logits = Logits(n_states, n_acts, scale=scale, key=key_logits)
    return problem(logits, Scales(eps_pi=eps_pi, eps_m=eps_m, discount=1.0 - away))


def sharp_step(eps_pi: float, eps_m: float, discount: float) -> Step:
    """A problem whose error fills Boundary 4.1 as ε_π and ε_m go to 0, each up to ½.

    Two pairs of states; the walk starts in the first and never leaves the second. V_m is 0 and
    every residual is ±1. Action 0 is worth 0, action 1 is worth +1, action 2 −1, and π' turns to
    action 2 in the first pair, which leads to the second, where it turns to action 1. Of each
    step's probability the world moves ε_m away from the model's, to an end of the other sign. All
    terms of the proof then have one sign, and each of its inequalities is an equality up to higher
    powers of ε.
    """
    # for each pair and action: the model's ends, the world's way away from them, the signal
    table = np.array(
        [
            [
                [[0.5, 0.5, 0, 0], [-1, 0, 1, 0], [1, -1, -1, -1]],
                [[1, 0, 0, 0], [-1, 0, 1, 0], [1, -1, -1, -1]],
                [[0, 0, 1, 0], [1, 0, -1, 0], [1, 1, -1, -1]],
            ],
            [
                [[0, 0, 0.5, 0.5], [0, 0, 1, -1], [1, 1, 1, -1]],
                [[0, 0, 1, 0], [0, 0, -1, 1], [1, 1, 1, -1]],
                [[0, 0, 1, 0], [0, 0, -1, 1], [-1, -1, -1, 1]],
            ],
        ]
    )
    model, move, signal = np.moveaxis(np.repeat(table, 2, axis=0), 2, 0)
    policy = np.tile([1 - 2 * eps_pi, eps_pi, eps_pi], (4, 1))
    turn = eps_pi * np.array([[0, -1, 1]] * 2 + [[0, 1, -1]] * 2)
    cmdp = Cmdp(
        transition=jnp.asarray(model + eps_m * move),
        model=jnp.asarray(model),
        signal=jnp.asarray(signal),
        start=jnp.array([1.0, 0.0, 0.0, 0.0]),
        discount=jnp.asarray(discount),
    )
    return cmdp, jnp.asarray(policy), jnp.asarray(policy + turn)


def scaled_error(logits: Logits, scales: Scales) -> Float[Array, ""]:
    """|ΔJ − L/(1−γ)| in units of δᵐᵃˣ. Boundary 4.1 limits it to 4ε/(1−γ)."""
    reached = boundary(*problem(logits, scales))
    return reached.error / reached.delta_max


def climb(logits: Logits, scales: Scales, *, steps: int) -> tuple[Logits, Float[Array, ""]]:
    """Gradient ascent (Adam) on log `scaled_error`: the hardest problem met, and its error."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.05, steps))

    def step(carry, _):
        logits, opt_state, best, lowest = carry
        loss, gradient = jax.value_and_grad(lambda x: -jnp.log(scaled_error(x, scales)))(logits)
        best = jax.tree.map(lambda x, y: jnp.where(loss < lowest, x, y), logits, best)
        updates, opt_state = optimiser.update(gradient, opt_state)
        logits = optax.apply_updates(logits, updates)
        return (logits, opt_state, best, jnp.minimum(loss, lowest)), None

    opt_state = optimiser.init(logits)  # pyright: ignore[reportArgumentType]
    first = (logits, opt_state, logits, jnp.asarray(jnp.inf))
    (_, _, best, lowest), _ = jax.lax.scan(step, first, length=steps)
    return best, jnp.exp(-lowest)


def worst(
    scales: Scales, *, restarts: int, steps: int, key: PRNGKeyArray
) -> tuple[Logits, Float[Array, " scale"]]:
    """The hardest problem that ascent finds for each row of `scales`, and its scaled error."""
    keys = jax.random.split(key, restarts)
    starts = jax.vmap(lambda k: Logits(4, 3, scale=1.0, key=k))(keys)

    @jax.jit
    @jax.vmap
    def search(scales: Scales) -> tuple[Logits, Float[Array, ""]]:
        ends, error = jax.vmap(lambda start: climb(start, scales, steps=steps))(starts)
        top = error.argmax()
        return jax.tree.map(lambda x: x[top], ends), error[top]

    return search(scales)


def by_chance(n: int, *, key: PRNGKeyArray) -> Boundary:
    """Both sides of the boundary for `n` random problems, an equal number of each size."""
    parts = []
    for (n_states, n_acts), k in zip(SIZES, jax.random.split(key, len(SIZES)), strict=True):
        draw = jax.jit(
            jax.vmap(lambda k, s=n_states, a=n_acts: boundary(*random_step(s, a, key=k)))
        )
        parts.append(draw(jax.random.split(k, n // len(SIZES))))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def limits(scales: Scales) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """What Boundary 4.1 and its saturated form allow `scaled_error` to be."""
    numbers, factor = (scales.eps_pi, scales.eps_m, scales.discount), 4.0 / (1.0 - scales.discount)
    return factor * epsilon(*numbers), factor * saturated_epsilon(*numbers)


def draw_growth(
    axes: Axes, x: np.ndarray, scales: Scales, hardest: np.ndarray, *, key: PRNGKeyArray
) -> None:
    """Error against bound on logarithmic axes: what is typical, what is worst, the limits."""
    keys = jax.random.split(key, 400)
    starts = jax.vmap(lambda k: Logits(4, 3, scale=2.0, key=k))(keys)
    errors = jax.jit(jax.vmap(jax.vmap(scaled_error, (0, None)), (None, 0)))(starts, scales)
    low, middle, high = np.quantile(np.asarray(errors), [0.05, 0.5, 0.95], axis=1)
    paper, saturated = limits(scales)
    axes.plot(x, paper, color="black", label="Boundary 4.1")
    axes.plot(x, saturated, color="black", linestyle="--", label="saturated form")
    axes.plot(x, hardest, "o", color="#d55e00", label="hardest problem found")
    axes.fill_between(x, low, high, color="#0072b2", alpha=0.2, label="random problems, 5–95 %")
    axes.plot(x, middle, color="#0072b2", label="their median")
    axes.set(xscale="log", yscale="log", ylabel=r"$|\Delta J - L/(1-\gamma)|\ /\ \delta^{\max}$")


def draw_example(axes: Axes, logits: Logits, scales: Scales) -> None:
    """One problem on plain axes: the truth, the promise, and the band around the promise."""
    x = jnp.linspace(1e-4, scales.eps_pi, 60)
    way = jax.vmap(lambda e: boundary(*problem(logits, Scales(e, scales.eps_m, scales.discount))))(
        x
    )
    sign = jnp.sign(way.change - way.promise)[-1]
    middle = sign * way.promise
    axes.fill_between(
        x, middle - way.penalty, middle + way.penalty, color="0.9", label="Boundary 4.1"
    )
    axes.fill_between(
        x, middle - way.saturated, middle + way.saturated, color="0.78", label="saturated form"
    )
    axes.plot(x, middle, color="#0072b2", label=r"the model's promise $L/(1-\gamma)$")
    axes.plot(x, sign * way.change, color="#d55e00", label=r"the truth $\Delta J$")
    axes.set(xlabel=r"$\epsilon_\pi$", ylabel="change of return or cost")


def draw_ratios(axes: Axes, chance: Boundary, hardest: float) -> None:
    """How much of the bound the error uses, over random problems."""
    ratio = np.asarray(chance.error / chance.penalty)
    bins = np.geomspace(1e-6, 1.0, 61)
    axes.hist(ratio, bins.tolist(), color="#0072b2", alpha=0.5)
    median = np.median(ratio)
    axes.axvline(median, color="#0072b2", label=f"median {median:.2g}")
    axes.axvline(ratio.max(), color="#0072b2", linestyle=":", label=f"largest {ratio.max():.2g}")
    axes.axvline(hardest, color="#d55e00", label=f"gradient ascent {hardest:.3f}")
    axes.set(xscale="log", xlabel="error / bound", ylabel=f"of {len(ratio):,} random problems")


def main(out: Path) -> None:
    """Draw the picture at `out`; print how tight the bound is and where the picture is."""
    with jax.enable_x64(True):
        key_chance, key_worst, key_pi, key_m = jax.random.split(jax.random.key(0), 4)
        chance = by_chance(20_000, key=key_chance)
        grid, fixed = np.geomspace(1e-3, 0.5, 9), np.full(9, 0.03)
        # the rows of both growth panels, then the example's, then where the bound is tightest
        scales = Scales(
            eps_pi=jnp.asarray([*grid, *fixed, 0.03, 1e-4]),
            eps_m=jnp.asarray([*fixed, *grid, 0.03, 0.0]),
            discount=jnp.asarray([*np.full(19, 0.9), 0.5]),
        )
        problem, error = worst(scales, restarts=24, steps=4000, key=key_worst)
        paper, saturated = limits(scales)
        report(chance, scales, np.asarray(error / paper), np.asarray(error / saturated))

        figure = Figure(figsize=(11, 8), layout="constrained")
        (top_left, top_right), (low_left, low_right) = figure.subplots(2, 2)
        for axes, rows, key in ((top_left, slice(0, 9), key_pi), (top_right, slice(9, 18), key_m)):
            part = jax.tree.map(lambda x, rows=rows: x[rows], scales)
            draw_growth(axes, grid, part, np.asarray(error[rows]), key=key)
        draw_example(low_left, *jax.tree.map(lambda x: x[18], (problem, scales)))
        draw_ratios(low_right, chance, float(error[19] / paper[19]))
    top_left.set(
        title=r"The policy moves ($\epsilon_m = 0.03$, $\gamma = 0.9$)", xlabel=r"$\epsilon_\pi$"
    )
    top_right.set(
        title=r"The model errs ($\epsilon_\pi = 0.03$, $\gamma = 0.9$)", xlabel=r"$\epsilon_m$"
    )
    low_left.set_title(r"The hardest problem found at $\epsilon_\pi = \epsilon_m = 0.03$")
    low_right.set_title("How much of the bound is used")
    for axes in (top_left, low_left, low_right):
        axes.legend(frameon=False, fontsize=9)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=130)
    print(f"picture: {out}")


def report(
    chance: Boundary, scales: Scales, of_paper: np.ndarray, of_saturated: np.ndarray
) -> None:
    """Print the numbers behind the picture."""
    ratio = np.asarray(chance.error / chance.penalty)
    print(f"{len(ratio):,} random problems, error / bound: median {np.median(ratio):.2g}, ", end="")
    print(f"95 % below {np.quantile(ratio, 0.95):.2g}, largest {ratio.max():.2g}")
    print("hardest problems by gradient ascent, error as a part of the bound:")
    print("    ε_π     ε_m      γ   Boundary 4.1   saturated form")
    rows = zip(scales.eps_pi, scales.eps_m, scales.discount, of_paper, of_saturated, strict=True)
    for eps_pi, eps_m, discount, paper, saturated in rows:
        print(f"{eps_pi:7.4f} {eps_m:7.4f} {discount:6.2f} {paper:14.3f} {saturated:16.3f}")
