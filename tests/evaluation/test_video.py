"""An episode is filmed, or one sentence says why it cannot be."""

import gymnasium
import numpy as np
import pytest
from PIL import Image

from cmbpo.envs.custom_task import CustomTask
from cmbpo.evaluation.video import check_name, film, require_pictures
from cmbpo.runs.errors import RunError
from cmbpo.settings.schema import EnvSettings
from tests.evaluation.test_evaluate import TASK, Cliff


def test_a_video_of_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"suffix '\.avi'; allowed: \.mp4 or \.gif"):
        film(lambda obs: np.zeros(2), TASK, tmp_path / "film.avi", seed=0)


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_an_episode_is_filmed(tmp_path, name):
    try:
        path = film(lambda obs: np.zeros(2), Cliff(), tmp_path / "new" / name, seed=0).path
    except RunError as error:
        assert "libegl1" in str(error)  # noqa: PT017
        pytest.skip(str(error))
    assert path.stat().st_size > 1000


def test_a_video_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "film.mp4").mkdir()
    with pytest.raises(RunError, match=r"could not write .*film\.mp4|libegl1"):
        film(lambda obs: np.zeros(2), Cliff(), tmp_path / "film.mp4", seed=0)


def test_a_film_takes_the_place_of_a_link_and_leaves_what_it_led_to(tmp_path):
    (tmp_path / "letter").write_text("mine")
    (tmp_path / "film.gif").symlink_to(tmp_path / "letter")
    settings = EnvSettings(horizon=30)
    task = CustomTask(Painted, name="Painted", cost_limits=(1.0,), settings=settings)
    film(lambda obs: np.zeros(1), task, tmp_path / "film.gif", seed=0)
    assert (tmp_path / "letter").read_text() == "mine"
    assert not (tmp_path / "film.gif").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"letter", "film.gif"}


def test_how_much_of_a_film_is_drawn_is_told(tmp_path):
    settings = EnvSettings(horizon=30)
    task = CustomTask(Painted, name="Painted", cost_limits=(1.0,), settings=settings)
    told = []
    film(lambda obs: np.zeros(1), task, tmp_path / "film.mp4", seed=0, watch=told.append)
    assert told == pytest.approx([*(i / 30 for i in range(30)), 1.0])


@pytest.mark.parametrize("name", ["film.mp4", "a/b/film.gif"])
def test_films_that_can_be_written_are_not_refused(name, tmp_path):
    check_name(tmp_path / name)


class Painted(gymnasium.Env):
    """Draws a picture of one colour at each of its steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float64)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.pictures = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time), 0.0, self.time == 30, False, {"cost": 0.0}

    def render(self):
        self.pictures.append(self.time)
        return np.full((32, 48, 3), 8 * self.time, np.uint8)


@pytest.mark.parametrize(("name", "every"), [("film.mp4", 1), ("film.gif", 5)])
def test_a_film_runs_as_fast_as_the_task_and_a_gif_at_most_at_10_frames_a_second(
    name, every, tmp_path
):
    shown = []

    def make(**options):
        env = Painted(**options)
        shown.append(env.pictures)
        return gymnasium.wrappers.TimeLimit(env, 40)

    task = CustomTask(make, name="Painted", cost_limits=(1.0,), settings=EnvSettings())
    assert task.dt == 1.0 / 50
    path, score, size = film(lambda obs: np.zeros(1), task, tmp_path / name, seed=0)
    assert path.stat().st_size == size > 0
    assert (score.steps, score.earned, score.costly) == (30, 0.0, [])
    assert shown[-1] == list(range(0, 30, every)), "and it ends with the episode"


def test_what_takes_no_render_mode_is_named(tmp_path):
    task = CustomTask(
        lambda: gymnasium.wrappers.TimeLimit(Painted(), 9),
        name="Blind",
        cost_limits=(1.0,),
        settings=EnvSettings(),
    )
    with pytest.raises(RunError, match="what makes Blind takes no render_mode"):
        film(lambda obs: np.zeros(1), task, tmp_path / "film.gif", seed=0)


@pytest.mark.parametrize(("width", "pixels"), [(800, (320, 160)), (48, (48, 24))])
def test_a_gif_is_at_most_320_wide_and_says_how_large_it_is(tmp_path, width, pixels):
    class Wide(Painted):
        def render(self):
            return np.full((width // 2, width, 3), 8 * self.time, np.uint8)

    settings = EnvSettings(horizon=30)
    task = CustomTask(Wide, name="Wide", cost_limits=(1.0,), settings=settings)
    found = film(lambda obs: np.zeros(1), task, tmp_path / "film.gif", seed=0)
    with Image.open(found.path) as picture:
        assert picture.size == pixels
    assert found.remark() == f", {found.size / 1e6:.1f} MB: an .mp4 is sharper and smaller"
    assert film(lambda obs: np.zeros(1), task, tmp_path / "film.mp4", seed=0).remark() == ""


def test_what_draws_nothing_is_found_out_with_one_picture():
    settings = EnvSettings(horizon=30)
    shown = CustomTask(Painted, name="Painted", cost_limits=(1.0,), settings=settings)
    require_pictures(shown)
    unseen = CustomTask(lambda: Painted(), name="Blind", cost_limits=(1.0,), settings=settings)
    with pytest.raises(RunError, match="cannot be drawn: what makes Blind takes no render_mode"):
        require_pictures(unseen)
