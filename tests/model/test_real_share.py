import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbpo.model.real_share import real_samples, real_share


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.floats(0.01, 1.0))
def test_the_papers_share_is_the_smallest_that_keeps_mean_disagreement_within_its_limit(
    disagreement, reference, first_alpha
):
    alpha = real_share(disagreement, reference, rule="paper", first_alpha=first_alpha)
    limit = (1.0 - first_alpha) * reference
    assert 0.0 <= alpha <= 1.0
    assert (1.0 - alpha) * disagreement <= limit * (1.0 + 1e-9) + 1e-9 * disagreement
    if alpha > 0.0:
        assert (1.0 - alpha) * disagreement == pytest.approx(limit, abs=1e-9 * disagreement)


@pytest.mark.parametrize("rule", ["paper", "proportional", "constant"])
def test_every_rule_begins_with_the_first_share(rule):
    assert real_share(0.4, 0.4, rule=rule, first_alpha=0.3) == pytest.approx(0.3)


def test_the_proportional_share_grows_with_disagreement_up_to_all():
    def share(ratio: float) -> float:
        return real_share(ratio, 1.0, rule="proportional", first_alpha=0.3)

    assert [share(x) for x in (0.5, 2.0, 9.0)] == pytest.approx([0.15, 0.6, 1.0])


def test_the_constant_share_ignores_disagreement():
    assert real_share(9.0, 1.0, rule="constant", first_alpha=0.05) == 0.05


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.0, 1000), (0.05, 2500), (0.051, 2560), (0.09, 4500), (0.9, 5000), (1.0, 5000)],
)
def test_real_samples_are_the_share_of_the_batch_within_bounds_in_whole_rounds(alpha, expected):
    found = real_samples(alpha, batch_size=50_000, min_real=1000, max_real=5000, granularity=20)
    assert found == expected
    assert found % 20 == 0


def test_real_samples_round_up_to_whole_rounds():
    found = real_samples(0.0, batch_size=500, min_real=101, max_real=400, granularity=50)
    assert found == 150
