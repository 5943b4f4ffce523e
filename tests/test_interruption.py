"""A request to stop is never lost: not in another one's care, nor before the first update."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

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


class Heard:
    """A standard error that knows when it was written to."""

    def __init__(self) -> None:
        self.lines: dict[str, float] = {}

    def write(self, text: str) -> None:
        if text.strip():
            self.lines[text.strip()] = time.monotonic()

    def flush(self) -> None:
        pass


def compiled_work() -> None:
    """Some seconds of code that does not come back to Python for a signal."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)


def test_the_first_is_answered_while_compiled_code_runs(monkeypatch):
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)
    with interruption.noted(second_raises=True) as came:
        threading.Timer(0.1, interrupt).start()
        compiled_work()
        end = time.monotonic()
        assert came == [signal.SIGINT]
    assert list(heard.lines) == ["finishing this update; again to stop at once"]
    assert heard.lines[interruption.SAID] < end


def test_where_another_one_is_asked_it_answers_itself(monkeypatch):
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)
    with interruption.noted(second_raises=False) as came:
        interrupt()
        interrupt()
    assert came == [signal.SIGINT] * 2
    assert not heard.lines


STUCK = """
import hashlib, os, signal, threading
from cmbpo import interruption
def interrupt(): os.kill(os.getpid(), signal.{signal})
with interruption.noted(second_raises=True, ends_process=True):
    threading.Timer(0.1, interrupt).start()
    threading.Timer(0.3, interrupt).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)
"""


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_the_second_ends_a_process_that_is_deep_in_compiled_code(number, status):
    done = ended(STUCK.format(signal=number))
    assert (done.returncode, done.stderr) == (status, f"{interruption.SAID}\n")


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


AT_ONCE = """
import hashlib, os, signal, sys, threading
from cmbpo import interruption
def interrupt(): os.kill(os.getpid(), signal.SIGINT)
with interruption.stopped_at_once():
"""


@pytest.mark.parametrize(
    "work",
    [
        "interrupt()",
        "import half_a_module",
        "threading.Timer(0.1, interrupt).start(); hashlib.pbkdf2_hmac('sha256', b'', b'', 10**8)",
        "try: interrupt()\n    except BaseException: raise ValueError('of the interruption')",
        "try: interrupt()\n    finally: print('tidied up')",
    ],
)
def test_a_command_with_nothing_to_save_ends_at_once_and_without_a_word(
    work, tmp_path, monkeypatch
):
    (tmp_path / "half_a_module.py").write_text(
        "import os, signal\n"
        "try: os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException: pass\n"
        "print('the other half')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done = ended(AT_ONCE + f"    {work}\nprint('went on')")
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == ("tidied up\n" if "tidied" in work else "")


TROLLEY = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Trolley(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 2)
        return self.state.copy(), {}

    def step(self, action):
        position, speed = self.state
        self.state = np.array([position + 0.05 * speed, 0.9 * speed + float(action[0])])
        return self.state.copy(), 0.0, False, False, {"cost": float(abs(speed) > 1.0)}


gymnasium.register("Trolley-v0", entry_point=Trolley, max_episode_steps=200)
"""


def test_a_command_whose_compiled_code_is_at_work_does_not_crash(tmp_path):
    """The interpreter ended under a fit of JAX's that went on: a segmentation fault."""
    (tmp_path / "trolley.py").write_text(TROLLEY)
    words = [sys.executable, "-m", "cmbpo", "check", "--env-id", "trolley:Trolley-v0"]
    with subprocess.Popen(
        words, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as checking:
        assert checking.stdout is not None
        assert any("--critic.bound-cost" in line for line in checking.stdout), "then comes a fit"
        time.sleep(1.0)
        checking.send_signal(signal.SIGINT)
        _, said = checking.communicate(timeout=60)
    assert (checking.returncode, said) == (130, "")


def test_afterwards_all_is_as_before():
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    threads = threading.active_count()
    with interruption.stopped_at_once(), interruption.noted(second_raises=True):
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads


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


@pytest.mark.slow
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


def test_the_clock_of_a_time_limit_is_no_request_to_stop(capfd):
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with interruption.noted(second_raises=True) as came:
            for _ in range(2):
                signal.raise_signal(signal.SIGALRM)
                time.sleep(0.05)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came == []
    assert capfd.readouterr().err == ""
