"""The directions against independent solvers, closed forms and the conditions of Lagrange."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from cmbpo.policy.directions import (
    CASES,
    Direction,
    Products,
    barrier_direction,
    cpo_direction,
    recovery_direction,
    trpo_direction,
)

MAX_KL = 0.01
RADIUS = np.sqrt(2.0 * MAX_KL)


class Problem:
    """max gᵀx over ½ xᵀFx ≤ δ and c + Bx ≤ 0, with limits near and beyond the trust region."""

    def __init__(self, seed: int, n: int, n_cost: int, centre: float = 0.0):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(n, n)) * np.exp(rng.normal(size=n))
        self.F = root @ root.T / n + 0.1 * np.eye(n)
        self.g = rng.normal(size=n)
        self.B = rng.normal(size=(n_cost, n)) * np.exp(2.0 * rng.normal(size=(n_cost, 1)))
        inverse = np.linalg.inv(self.F)
        self.solved = np.concatenate([self.g[None], self.B]) @ inverse
        inner = np.concatenate([self.g[None], self.B]) @ self.solved.T
        self.q, self.r, self.S = inner[0, 0], inner[0, 1:], inner[1:, 1:]
        self.c = RADIUS * np.sqrt(np.diag(self.S)) * (centre + rng.uniform(-1.3, 1.3, n_cost))

    @property
    def products(self) -> Products:
        return Products(jnp.array(self.q), jnp.array(self.r), jnp.array(self.S))

    def step(self, direction: Direction):
        weights = np.concatenate([[direction.alpha], direction.beta])
        return weights @ self.solved

    def nearest(self):
        """SLSQP's point of least xᵀFx with c + Bx ≤ 0; None if it finds none."""
        return self.polish(lambda x: 0.5 * x @ self.F @ x, lambda x: self.F @ x, region=False)

    def best(self):
        """SLSQP's answer to the whole problem; None if it finds no admissible point."""
        return self.polish(lambda x: -self.g @ x, lambda x: -self.g, region=True)

    def polish(self, objective, gradient, *, region: bool):
        # In coordinates in which the region is the unit ball and costs have unit gradients.
        root = np.linalg.cholesky(self.F)
        back = np.linalg.inv(root.T) * RADIUS
        scale = RADIUS * np.sqrt(np.diag(self.S))
        constraints = [
            {
                "type": "ineq",
                "fun": lambda z: -(self.c + self.B @ (back @ z)) / scale,
                "jac": lambda z: -(self.B @ back) / scale[:, None],
            }
        ]
        if region:
            constraints.append(
                {"type": "ineq", "fun": lambda z: 1.0 - z @ z, "jac": lambda z: -2.0 * z}
            )
        size = np.abs(back.T @ gradient(back @ np.ones(len(self.g)))).max()
        answers = []
        for start in (np.zeros(len(self.g)), back.T @ self.g * 0.1):
            found = minimize(
                lambda z: objective(back @ z) / size,
                start,
                jac=lambda z: back.T @ gradient(back @ z) / size,
                constraints=constraints,
                method="SLSQP",
                options={"maxiter": 300, "ftol": 1e-12},
            )
            safe = (self.c + self.B @ (back @ found.x)) / scale
            if safe.max() < 1e-7 and (not region or found.x @ found.x < 1 + 1e-7):
                answers.append(back @ found.x)
        return min(answers, key=objective) if answers else None


cpo = jax.jit(partial(cpo_direction, max_kl=MAX_KL))
recovery = jax.jit(partial(recovery_direction, max_kl=MAX_KL))


@pytest.mark.parametrize("n_cost", [1, 2, 3])
def test_the_cpo_step_is_never_worse_than_slsqp_nor_outside_the_region_or_the_limits(x64, n_cost):
    cases = []
    for seed, centre in itertools.product(range(16), (-0.9, 0.0, 0.9)):
        problem = Problem(seed, n=6, n_cost=n_cost, centre=centre)
        found = cpo(problem.products, jnp.array(problem.c))
        x = problem.step(found)
        case = int(found.case)
        cases.append(case)
        assert 0.5 * x @ problem.F @ x <= MAX_KL * (1 + 1e-6)
        if case == 0:
            nearest = problem.nearest()
            assert nearest is None or 0.5 * nearest @ problem.F @ nearest > MAX_KL * (1 - 1e-6)
            continue
        scale = RADIUS * np.sqrt(np.diag(problem.S))
        assert ((problem.c + problem.B @ x) / scale).max() <= 1e-6
        other = problem.best()
        assert other is not None
        assert problem.g @ x >= problem.g @ other - 1e-5 * RADIUS * np.sqrt(problem.q)
        safe, cut = (problem.c <= 0).all(), (problem.c > -scale).any()
        assert case == (3 if safe and not cut else 2 if safe else 1)
    assert set(cases) == {0, 1, 2, 3}


def test_the_multipliers_satisfy_the_lagrange_conditions(x64):
    for seed, n_cost in itertools.product(range(20), (1, 2, 3)):
        problem = Problem(seed, n=6, n_cost=n_cost, centre=-0.3)
        found = cpo(problem.products, jnp.array(problem.c))
        if int(found.case) == 0:
            continue
        x, lam, nu = problem.step(found), float(found.lam), np.asarray(found.nu)
        scale = np.sqrt(np.diag(problem.S) / problem.q)
        assert lam > 0.0
        assert (nu * scale >= -1e-6).all()
        slack = (problem.c + problem.B @ x) / (RADIUS * np.sqrt(np.diag(problem.S)))
        np.testing.assert_allclose(nu * scale * slack, 0.0, atol=1e-6)
        np.testing.assert_allclose(
            problem.g - problem.B.T @ nu, lam * problem.F @ x, atol=1e-6 * np.abs(problem.g).max()
        )


def test_one_constraint_gives_the_closed_form_of_cpo(x64):
    """Achiam et al. 2017, theorem 2: the better of two branches, each on its side of λ = −r/c."""
    for seed in range(40):
        problem = Problem(seed, n=4, n_cost=1, centre=-0.3)
        found = cpo(problem.products, jnp.array(problem.c))
        if int(found.case) in (0, 3):
            continue
        q, r, s, c = problem.q, problem.r[0], problem.S[0, 0], problem.c[0]
        a, b = q - r**2 / s, 2.0 * MAX_KL - c**2 / s
        split = -r / c
        cut, free = np.sqrt(a / b), np.sqrt(q / (2.0 * MAX_KL))
        if c < 0:
            cut, free = np.clip(cut, 0, max(split, 0)), max(free, split, 0)
        else:
            cut, free = max(cut, split, 0), np.clip(free, 0, max(split, 0))
        dual_cut = -0.5 * (a / max(cut, 1e-12) + cut * b) + r * c / s
        dual_free = -0.5 * (q / max(free, 1e-12) + 2.0 * MAX_KL * free)
        lam = cut if dual_cut >= dual_free else free
        nu = max(0.0, lam * c + r) / s
        x = (problem.solved[0] - nu * problem.solved[1]) / lam
        np.testing.assert_allclose(problem.step(found), x, rtol=1e-5, atol=1e-9)


def test_single_precision_stays_within_region_and_limits():
    for seed, n_cost in itertools.product(range(16), (1, 2, 3)):
        problem = Problem(seed, n=6, n_cost=n_cost, centre=-0.3)
        found = cpo(problem.products, jnp.array(problem.c, jnp.float32))
        x = problem.step(found)
        assert 0.5 * x @ problem.F @ x <= MAX_KL * 1.005
        if int(found.case) > 0:
            scale = RADIUS * np.sqrt(np.diag(problem.S))
            assert ((problem.c + problem.B @ x) / scale).max() <= 2e-3
            other = problem.best()
            assert other is None or problem.g @ x >= problem.g @ other - 5e-3 * RADIUS * np.sqrt(
                problem.q
            )


def test_the_same_constraint_twice_changes_nothing(x64):
    for seed in range(10):
        problem = Problem(seed, n=5, n_cost=1, centre=-0.2)
        twice = Problem(seed, n=5, n_cost=1, centre=-0.2)
        twice.B, twice.c = np.repeat(problem.B, 2, axis=0), np.repeat(problem.c, 2)
        twice.r, twice.S = np.repeat(problem.r, 2), np.full((2, 2), problem.S[0, 0])
        twice.solved = problem.solved[[0, 1, 1]]
        once = problem.step(cpo(problem.products, jnp.array(problem.c)))
        again = twice.step(cpo(twice.products, jnp.array(twice.c)))
        np.testing.assert_allclose(again, once, rtol=1e-4, atol=1e-7)


def test_a_gradient_along_the_constraint_stops_at_the_limit(x64):
    """One parameter: reward and cost rise together, and half the region is allowed."""
    products = Products(jnp.array(4.0), jnp.array([6.0]), jnp.array([[9.0]]))
    found = cpo(products, jnp.array([-0.5 * RADIUS * 3.0]))
    x = 2.0 * found.alpha + 3.0 * found.beta[0]
    np.testing.assert_allclose(x, 0.5 * RADIUS, rtol=1e-6)


def test_a_cost_that_no_step_changes_leaves_the_step_to_the_reward():
    products = Products(jnp.array(4.0), jnp.zeros(1), jnp.zeros((1, 1)))
    found = cpo(products, jnp.array([-1.0]))
    plain = trpo_direction(products, max_kl=MAX_KL)
    assert int(found.case) == 4
    np.testing.assert_allclose(found.alpha, plain.alpha, rtol=1e-6)
    stuck = cpo(products, jnp.array([1.0]))
    assert int(stuck.case) == 0
    assert float(stuck.alpha) == 0.0
    assert CASES[int(stuck.case)] == "recovery"


def test_recovery_leads_straight_to_the_nearest_safe_point(x64):
    for seed, n_cost in itertools.product(range(12), (1, 2, 3)):
        problem = Problem(seed, n=6, n_cost=n_cost, centre=3.0)
        x = problem.step(recovery(problem.products, jnp.array(problem.c)))
        np.testing.assert_allclose(0.5 * x @ problem.F @ x, MAX_KL, rtol=1e-6)
        target = problem.nearest()
        assert target is not None
        cosine = (
            x @ problem.F @ target / np.sqrt((x @ problem.F @ x) * (target @ problem.F @ target))
        )
        np.testing.assert_allclose(cosine, 1.0, atol=1e-5)
        assert (problem.B @ x < 0.0).all()


def test_recovery_from_contradicting_limits_is_finite(x64):
    products = Products(jnp.array(1.0), jnp.zeros(2), jnp.array([[1.0, -1.0], [-1.0, 1.0]]))
    found = recovery(products, jnp.array([0.5, 0.2]))
    assert np.isfinite(np.asarray(found.beta)).all()


@pytest.mark.slow
def test_the_barrier_step_is_slsqps_best_where_only_costs_that_rise_meet_a_barrier(x64):
    falling = []
    for seed, n_cost in itertools.product(range(10), (1, 2, 3)):
        problem = Problem(seed, n=6, n_cost=n_cost)
        slack = np.abs(problem.c) + 0.1
        found = barrier_direction(
            problem.products, jnp.array(slack), max_kl=MAX_KL, barrier_weight=0.1, cost_gain=3.0
        )
        back = np.linalg.inv(np.linalg.cholesky(problem.F).T) * RADIUS
        B = np.sqrt(0.1) / slack[:, None] * 3.0 * problem.B @ back / RADIUS

        def room(z, B=B):
            return 1.0 - z @ z - np.sum(np.maximum(B @ z, 0.0) ** 2)

        g = back.T @ problem.g
        best = minimize(
            lambda z, g=g: -g @ z / np.linalg.norm(g),
            0.1 * g / np.linalg.norm(g),
            constraints={"type": "ineq", "fun": room},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-13},
        )
        z = np.linalg.solve(back, problem.step(found))
        assert abs(room(z)) < 1e-6
        assert g @ z >= g @ best.x * (1 - 1e-5)
        falling.append((B @ z < 0.0).sum())
    assert min(falling) == 0
    assert max(falling) == 3


def test_a_far_barrier_leaves_trpo():
    problem = Problem(0, n=6, n_cost=2)
    far = barrier_direction(
        problem.products, jnp.full(2, 1e6), max_kl=MAX_KL, barrier_weight=0.1, cost_gain=1.0
    )
    plain = trpo_direction(problem.products, max_kl=MAX_KL)
    np.testing.assert_allclose(problem.step(far), problem.step(plain), rtol=1e-4)


def test_the_step_of_trpo_is_the_best_on_the_edge_of_the_region(x64):
    """gᵀx = √(2δ q) there, by the inequality of Cauchy and Schwarz, and nowhere more."""
    for seed in range(5):
        problem = Problem(seed, n=6, n_cost=1)
        found = trpo_direction(problem.products, max_kl=MAX_KL)
        x = problem.step(found)
        np.testing.assert_allclose(0.5 * x @ problem.F @ x, MAX_KL, rtol=1e-9)
        np.testing.assert_allclose(problem.g @ x, RADIUS * np.sqrt(problem.q), rtol=1e-9)
        assert CASES[int(found.case)] == "unconstrained"
