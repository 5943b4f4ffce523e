"""What runs on the robot: the formula of its docstring, on arrays that `export` writes."""

import ast
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo.evaluation import numpy_policy
from cmbpo.evaluation.export import arrays
from cmbpo.networks import Normaliser, Policy, SquashedPolicy
from cmbpo.runs.checkpoint import write_whole


@pytest.fixture(params=[Policy, partial(Policy, compresses=True), SquashedPolicy])
def policy(request):
    """With a normaliser and a last layer large enough to reach the bounds."""
    made = request.param(
        4, 2, hidden=(16, 8), log_std=0.0, last_layer_scale=3.0, key=jax.random.key(3)
    )
    units = Normaliser(jnp.array([1.0, -2.0, 0.5, 0.0]), jnp.array([0.5, 3.0, 1.0, 10.0]))
    return eqx.tree_at(lambda p: p.normaliser, made, units)


@pytest.fixture
def exported(policy, tmp_path):
    bounds = Box(np.array([10.0, -1.0]), np.array([20.0, 0.0]), dtype=np.float64)
    write_whole(tmp_path / "policy.npz", arrays(policy, bounds))
    return numpy_policy.load(tmp_path / "policy.npz")


def test_it_acts_as_the_policy_does_in_the_units_of_the_robot(policy, exported):
    obs = np.random.default_rng(0).normal(0.0, 5.0, (300, 4)).astype(np.float32)
    mean = np.clip(np.asarray(jax.vmap(policy)(jnp.asarray(obs)).noiseless), -1.0, 1.0)
    expected = np.array([10.0, -1.0]) + 0.5 * (mean + 1.0) * np.array([10.0, 1.0])
    np.testing.assert_allclose(exported(obs), expected, atol=1e-4)
    np.testing.assert_allclose(exported(obs[7]), exported(obs)[7], atol=1e-5)
    assert np.std(expected, axis=0).min() > 0.1, "the actions are no constants"


def test_a_file_of_before_there_were_squashed_policies_is_read_as_it_was(tmp_path):
    made = Policy(4, 2, hidden=(8,), log_std=0.0, last_layer_scale=3.0, key=jax.random.key(3))
    parts = arrays(made, Box(-1.0, 1.0, (2,)))
    older = {name: value for name, value in parts.items() if name not in ("squashed", "compresses")}
    for name, content in (("new.npz", parts), ("old.npz", older)):
        write_whole(tmp_path / name, content)
    obs = np.random.default_rng(0).normal(size=(9, 4))
    new, old = (numpy_policy.load(tmp_path / name)(obs) for name in ("new.npz", "old.npz"))
    np.testing.assert_array_equal(new, old)


def test_no_action_leaves_the_bounds(exported):
    act = exported(np.random.default_rng(1).normal(0.0, 1e6, (1000, 4)))
    assert act.min(axis=0).tolist() == [10.0, -1.0]
    assert act.max(axis=0).tolist() == [20.0, 0.0]


@pytest.mark.parametrize(
    "wrong", [np.zeros(5), np.array([0.0, np.nan, 0.0, 0.0]), np.zeros(()), np.zeros((4, 3))]
)
def test_an_observation_of_the_wrong_size_or_not_finite_is_refused(exported, wrong):
    with pytest.raises(ValueError, match="allowed: 4 finite numbers"):
        exported(wrong)


def test_it_needs_numpy_and_nothing_of_this_package():
    tree = ast.parse(Path(numpy_policy.__file__).read_text())
    found = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert found == {"collections", "pathlib", "numpy"}
