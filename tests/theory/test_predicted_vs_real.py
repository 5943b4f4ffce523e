"""What a step predicted of the cost beside what came of it, by hand."""

import numpy as np

from cmbpo.theory.predicted_vs_real import Prediction, no_prediction


def test_a_prediction_is_compared_with_the_change_from_the_cost_that_it_was_made_at():
    """J_c of 12 and 4; a change of −3 and 1 was predicted, and 10 and 4 came of it."""
    prediction = Prediction(
        cost=np.array([12.0, 4.0]),
        change=np.array([-3.0, 1.0]),
        kl=np.array(0.02),
        disagreement=np.array(0.005),
    )
    found = prediction.against(np.array([10.0, 4.0]), discount=0.9)
    np.testing.assert_allclose(found.predicted_cost_change, [-3.0, 1.0])
    np.testing.assert_allclose(found.real_cost_change, [-2.0, 0.0])
    # √(0.02/2) and √(0.005/2), and with them ε_π ε_m + γ/(1 − γ) (ε_π² + 2 ε_π ε_m).
    np.testing.assert_allclose([found.eps_pi, found.eps_m], [0.1, 0.05], rtol=1e-6)
    np.testing.assert_allclose(found.epsilon, 0.005 + 9.0 * (0.01 + 0.01), rtol=1e-5)


def test_without_a_model_only_the_policy_moves_the_bound():
    """ε = γ/(1 − γ) ε_π² is left."""
    zero = np.zeros(1)
    prediction = Prediction(cost=zero, change=zero, kl=np.array(0.02), disagreement=np.array(0.0))
    found = prediction.against(zero, discount=0.5)
    assert float(found.eps_m) == 0.0
    np.testing.assert_allclose(found.epsilon, 0.01, rtol=1e-6)


def test_before_the_first_step_nothing_was_predicted_and_no_number_says_so():
    found = no_prediction(2).against(np.array([3.0, 4.0]), discount=0.9)
    for value in (found.predicted_cost_change, found.real_cost_change):
        assert value.shape == (2,)
        assert np.isnan(value).all()
    assert np.isnan([found.eps_pi, found.eps_m, found.epsilon]).all()
