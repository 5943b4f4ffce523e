"""No constant smaller than the paper's covers the problems that the search finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.theory.bound import boundary, total_variation
from cmbpo.theory.tightness import (
    Logits,
    Scales,
    by_chance,
    limits,
    main,
    problem,
    sharp_step,
    towards,
    worst,
)


@pytest.fixture(autouse=True)
def doubles(x64):
    """Everything here is exact, so in float64."""


def test_a_step_towards_goes_as_far_as_asked():
    p, q = jax.nn.softmax(jax.random.normal(jax.random.key(0), (2, 5, 3)))
    for distance in (0.0, 0.01, 0.1):
        there = towards(p, q, jnp.asarray(distance))
        np.testing.assert_allclose(total_variation(p, there).max(), distance, atol=1e-15)
        np.testing.assert_allclose(there.sum(-1), 1.0)
    np.testing.assert_allclose(towards(p, q, jnp.asarray(1.0)), q)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_the_bound_is_sharp_for_small_steps_so_that_no_smaller_constant_holds(ratio, discount):
    eps = 1e-5 * (1 - discount)
    got = boundary(*sharp_step(eps, ratio * eps, discount))
    np.testing.assert_allclose([got.eps_pi, got.eps_m], [eps, ratio * eps], atol=1e-15)
    assert 0.999 < got.error / got.penalty <= 1.0
    assert 0.999 < got.visit_shift / got.visit_limit <= 1.0


@pytest.mark.slow
def test_ascent_catches_a_constant_that_is_one_in_twenty_too_small():
    scales = Scales(jnp.array([1e-3, 0.2]), jnp.zeros(2), jnp.array([0.5, 0.5]))
    found, error = worst(scales, restarts=8, steps=1_500, key=jax.random.key(0))
    paper, saturated = limits(scales)
    got = jax.vmap(lambda logits, scale: boundary(*problem(logits, scale)))(found, scales)
    np.testing.assert_allclose(got.error / got.delta_max, error, rtol=1e-9)
    assert (error <= saturated * (1 + 1e-9)).all()
    assert error[0] > 0.95 * paper[0]
    assert error[1] > 0.95 * saturated[1]
    shrunk = 0.95 * got.penalty
    assert got.error[0] > shrunk[0]


@pytest.mark.slow
def test_chance_alone_would_not_have_caught_it():
    got = by_chance(1_000, key=jax.random.key(0))
    assert (got.error / got.penalty).max() < 0.5


def test_logits_of_one_shape_make_a_problem_of_that_shape():
    logits = Logits(3, 2, scale=1.0, key=jax.random.key(0))
    cmdp, policy, new = problem(logits, Scales(*jnp.array([0.1, 0.1, 0.9])))
    assert cmdp.transition.shape == (3, 2, 3)
    for p in (cmdp.transition, cmdp.model, policy, new):
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(-1), 1.0)


@pytest.mark.slow
def test_the_command_says_where_its_picture_is(tmp_path, capsys):
    out = tmp_path / "boundary.png"
    main(out)
    assert capsys.readouterr().out.splitlines()[-1] == f"picture: {out}"
    assert out.stat().st_size > 10_000
