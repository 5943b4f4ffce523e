"""A request to stop is never lost: not in another one's care, nor before the first update."""

import os
import signal
import threading

import gymnasium
import numpy as np
import pytest

import cmbpo
from cmbpo import interruption
from cmbpo.envs.find import IN_PYTHON
from cmbpo.training import loop
from cmbpo.training.trainer import Trainer
from tests.tiny import rows, tiny


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_inside_another_the_outer_list_is_shared_and_its_rule_holds():
    before = signal.getsignal(signal.SIGINT)
    with interruption.noted(second_raises=True) as outer:
        interrupt()
        with interruption.noted(second_raises=False) as inner:
            assert inner is outer
            assert outer == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before
    with interruption.noted(second_raises=True) as later:
        assert later == []


def test_another_thread_notes_nothing():
    noted = []

    def work() -> None:
        with interruption.noted(second_raises=True) as came:
            noted.append(came)

    with interruption.noted(second_raises=True) as outer:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert noted[0] is not outer


@pytest.fixture
def interrupted_while_built(monkeypatch):
    """A SIGINT that comes while the trainer is built, before anything is collected."""
    build = Trainer.__init__

    def interrupted(*args, **kwargs) -> None:
        interrupt()
        build(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "__init__", interrupted)
        yield


def test_a_run_interrupted_before_its_first_step_says_how_to_begin(
    interrupted_while_built, tmp_path, capsys
):
    del interrupted_while_built
    folder, _ = loop.run(tiny("cpo", tmp_path, total_steps=400))
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"interrupted; go on with: cmbpo train --resume {folder}"
    assert not any("first real steps" in line for line in said)
    assert not list(folder.glob("checkpoints/*"))
    assert not (folder / "progress.csv").exists()
    loop.resume(folder)
    assert capsys.readouterr().out.splitlines()[-1] == said[-1]


class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x]), {}

    def step(self, action):
        self.x += 0.1 * float(action[0])
        return np.array([self.x]), self.x, False, False, {"cost": float(self.x > 0.3)}


def make_line() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Line(), 20)


def test_a_run_on_an_environment_made_in_python_is_told_what_is_true(tmp_path, capsys):
    settings = tiny(
        "cpo", tmp_path, total_steps=10_000, env_id=f"{IN_PYTHON}line", cost_limit=(2.0,)
    )
    folder, _ = loop.run(settings, callbacks=[interrupt], env=make_line)
    last = capsys.readouterr().out.splitlines()[-1]
    assert "--resume" not in last
    assert f"cmbpo.load({str(folder)!r}, env=…)" in last
    assert len(rows(folder)) == 1
    assert cmbpo.load(folder, env=make_line).predict(np.zeros(1)).shape == (1,)


def test_one_that_has_not_begun_there_leaves_nothing(interrupted_while_built, tmp_path, capsys):
    del interrupted_while_built
    settings = tiny("cpo", tmp_path, total_steps=800, env_id=f"{IN_PYTHON}line", cost_limit=(2.0,))
    loop.run(settings, env=make_line)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "interrupted before its first step: there is nothing to go on from"
