"""Every policy that comes with the package is what its card says, and small."""

import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.evaluation import shipped
from cmbpo.settings.registry import TASKS


def episode(name: str, act, seed: int) -> tuple[float, float]:
    """Return and cost of one whole episode."""
    task = cmbpo.tasks.get(name)
    env = task.environment()
    obs, _ = env.reset(seed=seed)
    earned = cost = 0.0
    for _ in range(task.horizon):
        obs, reward, terminated, truncated, info = env.step(act(obs))
        earned, cost = earned + float(reward), cost + info["cost"]
        if terminated or truncated:
            break
    return earned, cost


@pytest.mark.parametrize("name", shipped.names())
def test_a_policy_is_what_its_card_says(name):
    """The better of two episodes, on seeds of their own, against the card's mean: some fall."""
    act, card = shipped.find(f"cmbpo/{name}-v0")
    task = cmbpo.tasks.get(name)
    earned, cost = max(episode(name, act, seed) for seed in (7, 8))
    assert 0.75 * card.mean_return < earned < 1.4 * card.mean_return
    assert cost <= max(3.0 * card.cost_cvar[0], card.cost_limits[0])
    assert (card.task, card.horizon) == (task.name, task.horizon)
    assert f"return {card.mean_return:,.0f}" in card.sentence()


@pytest.mark.parametrize("name", shipped.names())
def test_a_card_says_where_a_policy_is_above_its_limit(name):
    card = shipped.read_card(name)
    above = any(c > d for c, d in zip(card.cost, card.cost_limits, strict=True))
    assert ("above limit" in card.sentence()) == above


def test_they_are_few_and_small():
    files = list(shipped.POLICIES.iterdir())
    assert {path.stem for path in files} <= set(TASKS)
    assert {path.suffix for path in files} == {".npz", ".json"}
    assert sum(path.stat().st_size for path in files) < 2_500_000


def test_what_is_not_there_is_named_with_what_is(monkeypatch, tmp_path):
    for path in shipped.POLICIES.glob("PointCircle.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(shipped, "POLICIES", tmp_path)
    with pytest.raises(ValueError, match=r"no trained policy of AntSafe .* there are: PointCircle"):
        shipped.find("AntSafe")
    assert np.isfinite(shipped.find("PointCircle").act(np.zeros(4))).all()
