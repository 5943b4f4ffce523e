"""A run becomes a policy that comes with the package, with what it is worth."""

import numpy as np

from cmbpo.evaluation import shipped, shipping
from cmbpo.training import loop
from tests.tiny import tiny


def test_a_run_is_shipped_with_its_card(tmp_path, monkeypatch):
    (tmp_path / "policies").mkdir()
    monkeypatch.setattr(shipped, "POLICIES", tmp_path / "policies")
    folder, _ = loop.run(tiny("trpo", tmp_path, total_steps=400, cost_limit=(7.0,)))
    card = shipping.ship(folder, episodes=2)
    act, found = shipped.find("PointCircle-v0")
    assert found == card
    assert (found.algorithm, found.env_steps, found.cost_limits) == ("trpo", 600, (7.0,))
    assert str(tmp_path) not in found.command
    assert act(np.zeros(4)).shape == (2,)


def test_the_place_of_a_run_is_not_told():
    words = ["cmbpo", "train", "--log-dir", "/home/me", "--seed", "1"]
    assert shipping._command(words) == "cmbpo train --seed 1"
