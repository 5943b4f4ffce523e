"""Runs that learn from a replay buffer: whole updates, broken ones, and what is refused."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box

import cmbpo
from cmbpo import columns
from cmbpo.agent import Agent
from cmbpo.runs.errors import NonFiniteError
from cmbpo.runs.run_folder import Run
from cmbpo.tasks.point_circle import PointCircle
from cmbpo.training import loop
from cmbpo.training.real_world import RealWorld
from cmbpo.training.replay_trainer import ReplayTrainer
from tests.tiny import rows, tiny

FIRST, EACH, UPDATES = 200, 400, 4


def settings_of(folder="runs", **changes):
    """The buffer of 1000 rows is full after two updates: later ones write over rows."""
    return tiny("sac-lag", folder, **{"total_steps": FIRST + EACH * UPDATES, **changes})


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder, _ = loop.run(settings_of(tmp_path_factory.mktemp("unbroken")))
    return folder


def test_a_run_has_a_row_for_each_update_with_what_its_columns_say(unbroken):
    found = rows(unbroken)
    assert [int(row["TotalEnvSteps"]) for row in found] == [600, 1000, 1400, 1800]
    last = found[-1]
    for column in (
        *(columns.MULTIPLIER, columns.TEMPERATURE, columns.ENTROPY, columns.POLICY_STD),
        *(columns.CRITIC_LOSS, columns.COST_CRITIC_LOSS, columns.POLICY_LOSS),
        *(columns.TARGET, columns.COST_TARGET, columns.COST_ESTIMATE, columns.LIMIT),
    ):
        assert np.isfinite(float(last[column])), column
    assert columns.KL not in last


def test_a_resumed_run_has_the_rows_of_an_unbroken_one(unbroken, tmp_path):
    folder, _ = loop.run(settings_of(tmp_path, total_steps=FIRST + 2 * EACH))
    assert rows(folder) == rows(unbroken)[:2]
    loop.resume(folder, total_steps=FIRST + EACH * UPDATES)
    assert rows(folder) == rows(unbroken)
    old, new = (Run.open(place).checkpoints()[0] for place in (unbroken, folder))
    with np.load(old) as one, np.load(new) as other:
        for name in one.files:
            if name.startswith(("leaves/learner", "leaves/replay", "leaves/multiplier")):
                assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize(
    ("owner", "name"),
    [(RealWorld, "collect"), (ReplayTrainer, "_learn"), (ReplayTrainer, "_guard")],
)
def test_a_run_whose_third_update_fails_goes_on_after_its_second(
    owner, name, unbroken, tmp_path, monkeypatch
):
    """Also where the buffer has been written over already."""
    work = getattr(owner, name)

    def fail(self, *args, **kwargs):
        done = work(self, *args, **kwargs)
        if self.env_steps == FIRST + 3 * EACH:
            raise RuntimeError("motor 3")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(RuntimeError, match="motor 3") as failure:
            loop.run(settings_of(tmp_path, checkpoint_every=20))
    (folder,) = tmp_path.glob("*/seed-*")
    assert "stands at update 2; go on with" in str(failure.value.__notes__)
    loop.resume(folder)
    assert rows(folder) == rows(unbroken)


def test_nothing_compiles_after_the_second_update(tmp_path):
    compiled: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    seen = []
    Agent.of_settings(settings_of(tmp_path)).learn(
        callback=lambda agent, row: seen.append(len(compiled))
    )
    jax.monitoring.clear_event_listeners()
    assert len(set(seen[1:])) == 1, f"compilations after each update: {seen}"


@pytest.mark.slow
def test_the_units_of_the_policy_are_those_of_all_real_steps():
    trainer = ReplayTrainer(settings_of(replay__size=5000), PointCircle())
    trainer.warm_up()
    for _ in range(2):
        trainer.step()
    seen = np.asarray(trainer.replay.rows.obs[: int(trainer.replay.size)])
    found = trainer.policy.normaliser
    assert len(seen) == FIRST + 2 * EACH
    np.testing.assert_allclose(found.mean, seen.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(found.std, seen.std(axis=0), rtol=1e-3)
    trainer.close()


def test_another_run_lends_its_policy_critics_and_buffer_but_not_its_counts(unbroken):
    trainer = ReplayTrainer(settings_of(init_from=str(unbroken)), PointCircle())
    trainer.take_over(Run.open(unbroken))
    lent = cmbpo.load(unbroken).policy
    same = jax.tree.map(lambda x, y: bool((x == y).all()), trainer.policy, lent)
    assert all(jax.tree.leaves(same))
    assert (trainer.env_steps, trainer.update, int(trainer.replay.size)) == (0, 0, 1000)
    units = np.asarray(trainer.policy.normaliser.mean)
    trainer.warm_up()
    np.testing.assert_array_equal(trainer.policy.normaliser.mean, units)
    trainer.close()


class Drift(gymnasium.Env):
    """Two costs, one of each direction; ends where it has gone too far."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-2.0, 2.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.place = self.place + 0.1 * np.asarray(action)
        left, right = float(self.place[0] < 0.0), float(self.place[0] > 0.0)
        ended = bool(np.abs(self.place).max() > 1.0)
        info = {"left": left, "right": right}
        return self.place.astype(np.float32), float(self.place[1]), ended, False, info


@pytest.mark.slow
def test_several_costs_and_an_environment_of_ones_own(tmp_path):
    settings = settings_of(
        tmp_path,
        env_id="python:Drift",
        cost_limit=(5.0, 3.0),
        env__cost_key=("left", "right"),
        env__horizon=20,
        total_steps=FIRST + EACH,
    )
    agent = Agent.of_settings(settings, Drift).learn()
    assert agent.folder is not None
    (row,) = rows(agent.folder)
    for name in ("left", "right"):
        for column in (columns.MULTIPLIER, columns.COST_ESTIMATE, columns.COST_TARGET):
            assert np.isfinite(float(row[column.of(name)]))
    found = agent.evaluate(episodes=3)
    assert found.stochastic.costs.shape == (3, 2)
    assert np.abs(agent.predict(np.zeros(2))).max() <= 2.0
    again = cmbpo.load(agent.folder, env=Drift)
    np.testing.assert_array_equal(again.predict(np.ones(2)), agent.predict(np.ones(2)))


def test_what_is_not_finite_is_named_and_its_steps_kept(monkeypatch):
    trainer = ReplayTrainer(settings_of(), PointCircle())
    trainer.warm_up()
    trainer.replay = jax.tree.map(
        lambda x: x * np.nan if x.ndim == 1 and x.dtype == "f4" else x, trainer.replay
    )
    with pytest.raises(NonFiniteError, match="not finite in update 1: the critics"):
        trainer.step()
    assert trainer.offending is not None
    trainer.close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_envs": 401}, "num_envs is 401; allowed here: at most 400"),
        ({"replay__size": 399}, "replay.size is 399; allowed here: at least 400"),
        ({"total_steps": 200}, "total_steps is 200; allowed here: more than the 200 initial_steps"),
    ],
)
def test_settings_that_do_not_fit_the_task_or_each_other_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        ReplayTrainer(settings_of(**changes), PointCircle())
