"""An agent is made, learns, acts, is judged and comes back, in a few words of Python."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import cmbpo
from cmbpo.agent import _callbacks
from cmbpo.evaluation import numpy_policy
from cmbpo.settings.presets import preset
from tests.envs.test_custom_task import Cart, limited
from tests.tiny import rows, tiny


def test_an_agent_has_the_settings_of_its_preset_and_its_changes():
    assert cmbpo.Agent("CPO", "AntSafe-v0").settings == preset("cpo", "AntSafe")
    start = preset("cmbpo", "AntSafe", "paper")
    agent = cmbpo.Agent("cmbpo", "AntSafe-v0", preset="paper", seed=3, rollout={"lanes": 50})
    assert agent.settings == replace(start, seed=3, rollout=replace(start.rollout, lanes=50))
    assert agent.task.name == "AntSafe-v0"
    assert (agent.policy, agent.folder) == (None, None)


def test_the_settings_of_the_environment_are_a_group_of_another_name():
    agent = cmbpo.Agent("cpo", lambda: limited(Cart), cost_limit=5, env_settings={"timeout": 9.0})
    assert agent.settings.env.timeout == 9.0
    with pytest.raises(ValueError, match=r"unknown setting 'env.hurry'; there are: env\."):
        cmbpo.Agent("cpo", lambda: limited(Cart), cost_limit=5, env_settings={"hurry": 9.0})


def test_an_agent_of_settings_has_exactly_these():
    settings = tiny("ppo-lag", seed=5)
    assert cmbpo.Agent.of_settings(settings).settings is settings


def test_an_agent_that_has_not_learned_says_so(tmp_path):
    agent = cmbpo.Agent("cpo")
    assert repr(agent) == "<cmbpo.Agent: cpo on PointCircle-v0, seed 0, not trained yet>"
    with pytest.raises(ValueError, match="no policy yet"):
        agent.export(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match=r"no policy yet: call learn\(\) first, or cmbpo.load"):
        agent.predict(np.zeros(4))
    with pytest.raises(ValueError, match="no policy yet"):
        agent.evaluate(episodes=1)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    settings = tiny("trpo", tmp_path_factory.mktemp("runs"), total_steps=800)
    seen = []
    agent = cmbpo.Agent.of_settings(settings)
    return agent.learn(callback=lambda _, row: seen.append(row)), seen


def test_callbacks_get_the_row_of_each_update(learned):
    agent, seen = learned
    assert repr(agent) == f"<cmbpo.Agent: trpo on PointCircle-v0, seed 0, {agent.folder}>"
    assert [row["TotalEnvSteps"] for row in seen] == [600, 1000]
    assert [row["Train/Epoch"] for row in seen] == [1, 2]


def test_a_quiet_agent_prints_nothing_and_does_the_same(learned, tmp_path, capfd):
    loud, _ = learned
    settings = tiny("trpo", tmp_path, total_steps=800)
    quiet = cmbpo.Agent.of_settings(settings)
    capfd.readouterr()
    quiet.learn(400, quiet=True).learn(400, quiet=True)
    assert tuple(capfd.readouterr()) == ("", "")
    assert quiet.folder is not None
    assert loud.folder is not None
    assert rows(quiet.folder) == rows(loud.folder)


def one_too_few(agent):
    return False


class Judge:
    def __call__(self, agent, row):
        """As an object it may be called, as a class it would be made anew each time."""

    def of_three(self, agent, row, more):
        """Nobody gives it three."""


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (one_too_few, r"one_too_few at .* cannot be called with two arguments \(too many position"),
        (lambda: False, "cannot be called with two arguments"),
        (Judge().of_three, r"two arguments \(missing a required argument: 'more'\)"),
        ([Judge(), one_too_few], "one_too_few at .* cannot be called with two arguments"),
        ([].append, "cannot be called with two arguments"),
        (
            cmbpo.EvalCallback,
            r"the class EvalCallback; allowed: one of its objects, as in EvalC.*\(",
        ),
        (Judge, "the class Judge"),
    ],
)
def test_a_callback_that_cannot_be_called_is_refused_before_any_step(callback, said, tmp_path):
    agent = cmbpo.Agent.of_settings(tiny("trpo", tmp_path))
    with pytest.raises(ValueError, match=f"^callback .*{said}"):
        agent.learn(callback=callback)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "callback",
    [
        print,
        max,
        Judge(),
        lambda *both: None,
        lambda agent, row, more=1: None,
        partial(Judge().of_three, more=1),
        cmbpo.EvalCallback(),
    ],
)
def test_whatever_can_be_called_with_agent_and_row_is_a_callback(callback):
    assert _callbacks(callback) == [callback]
    assert _callbacks((callback, callback)) == [callback, callback]


def test_an_agent_does_not_learn_within_its_own_callback(tmp_path):
    heard = []

    def again(agent: cmbpo.Agent, row: Mapping[str, Any]) -> bool:
        assert agent.folder is not None
        for one in (agent, cmbpo.load(agent.folder)):
            with pytest.raises(ValueError, match=r"being trained|already training") as failure:
                one.learn(400)
            heard.append(str(failure.value))
        agent.save(tmp_path / "saved")
        return False

    agent = cmbpo.Agent.of_settings(tiny("trpo", tmp_path)).learn(callback=again)
    assert heard == [
        f"{agent.folder} is being trained by the learn() whose callback this is; allowed in a"
        " callback: to act, evaluate and save, and False to end training",
        f"this process is already training in {agent.folder}",
    ]
    assert (tmp_path / "saved" / "config.json").exists()
    assert agent.learn(400).folder == agent.folder


def test_five_habits_of_a_user_of_stable_baselines3(learned, tmp_path):
    """Construct, learn twice, a callback that stops, save and load, predict."""
    whole, _ = learned
    changes = {"seed": 0, "num_envs": 5, "batch_size": 400, "initial_steps": 200}
    critic = {"hidden": [8], "members": 2, "batch_size": 100, "epochs": 2}
    groups = {"policy": {"hidden": [8]}, "critic": critic, "log_dir": tmp_path / "runs"}
    agent = cmbpo.Agent("trpo", "PointCircle-v0", device="cpu", **changes, **groups)

    agent.learn(500)
    first = agent.folder
    assert first is not None
    assert len(rows(first)) == 1, "600 steps: updates are whole"
    agent.learn(300)
    assert agent.folder == first, "it went on"
    assert rows(first) == rows(whole.folder), "as one learn(800) would have"

    stands = []

    def stop_at_1400(agent: cmbpo.Agent, row: Mapping[str, Any]) -> bool:
        agent.save(tmp_path / "newest")
        stands.append((row["TotalEnvSteps"], agent.evaluate(episodes=1).deterministic.returns[0]))
        return row["TotalEnvSteps"] < 1400

    agent.learn(total_steps=100_000, callback=stop_at_1400)
    assert [steps for steps, _ in stands] == [1400]
    assert len({value for _, value in stands}) == len(stands)

    agent.save(tmp_path / "mine")
    del agent
    again = cmbpo.load(tmp_path / "mine")
    obs, _ = gymnasium.make("cmbpo/PointCircle-v0").reset(seed=0)
    np.testing.assert_array_equal(
        again.predict(obs), cmbpo.load(tmp_path / "newest").predict(obs), "saved in the callback"
    )
    again.learn(400)
    assert again.folder == tmp_path / "mine"
    taken = [int(row["TotalEnvSteps"]) for row in rows(tmp_path / "mine")]
    assert taken == [600, 1000, 1400, 1800]
    assert len(rows(first)) == 3, "what was saved is a run of its own"


def test_without_a_number_an_agent_learns_to_its_total_and_then_says_so(learned):
    agent, _ = learned
    with pytest.warns(UserWarning, match=r"nothing to learn: .* has taken 1000 steps, and 800"):
        assert agent.learn() is agent


def test_the_best_policy_alone_does_not_learn(learned):
    best = cmbpo.load(learned[0].folder)
    best._is_best = True
    with pytest.raises(ValueError, match=r"the best policy of .* alone, without what learns"):
        best.learn(100)


def test_a_run_does_not_go_on_in_another_environment(learned):
    agent = cmbpo.load(learned[0].folder, env="cmbpo/PointCircle-v0")
    with pytest.raises(ValueError, match=r"was trained on PointCircle-v0.*init_from="):
        agent.learn(100)


def test_an_agent_begins_with_what_another_has_learned(learned, tmp_path):
    settings = tiny("trpo", tmp_path, total_steps=400, init_from=learned[0].folder, seed=9)
    careful = replace(settings, trust_region=replace(settings.trust_region, max_kl=1e-8))
    obs = np.random.default_rng(0).normal(size=(50, 4))
    act = learned[0].predict(obs)
    tuned = cmbpo.Agent.of_settings(careful).learn()
    np.testing.assert_allclose(tuned.predict(obs), act, atol=1e-2)
    fresh = cmbpo.Agent.of_settings(replace(careful, init_from=None)).learn()
    assert np.abs(fresh.predict(obs) - act).max() > 0.1


def test_an_agent_acts_on_one_observation_and_on_many_within_its_bounds(learned):
    agent, _ = learned
    obs = np.random.default_rng(0).normal(size=(7, len(agent.task.obs_names)))
    batch, single = agent.predict(obs), agent.predict(obs[0])
    assert batch.shape == (7, len(agent.task.act_names))
    np.testing.assert_allclose(single, batch[0], atol=1e-6)
    drawn = [agent.predict(obs, deterministic=False) for _ in range(2)]
    assert (np.abs(drawn) <= 1.0).all()
    assert (drawn[0] != drawn[1]).any(), "the noise is new each time"
    np.testing.assert_array_equal(agent.predict(obs), batch)


@pytest.mark.parametrize(
    ("obs", "said"),
    [
        (np.zeros(3), r"^the observation has the shape \(3,\); allowed: 4 finite"),
        (np.full(3, np.inf), r"the shape \(3,\) and 3 numbers that are not finite; allowed: 4"),
        (np.full(4, 1e39), "^the observation has 4 numbers that are not finite; allowed"),
        (np.zeros((5, 7)), r"the shape \(5, 7\)"),
        (np.zeros(()), r"the observation is array\(0\.\); allowed: 4 finite numbers"),
        ([0.0, np.nan, 0.0, np.inf], "^the observation has 2 numbers that are not finite; allowed"),
        ([0.0, np.nan, 0.0, 0.0], "^the observation has 1 number that is not finite; allowed"),
        ("right", "the observation is 'right'; allowed: 4 finite numbers, or rows of so many"),
        ([[0.0, 0.0], [0.0]], r"the observation is \[\[0.0, 0.0\], \[0.0\]\]; allowed"),
    ],
)
def test_an_observation_that_cannot_be_is_named(learned, obs, said):
    with pytest.raises(ValueError, match=said):
        learned[0].predict(obs)


def test_an_agent_comes_back_from_its_folder(learned):
    agent, _ = learned
    again = cmbpo.load(agent.folder)
    assert again.folder == agent.folder
    assert again.settings.cost_limit == agent.task.cost_limits
    obs = np.random.default_rng(0).normal(size=(7, len(agent.task.obs_names)))
    np.testing.assert_array_equal(again.predict(obs), agent.predict(obs))


def test_an_agent_is_judged_by_the_limits_of_its_run(tmp_path):
    settings = tiny("trpo", tmp_path, total_steps=400, cost_limit=3.0)
    agent = cmbpo.Agent.of_settings(settings).learn()
    assert "limit 3" in str(agent.evaluate(episodes=1))


def test_an_agent_learns_acts_and_comes_back_from_an_environment_made_in_python(tmp_path):
    make = lambda: limited(Cart)  # noqa: E731
    agent = cmbpo.Agent(
        "ppo-lag",
        make,
        cost_limit=5,
        num_envs=4,
        batch_size=200,
        initial_steps=100,
        total_steps=500,
        log_dir=str(tmp_path),
        policy={"hidden": (8,)},
        critic={"hidden": (8,), "members": 1, "batch_size": 100, "epochs": 1},
    ).learn()
    assert agent.folder is not None
    assert agent.evaluate(episodes=2).deterministic.lengths.max() <= 50
    obs = np.random.default_rng(0).normal(size=(20, 2))
    act = agent.predict(obs)
    assert act.min() >= -1.0
    assert act.max() <= 3.0
    said = agent.export(tmp_path / "robot" / "policy.npz")
    assert said.startswith("what it costs is not known")
    on_robot = numpy_policy.load(tmp_path / "robot" / "policy.npz")
    np.testing.assert_allclose(on_robot(obs), act, atol=1e-5)
    with pytest.raises(ValueError, match="was made in Python"):
        cmbpo.load(agent.folder)
    for given in (make, make()):
        np.testing.assert_array_equal(cmbpo.load(agent.folder, env=given).predict(obs), act)
    again = cmbpo.load(agent.folder, env=make).learn(200)
    assert [int(row["TotalEnvSteps"]) for row in rows(agent.folder)] == [300, 500, 700]
    assert (again.predict(obs) != act).any()
