"""Evaluations as files: what is written comes back, and nothing else is taken for one."""

import json

import numpy as np
import pytest

from cmbpo.evaluation import evaluated
from cmbpo.evaluation.evaluated import Episodes, Evaluated
from cmbpo.runs.errors import RunError


def some() -> Evaluated:
    rng = np.random.default_rng(0)
    kinds = [
        Episodes(
            returns=rng.normal(3000.0, 100.0, 5),
            costs=rng.poisson(3.0, (5, 2)).astype(float),
            lengths=rng.integers(1, 1000, 5),
            terminated=rng.random(5) < 0.5,
        )
        for _ in range(2)
    ]
    return Evaluated("7a", 250_000, True, 7, 1000, ("speed", "wall"), (25.0, np.inf), *kinds)


def test_what_is_written_comes_back(tmp_path):
    path = tmp_path / "evaluation.json"
    evaluated.write(path, some())
    again = evaluated.read(path)
    assert again._replace(deterministic=None, stochastic=None) == some()._replace(
        deterministic=None, stochastic=None
    )
    for one, other in zip(again[-2:], some()[-2:], strict=True):
        for column, expected in zip(one, other, strict=True):
            np.testing.assert_allclose(column, expected, rtol=1e-6)
            assert column.dtype.kind == expected.dtype.kind


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "another"),
        ("env_steps", -1),
        ("horizon", 0),
        ("cost_names", ["speed"]),
        ("deterministic", {"returns": []}),
        ("stochastic", None),
    ],
)
def test_what_cannot_be_one_is_refused_in_a_sentence(tmp_path, name, value):
    path = tmp_path / "evaluation.json"
    evaluated.write(path, some())
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(RunError, match="is no evaluation: "):
        evaluated.read(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [("returns", 1e999), ("lengths", 0), ("costs", [float("nan"), 0.0]), ("lengths", [3])],
)
def test_episodes_that_cannot_be_are_refused(tmp_path, column, value):
    path = tmp_path / "evaluation.json"
    evaluated.write(path, some())
    notes = json.loads(path.read_text())
    notes["stochastic"][column][0] = value
    path.write_text(json.dumps(notes))
    with pytest.raises(RunError, match="is no evaluation: "):
        evaluated.read(path)


def test_a_place_is_refused_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match=r"allowed: a name that ends in \.json"):
        evaluated.require_place(tmp_path / "evaluation.csv")
    with pytest.raises(ValueError, match="there is no folder"):
        evaluated.require_place(tmp_path / "none" / "evaluation.json")
    other = tmp_path / "config.json"
    other.write_text("{}")
    with pytest.raises(ValueError, match="is no evaluation; allowed: a new name"):
        evaluated.require_place(other)
    assert other.read_text() == "{}"
    own = tmp_path / "evaluation.json"
    evaluated.write(own, some())
    evaluated.require_place(own)
