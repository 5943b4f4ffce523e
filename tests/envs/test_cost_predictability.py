"""How well observations tell a cost is measured against a definition and on costs of known kind."""

import numpy as np
import pytest

from cmbpo.envs.cost_predictability import average_precision, predictability

pytestmark = pytest.mark.usefixtures("optimised")


def test_average_precision_is_its_definition():
    random = np.random.default_rng(0)
    score, true = random.normal(size=50), (random.random(50) < 0.3).astype(float)
    order = sorted(range(50), key=lambda i: -score[i])
    precisions = [
        np.mean([true[i] for i in order[: rank + 1]]) for rank in range(50) if true[order[rank]]
    ]
    assert average_precision(score, true) == pytest.approx(np.mean(precisions))
    assert average_precision(true, true) == 1.0


def test_a_cost_of_many_sizes_is_judged_by_its_explained_variance():
    random = np.random.default_rng(0)
    obs, act = random.normal(size=(1000, 2)), random.normal(size=(1000, 1))
    seen = predictability(obs, act, obs, obs[:, 0] ** 2, seed=0)
    unseen = predictability(obs, act, obs, random.normal(size=1000), seed=0)
    assert (seen.measure, seen.base) == ("R²", 0.0)
    assert seen.score > 0.9
    assert unseen.score < 0.1


def test_a_cost_of_one_size_is_judged_by_its_precision():
    random = np.random.default_rng(0)
    obs, act = random.normal(size=(1000, 2)), random.normal(size=(1000, 1))
    seen = predictability(obs, act, obs, (obs[:, 0] > 1.0).astype(float), seed=0)
    hidden = (random.random(1000) < 0.2).astype(float)
    unseen = predictability(obs, act, obs, hidden, seed=0)
    assert seen.measure == unseen.measure != "R²"
    assert seen.score > 0.9
    assert unseen.score < 0.5
    assert unseen.base == pytest.approx(hidden.mean(), abs=0.1)
