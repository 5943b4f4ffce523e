"""Training is judged on its way, goes on as without it, and ends where it is good enough."""

import re

import numpy as np
import pytest

import cmbpo
from tests.tiny import rows, tiny


@pytest.mark.slow
def test_evaluations_leave_training_as_it_is_and_end_it_where_they_are_told(tmp_path, capsys):
    settings = tiny("trpo", tmp_path, total_steps=2200)
    judge = cmbpo.EvalCallback(900, episodes=2, until=lambda found: len(judge.results) == 2)
    judged = cmbpo.Agent.of_settings(settings).learn(callback=[judge, lambda agent, row: None])
    assert [found.env_steps for found in judge.results] == [1000, 1800]
    assert judged.folder is not None
    printed = capsys.readouterr().out
    pattern = r"evaluated after 1,000 steps: return .* ± .*, cost per 1000 steps .* \(limit 10\)"
    assert re.search(pattern, printed)
    assert "stopped; go on with: cmbpo train --resume" in printed
    plain = cmbpo.Agent.of_settings(settings).learn(1800)
    assert plain.folder is not None
    assert rows(judged.folder) == rows(plain.folder)
    last = judge.results[-1].evaluation
    np.testing.assert_array_equal(
        last.deterministic.returns, plain.evaluate(episodes=2).deterministic.returns
    )


def test_a_number_of_steps_that_cannot_be_is_named():
    with pytest.raises(ValueError, match="every is 0; allowed: a whole number of steps"):
        cmbpo.EvalCallback(0)
