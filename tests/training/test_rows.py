"""Every column is written by some algorithm, and none that is not listed."""

import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo import columns
from cmbpo.columns import PROGRESS
from cmbpo.data.ledger import Episode
from cmbpo.envs.find import find_task
from cmbpo.settings.presets import preset
from cmbpo.training import device, rows
from cmbpo.training.loop import make_trainer
from tests.envs.test_custom_task import Cart, limited
from tests.tiny import tiny_of

OWN = "python:Cart"


def written(algo: str, **changes) -> rows.Row:
    """The row of a first update on an environment whose costs and ends have to be learned."""
    settings = tiny_of(preset(algo, OWN), **{"device": "cpu", "cost_limit": 5.0, **changes})
    device.use("cpu")
    trainer = make_trainer(settings, find_task(settings, lambda: limited(Cart)))
    trainer.warm_up()
    row = trainer.step()
    trainer.close()
    return row


@pytest.fixture(scope="module")
def found() -> dict[str, rows.Row]:
    two = {"env.cost_key": ("cost", "far"), "cost_limit": (5.0, 2.0)}
    one = {algo: written(algo) for algo in ("cmbpo", "ppo-lag", "sac-lag")}
    return {**one, "cpo": written("cpo", **two)}


@pytest.mark.slow
def test_every_column_that_is_written_is_listed(found):
    per_cost = [
        column.of(name) for column in PROGRESS if column.per_cost for name in ("cost", "far")
    ]
    for algo in ("cmbpo", "ppo-lag", "sac-lag"):
        assert found[algo].keys() <= set(PROGRESS), algo
    assert found["cpo"].keys() <= {*PROGRESS, *per_cost}


@pytest.mark.slow
def test_every_column_that_is_listed_is_written_by_some_algorithm(found):
    assert set(PROGRESS) == set().union(*(found[algo] for algo in ("cmbpo", "ppo-lag", "sac-lag")))


@pytest.mark.slow
def test_of_several_costs_each_has_its_columns(found):
    row = found["cpo"]
    for column in PROGRESS:
        if column.per_cost and (column in row or column.of("cost") in row):
            assert column not in row
            assert {column.of("cost"), column.of("far")} <= row.keys()
    assert (row[columns.LIMIT.of("cost")], row[columns.LIMIT.of("far")]) == (5.0, 2.0)


@pytest.mark.slow
def test_a_row_holds_plain_numbers_and_words_with_the_times_last(found):
    for row in found.values():
        assert {type(value) for value in row.values()} <= {float, int, str}
        times = [columns.is_time(name) for name in row]
        assert times == sorted(times)
        assert list(row)[:2] == [columns.ENV_STEPS, columns.UPDATE]


def test_with_one_cost_its_columns_have_no_name_of_it():
    values = {columns.COST: np.array([2.5]), columns.KL: jnp.float32(0.5), columns.CASE: "recovery"}
    assert rows.flat(values, ("fall",)) == {
        "Metrics/EpCost": 2.5,
        "Train/KL": 0.5,
        "Misc/Case": "recovery",
    }


def test_an_episode_is_a_row_with_the_sum_of_its_costs():
    episode = Episode(env_steps=70, ret=3.5, cost=(1.0, 2.0), length=7, terminated=True)
    row = rows.of_episode(episode, ("wall", "fall"))
    assert tuple(row)[:5] == columns.EPISODES
    assert list(row.values()) == [70, 3.5, 3.0, 7, 1, 1.0, 2.0]
    assert list(row)[5:] == ["cost_wall", "cost_fall"]
    alone = Episode(env_steps=70, ret=3.5, cost=(1.0,), length=7, terminated=False)
    assert tuple(rows.of_episode(alone, ("wall",))) == columns.EPISODES
