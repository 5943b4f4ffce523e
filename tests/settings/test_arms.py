"""The arms of the figures change what the paper says of them, and nothing else."""

import pytest

from cmbpo.settings.arms import ABLATIONS, every_arm
from cmbpo.settings.overrides import changed, names
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS, TASKS, reads


def test_every_algorithm_is_an_arm_that_changes_nothing():
    arms = every_arm()
    assert arms.keys() == {*ALGORITHMS, *ABLATIONS}
    for algo in ALGORITHMS:
        assert arms[algo].algo == algo
        assert not any(arms[algo].changes_on(task) for task in TASKS)


@pytest.mark.parametrize("arm", ABLATIONS)
def test_an_ablation_changes_settings_that_its_algorithm_reads(arm: str):
    for task in TASKS:
        changes = ABLATIONS[arm].changes_on(task)
        assert changes
        assert set(changes) <= {n for n in names() if reads(ABLATIONS[arm].algo, n)}


@pytest.mark.parametrize("arm", ABLATIONS)
@pytest.mark.parametrize("name", ["default", "paper"])
@pytest.mark.parametrize("task", ["AntSafe", "AntCircle"])
def test_an_ablation_goes_with_every_preset_of_figure_3(arm: str, name: str, task: str):
    start = preset(ABLATIONS[arm].algo, task, name)
    made = changed(start, ABLATIONS[arm].changes_on(task))
    assert made != start
    assert made.rollout.max_horizon >= made.rollout.schedule[1], "the schedule is never cut short"


def test_a_task_may_have_a_number_of_its_own():
    alpha = "real_share.first_alpha"
    arm = ABLATIONS["cmbpo-no-alpha"]
    assert arm.changes_on("AntCircle")[alpha] == 0.03
    assert arm.changes_on("AntSafe")[alpha] == 0.05
    assert arm.changes[alpha] == 0.05, "asking for one task leaves the others as they are"


def test_every_ablation_has_the_label_of_the_paper():
    labels = {arm.label for arm in ABLATIONS.values()}
    assert labels == {"no α(π)", "schedule 1", "schedule 2"}
