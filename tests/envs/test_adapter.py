"""What an environment returns is translated, or refused with what it was and what is allowed."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo import cli
from cmbpo.envs.adapter import adapt, adapted
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.envs.making import maker, time_limit
from cmbpo.evaluation.video import film
from cmbpo.runs.errors import RunError
from cmbpo.settings.schema import EnvSettings

HORIZON = 20

ROBOT = """
import gymnasium, numpy as np

class Robot(gymnasium.Env):
    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=2), {}

    def step(self, action):
        obs = self.np_random.normal(size=2)
        return STEP

gymnasium.register("NAME-v0", entry_point=Robot, max_episode_steps=20)
"""


class Six(gymnasium.Env):
    """Its steps have six parts."""

    def __init__(self):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=2), {}

    def step(self, action):  # pyright: ignore
        obs = self.np_random.normal(size=2)
        return obs, 1.0, float(obs[0] > 0), False, False, {}


class Part(Six):
    """Returns what it is told to."""

    def __init__(self, step=None, start=None):
        super().__init__()
        obs = np.zeros(2)
        self.returned = (obs, 1.0, False, False, {"cost": 0.0}) if step is None else step
        self.start = (obs, {}) if start is None else start

    def reset(self, *, seed=None, options=None):
        return self.start

    def step(self, action):  # pyright: ignore
        return self.returned


class OldReset(Part):
    """Cannot be seeded when it begins."""

    def reset(self):  # pyright: ignore
        return self.start


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Six-v0", entry_point=lambda **_: Six(), max_episode_steps=HORIZON)
    yield
    del gymnasium.registry["Six-v0"]


def around(env):
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TimeLimit(env, HORIZON))


@pytest.mark.parametrize(
    "env",
    ["Six-v0", lambda: gymnasium.make("Six-v0"), lambda: around(Six()), around(Six())],
    ids=["id", "made", "wrapped", "copied"],
)
def test_six_parts_are_understood_below_wrappers_that_take_five(env):
    made = maker(env)()
    assert time_limit(made) == HORIZON
    adapted = adapt(made, ("cost",))
    adapted.reset(seed=3)
    plain = Six()
    plain.reset(seed=3)
    for time in range(1, HORIZON + 1):
        obs, reward, terminated, truncated, info = adapted.step(np.zeros(1))
        wanted = plain.step(np.zeros(1))
        np.testing.assert_array_equal(obs, wanted[0])
        assert (reward, info["cost"].tolist()) == (1.0, [wanted[2]])
        assert (terminated, truncated) == (False, time == HORIZON)


OBS, INFO = np.zeros(2), {"cost": 0.0}


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (
            (OBS, 1.0, False, INFO),
            r"step\(\) returned \(ndarray, float, bool, dict\); allowed: \(ob",
        ),
        (OBS, r"step\(\) returned ndarray; allowed"),
        ((np.zeros(3), 1.0, False, False, INFO), r"float64 of shape \(3,\); allowed: .*\(2,\)"),
        ((OBS, 1.0, False, False, {}), "no cost: its info is empty; allowed: info with 'cost', a"),
        ((OBS, 1.0, False, False, {"price": 1.0}), "info has no 'cost', but 'price' .--env.cost-"),
        ((None, 1.0, False, False, INFO), r"an observation is None; allowed: numbers of shape"),
        ((OBS, None, False, False, INFO), "the reward is None; allowed: a number"),
        ((OBS, 1.0, False, False, {"cost": None}), r"info\['cost'\] is None; allowed: a number"),
        (
            (OBS, 1.0, False, False, {"cost": "much"}),
            r"info\['cost'\] is 'much'; allowed: a number",
        ),
        (
            (OBS, 1.0, False, False, {"cost": np.ones(2)}),
            r"is array\(\[1., 1.\]\); allowed: a numb",
        ),
        ((OBS, 1.0, None, False, False, {}), "third part, is None; allowed: a number"),
    ],
)
def test_a_step_of_another_form_is_refused_with_what_it_was(step, sentence):
    with pytest.raises(ValueError, match=sentence):
        CustomTask(
            lambda: gymnasium.wrappers.TimeLimit(Part(step), HORIZON),
            name="Part",
            cost_limits=(1.0,),
            settings=EnvSettings(),
        )


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (Part(start=OBS), r"reset\(\) returned ndarray; allowed: \(observation, info\)"),
        (Part(start=(OBS, OBS)), r"reset\(\) returned \(ndarray, ndarray\); allowed"),
        (OldReset(), r"reset\(\) cannot be called with seed .*; allowed: reset\(self, \*, seed=No"),
    ],
)
def test_a_reset_of_another_form_is_refused_with_what_it_was(env, sentence):
    with pytest.raises(ValueError, match=sentence):
        adapt(gymnasium.wrappers.TimeLimit(env, HORIZON), ("cost",))


@pytest.mark.parametrize("cost", [1, True, np.float32(1.0), np.ones(()), np.ones(1)])
def test_numbers_of_any_type_are_costs(cost):
    env = adapt(Part((OBS, np.ones(1), False, False, {"cost": cost})), ("cost",))
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.zeros(1))
    assert (reward, info["cost"].tolist()) == (1.0, [1.0])


def typed(monkeypatch, folder, name, step, *args):
    (folder / f"{name}.py").write_text(ROBOT.replace("STEP", step).replace("NAME", name))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["cmbpo", *args, "--env-id", f"{name}:{name}-v0"])
    cli.main()


def test_six_parts_can_be_checked_by_id(monkeypatch, tmp_path, capsys):
    typed(monkeypatch, tmp_path, "csix", "obs, 1.0, 2.0, False, False, {}", "check")
    printed = capsys.readouterr().out
    assert "'cost': 40 per 20 steps" in printed
    assert "csix:csix-v0 can be trained on" in printed


def test_a_cost_that_is_no_number_is_one_sentence_of_each_command(monkeypatch, tmp_path, capsys):
    step = "obs, 1.0, False, False, {'cost': None}"
    with pytest.raises(SystemExit) as ended:
        typed(monkeypatch, tmp_path, "priceless", step, "check")
    assert ended.value.code == 1
    failed = (
        "info['cost'] is None; allowed: a number. It was step 1 of the episode that reset(seed=0)"
    )
    assert f"refused {failed} began, with the action [" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        typed(monkeypatch, tmp_path, "priceless", step, "train", "--cost-limit", "5")
    assert ended.value.code == (
        f"cmbpo train: priceless:priceless-v0: {failed} began, with the action [0]."
    )


class Dark(Part):
    """Takes a render mode but cannot draw."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__()


def test_a_video_of_what_cannot_draw_says_why(tmp_path):
    task = CustomTask(
        lambda **options: around(Dark(**options)),
        name="Dark",
        cost_limits=(1.0,),
        settings=EnvSettings(),
    )
    with pytest.raises(
        RunError, match=r"Dark.* has no render mode 'rgb_array' \(it has: 'ansi'\)$"
    ):
        film(lambda obs: np.zeros(1), task, tmp_path / "film.gif", seed=0)


@pytest.mark.parametrize(
    ("imported", "sentence"),
    [
        (
            "numpy_of_another_name",
            r"its module needs 'numpy_of_another_name', which is not here .* at .*needy\.py:1 in",
        ),
        (
            "numpy as np\nraise OSError('no bus')",
            r"Making it raised OSError: no bus, at .*needy\.py:2",
        ),
    ],
)
def test_a_module_that_fails_to_import_is_not_said_to_be_missing(
    monkeypatch, tmp_path, imported, sentence
):
    (tmp_path / "needy.py").write_text(f"import {imported}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(EnvironmentFailure, match=sentence):
        adapted(maker("needy:Robot-v0"), ("cost",))
    with pytest.raises(EnvironmentFailure, match="there is no module 'needless' here or installed"):
        adapted(maker("needless:Robot-v0"), ("cost",))
