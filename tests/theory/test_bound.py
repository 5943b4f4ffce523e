"""Boundary 4.1 and Lemma 1 against their definitions, their limits and the printed slips."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.theory.bound import (
    Cmdp,
    boundary,
    chain,
    epsilon,
    practical,
    residual,
    saturated_epsilon,
    total_variation,
    values,
    visits,
)
from cmbpo.theory.tightness import Logits, Scales, problem, random_step

ROUNDING = 1e-10
compiled_boundary = jax.jit(boundary)
compiled_problem = jax.jit(problem)


@pytest.fixture(autouse=True)
def doubles(x64):
    """Everything here is exact, so in float64."""


def one_step(seed=0, n_states=4, n_acts=3, eps_pi=0.2, eps_m=0.1, discount=0.8):
    logits = Logits(n_states, n_acts, scale=2.0, key=jax.random.key(seed))
    scales = Scales(*(jnp.asarray(x) for x in (eps_pi, eps_m, discount)))
    return compiled_problem(logits, scales)


def by_simulation(transition, policy, signal, start, discount, steps=400):
    """Returns and visits by walking the distribution of states, one step after the other."""
    state, total, seen = np.array(start), 0.0, np.zeros(len(start))
    for t in range(steps):
        flow = state[:, None, None] * np.asarray(policy)[:, :, None] * np.asarray(transition)
        total += discount**t * (flow * np.asarray(signal)).sum()
        seen += (1 - discount) * discount**t * state
        state = flow.sum((0, 1))
    return total, seen


def test_returns_and_visits_are_those_of_a_walk():
    cmdp, policy, _ = one_step()
    for transition in (cmdp.transition, cmdp.model):
        total, seen = by_simulation(transition, policy, cmdp.signal, cmdp.start, 0.8)
        value = values(transition, policy, cmdp.signal, cmdp.discount)
        np.testing.assert_allclose(cmdp.start @ value, total, rtol=1e-12)
        np.testing.assert_allclose(
            visits(transition, policy, cmdp.start, cmdp.discount), seen, rtol=1e-10
        )


def test_both_sides_are_their_definitions():
    cmdp, policy, new = one_step()
    got = compiled_boundary(cmdp, policy, new)
    P, P_m, r, mu, pi, pi_new = (
        np.asarray(x) for x in (cmdp.transition, cmdp.model, cmdp.signal, cmdp.start, policy, new)
    )
    n_states, n_acts = pi.shape
    before, _ = by_simulation(P, pi, r, mu, 0.8)
    after, seen_new = by_simulation(P, pi_new, r, mu, 0.8)
    _, seen = by_simulation(P_m, pi, r, mu, 0.8)
    v_m = [by_simulation(P_m, pi, r, np.eye(n_states)[s], 0.8)[0] for s in range(n_states)]

    surrogate = delta_max = eps_pi = eps_m = mean_tv = 0.0
    for s in range(n_states):
        tv_pi = 0.5 * sum(abs(pi_new[s, a] - pi[s, a]) for a in range(n_acts))
        eps_pi, mean_tv = max(eps_pi, tv_pi), mean_tv + seen[s] * tv_pi
        for a in range(n_acts):
            tv_m = 0.5 * sum(abs(P[s, a, t] - P_m[s, a, t]) for t in range(n_states))
            eps_m, mean_tv = max(eps_m, tv_m), mean_tv + seen[s] * pi[s, a] * tv_m
            advantage = 0.0
            for t in range(n_states):
                delta = r[s, a, t] + 0.8 * v_m[t] - v_m[s]
                delta_max = max(delta_max, abs(delta))
                advantage += P_m[s, a, t] * delta
            surrogate += seen[s] * pi[s, a] * pi_new[s, a] / pi[s, a] * advantage

    eps = eps_pi * eps_m + 4.0 * (eps_pi**2 + 2 * eps_pi * eps_m)
    expected = {
        "change": after - before,
        "promise": surrogate / 0.2,
        "penalty": 4 * delta_max * eps / 0.2,
        "delta_max": delta_max,
        "eps_pi": eps_pi,
        "eps_m": eps_m,
        "visit_shift": np.abs(seen_new - seen).sum(),
        "visit_limit": 2 * 0.8 / 0.2 * mean_tv,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(got, name), value, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("size", [(2, 2), (5, 3)])
@pytest.mark.parametrize("kind", ["return", "cost"])
def test_both_bounds_hold_on_random_problems(size, kind):
    @jax.jit
    @jax.vmap
    def draw(key):
        cmdp, policy, new = random_step(*size, key=key)
        if kind == "cost":  # an unsafe state either costs or not
            cost = jnp.where(cmdp.signal > 0.3, 1.0, 0.0)
            cmdp = Cmdp(cmdp.transition, cmdp.model, cost, cmdp.start, cmdp.discount)
        return boundary(cmdp, policy, new)

    got = draw(jax.random.split(jax.random.key(len(kind)), 2_000))
    assert got.error.max() > 0.01
    assert (got.error <= got.saturated + ROUNDING).all()
    assert (got.saturated <= got.penalty + ROUNDING).all()
    assert (got.visit_shift <= got.visit_limit + ROUNDING).all()


def test_both_bounds_hold_where_everything_is_deterministic():
    @jax.jit
    @jax.vmap
    def draw(key):
        logits = Logits(4, 3, scale=300.0, key=key)
        ends = Scales(jnp.asarray(1.0), jnp.asarray(1.0), jnp.asarray(0.9))
        return boundary(*problem(logits, ends))

    got = draw(jax.random.split(jax.random.key(3), 1_000))
    assert np.median(got.eps_pi) > 0.99
    assert np.median(got.eps_m) > 0.99
    assert (got.error <= got.saturated + ROUNDING).all()
    assert (got.visit_shift <= got.visit_limit + ROUNDING).all()


def test_the_same_policy_is_predicted_exactly_however_wrong_the_model():
    cmdp, policy, _ = one_step(eps_m=0.9)
    got = compiled_boundary(cmdp, policy, policy)
    assert got.eps_m > 0.3
    np.testing.assert_allclose([got.change, got.promise, got.penalty], 0.0, atol=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_with_a_perfect_model_the_bound_is_cpos_with_its_means_made_maxima(seed):
    cmdp, policy, new = one_step(seed, eps_m=0.0)
    got, gamma = compiled_boundary(cmdp, policy, new), 0.8
    value = values(cmdp.transition, policy, cmdp.signal, cmdp.discount)
    delta = residual(cmdp.signal, value, cmdp.discount)
    advantage = (cmdp.transition * delta).sum(-1)
    d = visits(cmdp.transition, policy, cmdp.start, cmdp.discount)
    expected = (new * advantage).sum(-1)

    # Achiam et al. 2017, corollary 1, the paper's (6)
    cpo = (
        2 * gamma / (1 - gamma) ** 2 * jnp.abs(expected).max() * (d @ total_variation(new, policy))
    )
    np.testing.assert_allclose(got.promise, d @ expected / (1 - gamma), rtol=1e-12)
    np.testing.assert_allclose(
        got.penalty, 4 * gamma / (1 - gamma) ** 2 * jnp.abs(delta).max() * got.eps_pi**2, rtol=1e-12
    )
    assert got.error <= cpo + ROUNDING
    assert cpo <= got.penalty + ROUNDING


def test_the_saturated_form_is_smaller_and_touches_the_papers_at_zero():
    eps = jnp.geomspace(1e-6, 1.0, 25)
    eps_pi, eps_m = (x.ravel() for x in jnp.meshgrid(eps, eps))
    for discount in (0.0, 0.5, 0.99):
        gamma = jnp.full_like(eps_pi, discount)
        paper, ours = epsilon(eps_pi, eps_m, gamma), saturated_epsilon(eps_pi, eps_m, gamma)
        assert (ours <= paper * (1 + 1e-12)).all()
        assert (ours <= 3.0).all()
    np.testing.assert_allclose(ours[0], paper[0], rtol=1e-3)


def shuttle(discount):
    """Two states, action a leads to state a, and r = V(s) − V(s') for V = (1, −1).

    Under the even policy each next state is as likely, E[V(s')] = 0, so that V is its value.
    """
    value = jnp.array([1.0, -1.0])
    transition = jnp.broadcast_to(jnp.eye(2)[None], (2, 2, 2))
    signal = jnp.broadcast_to((value[:, None] - value[None])[:, None], (2, 2, 2))
    cmdp = Cmdp(transition, transition, signal, jnp.array([1.0, 0.0]), jnp.asarray(discount))
    return cmdp, jnp.full((2, 2), 0.5), jnp.array([[1.0, 0.0], [0.5, 0.5]]), value


def test_delta_max_as_printed_without_its_discount_bounds_nothing():
    cmdp, policy, new, value = shuttle(0.9)
    got = compiled_boundary(cmdp, policy, new)
    np.testing.assert_allclose(values(cmdp.transition, policy, cmdp.signal, cmdp.discount), value)
    printed = jnp.abs(residual(cmdp.signal, value, jnp.asarray(1.0))).max()
    assert printed == 0.0
    np.testing.assert_allclose(got.error, 0.9 / 2)
    assert got.error <= got.penalty


def test_a_total_variation_without_its_half_only_doubles_the_model_error():
    cmdp, policy, new = one_step()
    got = compiled_boundary(cmdp, policy, new)
    printed = jnp.abs(cmdp.transition - cmdp.model).sum(-1).max()
    np.testing.assert_allclose(printed, 2 * got.eps_m)
    assert epsilon(got.eps_pi, printed, cmdp.discount) > epsilon(
        got.eps_pi, got.eps_m, cmdp.discount
    )


def test_the_printed_state_distribution_without_powers_of_the_discount_is_none():
    cmdp, policy, _ = one_step()
    matrix = np.asarray(chain(cmdp.transition, policy))
    powers = [np.linalg.matrix_power(matrix.T, t) for t in range(100)]
    printed = 0.2 * (np.sum(powers, axis=0) @ np.asarray(cmdp.start))
    assert printed.sum() > 10
    np.testing.assert_allclose(
        visits(cmdp.transition, policy, cmdp.start, cmdp.discount).sum(), 1.0
    )


def test_single_precision_is_refused():
    cmdp, policy, new = jax.tree.map(lambda x: x.astype(jnp.float32), one_step())
    with pytest.raises(ValueError, match="float64, not float32"):
        boundary(cmdp, policy, new)


def test_the_practical_form_is_pinskers_inequality_in_costs_per_horizon():
    got = practical(
        kl=jnp.asarray(0.02),
        disagreement=jnp.asarray(0.005),
        cost_surrogate=jnp.array([-3.0, 1.0]),
        cost_before=jnp.array([12.0, 4.0]),
        cost_after=jnp.array([10.0, 4.0]),
        discount=0.9,
    )
    np.testing.assert_allclose([got.eps_pi, got.eps_m], [0.1, 0.05])
    np.testing.assert_allclose(got.epsilon, 0.005 + 9 * (0.01 + 0.01))
    np.testing.assert_allclose(got.predicted_cost_change, [-3.0, 1.0])
    np.testing.assert_allclose(got.real_cost_change, [-2.0, 0.0])


def test_the_practical_form_never_exceeds_a_total_variation_nor_fails_on_rounding():
    zero = jnp.zeros(1)
    got = jax.jit(practical, static_argnames="discount")(
        kl=jnp.asarray(-1e-9),
        disagreement=jnp.asarray(50.0),
        cost_surrogate=zero,
        cost_before=zero,
        cost_after=zero,
        discount=0.97,
    )
    assert (got.eps_pi, got.eps_m) == (0.0, 1.0)


def test_pinsker_bounds_the_total_variation_of_policies():
    keys = jax.random.split(jax.random.key(0), 1_000)
    p, q = jax.vmap(lambda k: jax.nn.softmax(2 * jax.random.normal(k, (2, 5))))(keys).swapaxes(0, 1)
    kl = (p * jnp.log(p / q)).sum(-1)
    assert (total_variation(p, q) <= jnp.sqrt(kl / 2) + ROUNDING).all()
