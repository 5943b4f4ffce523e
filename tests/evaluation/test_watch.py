"""A policy is watched in a window where there is a screen, else as a video."""

import numpy as np
import pytest

from cmbpo.envs.custom_task import CustomTask
from cmbpo.evaluation import viewer, watch
from cmbpo.evaluation.score import Score
from cmbpo.evaluation.video import Film
from cmbpo.settings.schema import EnvSettings
from cmbpo.training import loop
from tests.envs.test_custom_task import Cart, limited
from tests.tiny import tiny

SCORE = Score(("lane",), (10.0,), 1000, steps=9, earned=3.0)


@pytest.fixture
def filmed(monkeypatch):
    """What was filmed, without drawing it."""
    seen = []

    def film(policy, task, path, *, seed, cost_limits, watch):
        env = task.environment()
        obs, _ = env.reset(seed=seed)
        seen.append((str(path), seed, cost_limits, policy(obs).shape))
        return Film(path, SCORE)

    monkeypatch.setattr(watch, "film", film)
    monkeypatch.setattr(watch, "has_screen", lambda: False)
    return seen


def test_without_a_screen_it_becomes_a_video_of_a_new_episode(filmed, capsys):
    for _ in range(2):
        watch.main("PointCircle", video=None, seed=None)
    (first, seed, limits, shape), (second, other, _, _) = filmed
    assert first == f"PointCircle-{seed}.mp4"
    assert first != second
    assert seed != other
    assert (limits, shape) == ((10.0,), (2,))
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("PointCircle-v0: cmbpo after")
    assert said[1] == "there is no screen here: it becomes a video"
    assert said[2] == f"video: {first} (return 3, cost 0 of 10, 9 steps, seed {seed})"


def test_with_a_screen_it_is_a_window_and_without_a_driver_a_video(filmed, monkeypatch, capsys):
    shown = []

    def show(policy, task, *, seed, cost_limits):
        shown.append((task.name, seed))
        if len(shown) == 2:
            raise RuntimeError("no driver")
        return [SCORE]

    monkeypatch.setattr(watch, "has_screen", lambda: True)
    monkeypatch.setattr(viewer, "show", show)
    watch.main("PointCircle", video=None, seed=3)
    assert not filmed
    assert "episode 1: return 3, cost 0 of 10, 9 steps" in capsys.readouterr().out
    watch.main("PointCircle", video=None, seed=3)
    assert shown == [("PointCircle-v0", 3)] * 2
    assert "no window can be opened here (no driver)" in capsys.readouterr().out
    assert [path for path, *_ in filmed] == ["PointCircle-3.mp4"]


def test_a_run_is_watched_with_its_own_limits(filmed, tmp_path):
    folder, _ = loop.run(tiny("trpo", tmp_path, total_steps=400, cost_limit=(7.0,)))
    watch.main(str(folder), video=tmp_path / "a.gif", seed=5)
    assert filmed == [(str(tmp_path / "a.gif"), 5, (7.0,), (2,))]


@pytest.mark.parametrize("screen", [True, False])
def test_an_environment_of_ones_own_is_a_video_with_or_without_a_screen(
    filmed, monkeypatch, capsys, screen
):
    task = CustomTask(
        lambda: limited(Cart), name="Cart", cost_limits=(1.0,), settings=EnvSettings()
    )
    own = watch.Watched(lambda obs: np.zeros(1), task, (1.0,), "Cart: the newest policy")
    monkeypatch.setattr(watch, "has_screen", lambda: screen)
    monkeypatch.setattr(watch, "_of_run", lambda *_: own)
    watch.main("runs/cart", video=None, seed=3)
    assert "the environment is your own: it becomes a video" in capsys.readouterr().out
    assert [path for path, *_ in filmed] == ["Cart-3.mp4"]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("Moon", "'Moon' is neither a run folder nor a task with a trained policy; there are"),
        ("/nowhere", "/nowhere is no run folder"),
    ],
)
def test_what_cannot_be_watched_is_one_sentence(what, said):
    with pytest.raises(ValueError, match=said):
        watch.main(what, video=None, seed=None)
