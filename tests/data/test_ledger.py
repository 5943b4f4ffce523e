import numpy as np

from cmbpo.data.ledger import RECENT, Ledger


def test_a_ledger_adds_up_episodes_by_copy():
    ledger = Ledger(2, 1)
    reward, cost, no = np.array([1.0, 2.0]), np.array([[0.0], [1.0]]), np.zeros(2, bool)
    assert ledger.note(reward, cost, no, no, cut=no, allotted=np.array(3)) == []
    (ended,) = ledger.note(reward, cost, np.array([False, True]), no, cut=no, allotted=np.array(3))
    assert (ended.ret, ended.cost, ended.length, ended.terminated) == (4.0, (2.0,), 2, True)
    (full,) = ledger.note(reward, cost, no, np.array([True, False]), cut=~no, allotted=np.array(3))
    assert (full.ret, full.length, full.env_steps, full.terminated) == (3.0, 3, 6, False)
    assert ledger.length.tolist() == [0, 1]
    assert ledger.cumulative_cost.tolist() == [3.0]


def test_an_episode_cut_short_by_staggering_is_spent_but_not_reported():
    ledger = Ledger(1, 1)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    assert ledger.note(np.ones(1), np.ones((1, 1)), no, yes, cut=yes, allotted=np.array(5)) == []
    assert ledger.cumulative_cost.tolist() == [1.0]
    assert ledger.length.tolist() == [0]


def test_an_episode_that_the_environment_truncates_early_is_reported():
    ledger = Ledger(1, 1)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    (ended,) = ledger.note(np.ones(1), np.ones((1, 1)), no, yes, cut=no, allotted=np.array(5))
    assert (ended.length, ended.terminated) == (1, False)


def test_means_are_over_the_newest_episodes_only():
    """Of one step each, that earns its number and costs twice and thrice as much."""
    ledger = Ledger(1, 2)
    yes, no = np.ones(1, bool), np.zeros(1, bool)
    for ret in range(RECENT + 5):
        number = np.array([float(ret)])
        cost = number[:, None] * np.array([[2.0, 3.0]])
        ledger.note(number, cost, yes, no, cut=no, allotted=np.array(5))
    means, newest = ledger.means(), np.arange(5, RECENT + 5).mean()
    assert (means.ret, means.length) == (newest, 1.0)
    assert means.cost.tolist() == [2.0 * newest, 3.0 * newest]


def test_there_are_no_means_before_the_first_whole_episode():
    ledger = Ledger(1, 2)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    ledger.note(np.ones(1), np.ones((1, 2)), no, yes, cut=yes, allotted=np.array(5))
    means = ledger.means()
    assert means.cost.shape == (2,)
    assert np.isnan([means.ret, means.length, *means.cost]).all()


def test_running_episodes_can_be_dropped_and_what_they_cost_stays_spent():
    ledger = Ledger(1, 1)
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    ledger.note(np.ones(1), np.ones((1, 1)), no, no, cut=no, allotted=np.array(5))
    ledger.drop_running()
    (ended,) = ledger.note(np.ones(1), np.ones((1, 1)), yes, no, cut=no, allotted=np.array(5))
    assert (ended.ret, ended.cost, ended.length) == (1.0, (1.0,), 1)
    assert (ledger.env_steps, ledger.cumulative_cost.tolist()) == (2, [2.0])


def test_a_ledger_continues_from_its_state():
    ledger = Ledger(2, 1)
    no = np.zeros(2, bool)
    ledger.note(np.ones(2), np.ones((2, 1)), no, no, cut=no, allotted=np.array(5))
    copy = Ledger(2, 1)
    copy.restore(ledger.state())
    args = (np.ones(2), np.ones((2, 1)), np.array([True, False]), no)
    assert copy.note(*args, cut=no, allotted=np.array(5)) == ledger.note(
        *args, cut=no, allotted=np.array(5)
    )
    assert isinstance(copy.env_steps, int)
    assert copy.env_steps == 4


def test_a_held_state_does_not_change_with_the_ledger():
    ledger = Ledger(1, 1)
    held, no = ledger.state(), np.zeros(1, bool)
    ledger.note(np.ones(1), np.ones((1, 1)), no, no, cut=no, allotted=np.array(5))
    assert held["cumulative_cost"].tolist() == [0.0]
    assert held["ret"].tolist() == [0.0]
