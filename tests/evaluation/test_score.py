"""Pictures say what the episode has earned and cost, and where it cost."""

import numpy as np
import pytest

from cmbpo.evaluation.score import RED, Score, with_score

GREY = np.full((120, 160, 3), 128, np.uint8)


def is_red(pixels: np.ndarray) -> np.ndarray:
    return np.abs(pixels.astype(int) - RED[:3]).max(axis=-1) < 10


@pytest.fixture
def score() -> Score:
    return Score(("speed",), (2.0,), 100)


def test_a_score_adds_up_and_knows_the_steps_that_cost(score):
    for cost in (0.0, 1.0, 0.5):
        score.note(2.0, cost)
    assert (score.steps, score.earned, score.costly) == (3, 6.0, [2, 3])
    assert score.costs_now
    assert score.words() == ["return 6", "cost 1.5 of 2"]
    assert [beyond for _, beyond in score.costs()] == [False]
    score.note(0.0, 1.0)
    assert [beyond for _, beyond in score.costs()] == [True]


def test_several_costs_are_told_apart():
    score = Score(("speed", "contact"), (10.0, 2.0), 100)
    score.note(1.0, np.array([0.0, 0.5]))
    assert score.words() == ["return 1", "cost of speed 0 of 10", "cost of contact 0.5 of 2"]
    assert score.costs_now


def test_the_border_is_red_while_a_step_costs_and_only_then(score):
    for step in range(50):
        score.note(1.0, float(step == 49))
    drawn = with_score(GREY, score)
    assert drawn.shape == GREY.shape
    assert is_red(drawn[60, 0])
    assert is_red(drawn[0, 80])
    score.note(1.0, 0.0)
    calm = with_score(GREY, score)
    assert not is_red(calm[60, 0])
    assert not is_red(calm[0, 80])


def test_the_line_of_time_is_red_where_it_cost(score):
    """Steps 26 to 50 of 100: columns 40 to 80 of 160."""
    for step in range(75):
        score.note(1.0, float(25 <= step < 50))
    line = with_score(GREY, score)[-5]
    red = np.flatnonzero(is_red(line))
    assert red.min() in (40, 41)
    assert red.max() in (79, 80, 81)
    assert len(red) > 35
    assert line[110].mean() > 180 > 100 > line[140].mean(), "past, and still to come"


def test_the_words_are_there(score):
    score.note(1.0, 0.0)
    strip = with_score(GREY, score)[:16]
    assert (strip.min(axis=2) > 200).sum() > 20
