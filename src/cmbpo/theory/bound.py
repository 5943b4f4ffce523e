"""Boundary 4.1: what a model's promise is worth, exact on finite CMDPs and estimated on a run.

Everything exact is linear algebra in float64: build the problem and call inside
`jax.enable_x64(True)`. The printed formulas hold slips; deviations.md lists them.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from cmbpo.policy.linear_solve import solve


class Cmdp(eqx.Module):
    """A finite problem: the world P, its model P_m, one signal (reward or any cost), μ and γ."""

    transition: Float[Array, "*batch state act state"]
    model: Float[Array, "*batch state act state"]
    signal: Float[Array, "*batch state act state"]
    start: Float[Array, "*batch state"]
    discount: Float[Array, "*batch"]


class Boundary(eqx.Module):
    """Both sides of Boundary 4.1 and of Lemma 1, and all that they are made of.

    Boundary 4.1: |change − promise| ≤ penalty. Lemma 1: visit_shift ≤ visit_limit.
    `saturated` is a smaller penalty, valid as well; see `saturated_epsilon`.
    """

    change: Float[Array, "*batch"]
    promise: Float[Array, "*batch"]
    penalty: Float[Array, "*batch"]
    saturated: Float[Array, "*batch"]
    delta_max: Float[Array, "*batch"]
    eps_pi: Float[Array, "*batch"]
    eps_m: Float[Array, "*batch"]
    visit_shift: Float[Array, "*batch"]
    visit_limit: Float[Array, "*batch"]

    @property
    def error(self) -> Float[Array, "*batch"]:
        """|ΔJ − L/(1−γ)|, how far the promise is from what happens."""
        return jnp.abs(self.change - self.promise)


def total_variation(
    p: Float[Array, "*batch outcome"], q: Float[Array, "*batch outcome"]
) -> Float[Array, "*batch"]:
    """D_TV(p‖q) = ½ Σₓ |p(x) − q(x)|."""
    return 0.5 * jnp.abs(p - q).sum(-1)


def chain(
    transition: Float[Array, "state act state"], policy: Float[Array, "state act"]
) -> Float[Array, "state state"]:
    """P^π(s'|s) = Σₐ π(a|s)·P(s'|s,a), one row for each s."""
    return jnp.einsum("sa,sat->st", policy, transition)


def visits(
    transition: Float[Array, "state act state"],
    policy: Float[Array, "state act"],
    start: Float[Array, " state"],
    discount: Float[Array, ""],
) -> Float[Array, " state"]:
    """d^π = (1−γ) Σₜ γᵗ Pr(sₜ = ·) = (1−γ)(I − γP^πᵀ)⁻¹ μ, the discounted state distribution."""
    # Diagonally dominant, so that elimination needs no exchange of rows.
    flow = jnp.eye(len(start)) - discount * chain(transition, policy)
    return (1.0 - discount) * solve(flow.T, start[:, None])[:, 0]


def values(
    transition: Float[Array, "state act state"],
    policy: Float[Array, "state act"],
    signal: Float[Array, "state act state"],
    discount: Float[Array, ""],
) -> Float[Array, " state"]:
    """V^π = (I − γP^π)⁻¹ r^π with r^π(s) = E[r(s,a,s')]. The return is J(π) = μ·V^π."""
    expected = jnp.einsum("sa,sat,sat->s", policy, transition, signal)
    flow = jnp.eye(len(expected)) - discount * chain(transition, policy)
    return solve(flow, expected[:, None])[:, 0]


def residual(
    signal: Float[Array, "state act state"],
    value: Float[Array, " state"],
    discount: Float[Array, ""],
) -> Float[Array, "state act state"]:
    """δ(s,a,s') = r(s,a,s') + γ·V(s') − V(s). Its mean over s' ~ P_m is A_m if V is V_m."""
    return signal + (discount * value)[None, None, :] - value[:, None, None]


def epsilon(
    eps_pi: Float[Array, "*batch"], eps_m: Float[Array, "*batch"], discount: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """ε = ε_π·ε_m + γ/(1−γ)·(ε_π² + 2·ε_π·ε_m)."""
    return eps_pi * eps_m + discount / (1.0 - discount) * (eps_pi**2 + 2.0 * eps_pi * eps_m)


def saturated_epsilon(
    eps_pi: Float[Array, "*batch"], eps_m: Float[Array, "*batch"], discount: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """ε' = ε_π·ε_m + ε_π·g(ε_π + ε_m − ε_π·ε_m) + ε_m·g(ε_π) ≤ ε, with g(x) = γx/(1 − γ + γx).

    Two chains whose steps differ by at most x in total variation can be coupled to agree up to
    step t with probability (1−x)ᵗ, so ½‖d − d'‖₁ ≤ (1−γ) Σₜ γᵗ(1 − (1−x)ᵗ) = g(x). The paper's
    Lemma 1 has γx/(1−γ) in its place, the tangent of g at 0, which grows without end.
    """

    def shift(x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        return discount * x / (1.0 - discount + discount * x)

    both = eps_pi + eps_m - eps_pi * eps_m
    return eps_pi * eps_m + eps_pi * shift(both) + eps_m * shift(eps_pi)


def boundary(
    cmdp: Cmdp, policy: Float[Array, "state act"], new_policy: Float[Array, "state act"]
) -> Boundary:
    """Boundary 4.1 and Lemma 1 for the step from π to π'.

    | J(π') − J(π) − L/(1−γ) | ≤ 4·δᵐᵃˣ·ε/(1−γ)
    L = E_{s ~ d_m^π, a ~ π'}[A_m^π(s,a)],   δᵐᵃˣ = max |r(s,a,s') + γ·V_m^π(s') − V_m^π(s)|
    ε_π = maxₛ D_TV(π'‖π),   ε_m = maxₛₐ D_TV(P‖P_m)
    ‖d^π' − d_m^π‖₁ ≤ 2γ/(1−γ)·(E_{d_m^π}[D_TV(π'‖π)] + E_{d_m^π, π}[D_TV(P‖P_m)])
    """
    if cmdp.transition.dtype != jnp.float64:
        raise ValueError(
            f"the boundary needs float64, not {cmdp.transition.dtype}: "
            "build the problem and call inside `jax.enable_x64(True)`"
        )
    P, P_m, r, mu, gamma = cmdp.transition, cmdp.model, cmdp.signal, cmdp.start, cmdp.discount
    change = mu @ (values(P, new_policy, r, gamma) - values(P, policy, r, gamma))

    delta = residual(r, values(P_m, policy, r, gamma), gamma)
    advantage = (P_m * delta).sum(-1)
    d_m = visits(P_m, policy, mu, gamma)
    surrogate = d_m @ (new_policy * advantage).sum(-1)

    tv_pi, tv_m = total_variation(new_policy, policy), total_variation(P, P_m)
    eps_pi, eps_m, delta_max = tv_pi.max(), tv_m.max(), jnp.abs(delta).max()
    scale = 4.0 * delta_max / (1.0 - gamma)
    mean_tv = d_m @ tv_pi + d_m @ (policy * tv_m).sum(-1)
    return Boundary(
        change=change,
        promise=surrogate / (1.0 - gamma),
        penalty=scale * epsilon(eps_pi, eps_m, gamma),
        saturated=scale * saturated_epsilon(eps_pi, eps_m, gamma),
        delta_max=delta_max,
        eps_pi=eps_pi,
        eps_m=eps_m,
        visit_shift=jnp.abs(visits(P, new_policy, mu, gamma) - d_m).sum(),
        visit_limit=2.0 * gamma / (1.0 - gamma) * mean_tv,
    )


class Practical(eqx.Module):
    """What problem (9) assumes of one update, and what came of it.

    `eps_pi`, `eps_m` and `epsilon` are dimensionless; the changes are in cost per horizon.
    """

    eps_pi: Float[Array, ""]
    eps_m: Float[Array, ""]
    epsilon: Float[Array, ""]
    predicted_cost_change: Float[Array, " cost"]
    real_cost_change: Float[Array, " cost"]


def practical(
    *,
    kl: Float[Array, ""],
    disagreement: Float[Array, ""],
    cost_surrogate: Float[Array, " cost"],
    cost_before: Float[Array, " cost"],
    cost_after: Float[Array, " cost"],
    discount: float,
) -> Practical:
    """The practical form of Boundary 4.1, problem (9), by Pinsker's inequality.

        ε_π ≈ √(E[KL(π'‖π)]/2),   ε_m ≈ √(D̄/2),   each at most 1, as a total variation is

    `kl` is the mean over states and `disagreement` the mean D̄_KL^E over the batch's states and
    actions, both in nats *of the whole vector* (a mean over dimensions must be multiplied by their
    number first). `cost_surrogate` is horizon·L_c at the step taken; `cost_before` and `cost_after`
    are the real J_c of π and π'; all three are in cost per horizon.
    Means stand for the boundary's maxima and ensemble disagreement for model error: these are
    estimates to watch, not a guarantee.
    """
    eps_pi, eps_m = jnp.minimum(jnp.sqrt(jnp.maximum(jnp.stack([kl, disagreement]), 0.0) / 2), 1.0)
    return Practical(
        eps_pi=eps_pi,
        eps_m=eps_m,
        epsilon=epsilon(eps_pi, eps_m, jnp.asarray(discount, eps_pi.dtype)),
        predicted_cost_change=cost_surrogate,
        real_cost_change=cost_after - cost_before,
    )
