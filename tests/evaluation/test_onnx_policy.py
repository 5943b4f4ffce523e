"""The ONNX model is the policy: what ONNX Runtime makes of it, and what it tells of itself."""

import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium.spaces import Box

from cmbpo.envs.spaces import rescaled
from cmbpo.evaluation import numpy_policy, onnx_policy
from cmbpo.evaluation.evaluate import act
from cmbpo.evaluation.export import arrays
from cmbpo.networks import Normaliser, Policy, SquashedPolicy
from cmbpo.runs.checkpoint import write_whole
from cmbpo.runs.errors import RunError

HALF_WIDTH = 2.0
BOUNDS = Box(np.array([-1.0, 1.0]), np.array([3.0, 2.0]), dtype=np.float64)
FACTS = {"task": "PointCircle-v0", "obs_names": '["x", "y"]'}


@pytest.fixture(scope="module", params=[Policy, partial(Policy, compresses=True), SquashedPolicy])
def untrained(request):
    """With a last layer large enough to reach the bounds."""
    return request.param(
        6, 2, hidden=(64, 64), log_std=0.0, last_layer_scale=1.0, key=jax.random.key(3)
    )


@pytest.fixture(scope="module", params=[False, True])
def policy(untrained, request):
    """Normalised or not."""
    mean, std = (
        jnp.array([1.0, -2.0, 0.5, 0.0, 9.0, 0.0]),
        jnp.array([0.5, 3.0, 1.0, 9.0, 2.0, 1.0]),
    )
    units = Normaliser(mean, std) if request.param else untrained.normaliser
    return eqx.tree_at(lambda p: p.normaliser, untrained, units)


@pytest.fixture(scope="module")
def session(policy):
    return onnxruntime.InferenceSession(onnx_policy.model(arrays(policy, BOUNDS), FACTS))


def test_it_acts_as_the_policy_does(policy, session, tmp_path):
    obs = np.random.default_rng(0).normal(0.0, 3.0, (1000, 6)).astype(np.float32)
    (acts,) = session.run(None, {"obs": obs})
    expected = rescaled(act(policy, obs), BOUNDS)
    assert acts.dtype == np.float32
    assert np.abs(acts - expected).max() < HALF_WIDTH * 1e-6
    write_whole(tmp_path / "policy.npz", arrays(policy, BOUNDS))
    exported = numpy_policy.load(tmp_path / "policy.npz")(obs)
    assert np.abs(acts - exported).max() < HALF_WIDTH * 1e-6
    assert np.std(acts, axis=0).min() > 0.05, "the actions are no constants"


def test_no_action_leaves_the_bounds(session):
    obs = np.random.default_rng(1).normal(0.0, 1e6, (1000, 6)).astype(np.float32)
    (acts,) = session.run(None, {"obs": obs})
    assert acts.min(axis=0).tolist() == [-1.0, 1.0]
    assert acts.max(axis=0).tolist() == [3.0, 2.0]


def test_it_is_valid_and_names_what_goes_in_and_out(policy, session):
    made = onnx.load_model_from_string(onnx_policy.model(arrays(policy, BOUNDS), FACTS))
    onnx.checker.check_model(made, full_check=True)
    assert [(x.name, x.type, x.shape) for x in (*session.get_inputs(), *session.get_outputs())] == [
        ("obs", "tensor(float)", ["batch", 6]),
        ("action", "tensor(float)", ["batch", 2]),
    ]


def test_it_tells_what_is_known_of_it(session):
    assert session.get_modelmeta().custom_metadata_map == FACTS


def test_the_same_policy_is_the_same_file(policy):
    parts = arrays(policy, BOUNDS)
    assert onnx_policy.model(parts, FACTS) == onnx_policy.model(parts, FACTS)


def test_only_its_own_models_are_its_own(untrained, tmp_path):
    model = onnx_policy.model(arrays(untrained, BOUNDS), FACTS)
    other = onnx.load_model_from_string(model)
    other.producer_name = "somebody"
    contents = {"ours": model, "other": other.SerializeToString(), "text": b"mine", "empty": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert onnx_policy.is_ours(tmp_path / name) == (name == "ours")
    assert not onnx_policy.is_ours(tmp_path)


def test_without_the_package_a_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RunError, match=r'^onnx is not installed: pip install "cmbpo\[onnx\]"'):
        onnx_policy.require()
