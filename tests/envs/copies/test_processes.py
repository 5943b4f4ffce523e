"""Copies in processes: what goes wrong in one is named, who dies is replaced, and none is left."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cmbpo.envs.copies.processes import sendable
from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.envs.simulator import Simulator
from cmbpo.settings.schema import EnvSettings
from tests.envs.bad_environments import BAD, LATE, making

N = 2
ROOT = Path(__file__).parents[3]
SOME = [
    *("raises_in_late_reset", "raises_in_step", "raises_in_numpy", "raises_system_exit"),
    *("raises_broken_pipe", "raises_eof_error", "no_info", "wrong_shape", "six_parts", "nan_cost"),
    *("exits", "exits_well", "kills_itself", "crashes", "dies_in_reset", "hangs", "hangs_in_reset"),
]


def simulator(name: str) -> Simulator:
    settings = EnvSettings(copies="processes", timeout=0.3 if name.startswith("hangs") else 60.0)
    task = CustomTask(making(name), name=name, cost_limits=(1.0,), settings=settings)
    return Simulator(task, N, seed=0)


def processes(copies: Simulator) -> list:
    return [copy._process for copy in copies._copies._copies]  # pyright: ignore


def run(copies: Simulator, steps: int) -> list:
    return [copies.step(np.full((N, 1), 0.25)) for _ in range(steps)]


@pytest.mark.parametrize("name", SOME)
def test_a_bad_environment_stops_in_processes_with_its_cause(name):
    copies = simulator(name)
    began = processes(copies)
    with pytest.raises(EnvironmentFailure, match=re.escape(BAD[name].words)) as failure:
        run(copies, 200)
    assert re.search(r"of copy [01]", str(failure.value))
    restarts = {"stops": 0, "restarts": 8}[BAD[name].then]
    assert copies.mishaps.restarts == restarts, "four for each, and the fifth is too many"
    assert len(copies.mishaps.take_sentences()) == (restarts or int(name == "nan_cost"))
    copies.close()
    assert not any(process.is_alive() for process in began)


def test_the_step_in_which_a_copy_dies_is_no_data():
    copies = simulator("kills_itself")
    steps = run(copies, LATE - 1)
    assert not any(step.lost.any() for step in steps[:-1])
    before, dead = steps[-2], steps[-1]
    assert dead.lost.all()
    assert dead.truncated.all()
    assert dead.cut.all(), "a lost episode is no whole one"
    assert not dead.terminated.any()
    np.testing.assert_array_equal(dead.next_obs, before.obs)
    assert not np.array_equal(dead.obs, dead.next_obs), "another episode has begun"
    assert (dead.reward.tolist(), dead.cost.tolist()) == ([0.0] * N, [[0.0]] * N)
    assert np.isfinite(run(copies, 5)[-1].obs).all()
    copies.close()


def test_a_copy_that_is_killed_from_outside_is_replaced_while_the_others_go_on():
    copies, undisturbed = simulator("raises_in_close"), simulator("raises_in_close")
    run(copies, 3)
    os.kill(processes(copies)[0].pid, signal.SIGKILL)
    run(undisturbed, 3)
    for one, other in zip(run(copies, 20), run(undisturbed, 20), strict=True):
        np.testing.assert_array_equal(one.next_obs[1], other.next_obs[1])
    assert copies.mishaps.restarts == 1
    copies.close()
    undisturbed.close()


def test_one_that_answers_nothing_at_all_is_ended():
    copies = simulator("hangs")
    os.kill(processes(copies)[1].pid, signal.SIGSTOP)
    run(copies, 1)
    (said,) = copies.mishaps.take_sentences()
    assert said.startswith("Copy 1 has not answered within 0.3 s (--env.timeout). It was step 1")
    copies.close()


def test_what_cannot_be_sent_is_said():
    lock = threading.Lock()
    with pytest.raises(
        EnvironmentFailure, match=r"cannot be sent to another process .*lock.*inlin"
    ):
        sendable(lambda: lock)  # pyright: ignore


DYING = """
import os
from tests.envs.bad_environments import Fine, HORIZON
import gymnasium
main = os.getpid()
def make():
    if os.getpid() != main:
        os._exit(7)
    return gymnasium.wrappers.TimeLimit(Fine(), HORIZON)
"""


def test_who_dies_while_it_is_made_is_a_failure():
    space: dict = {}
    exec(DYING, space)
    settings = EnvSettings(copies="processes")
    task = CustomTask(space["make"], name="Dying", cost_limits=(1.0,), settings=settings)
    with pytest.raises(
        EnvironmentFailure, match=r"^Copy 0, while it was made, ended with status 7"
    ):
        Simulator(task, N, seed=0)


ORPHANS = """
import sys, time
import numpy as np
from tests.envs.copies.test_processes import processes, run, simulator
if __name__ == "__main__":
    copies = simulator("hangs_in_close")
    print(*(process.pid for process in processes(copies)), flush=True)
    for copy in copies._copies._copies:
        copy.reset(0)
    time.sleep(600)
"""


def test_who_kills_the_main_process_leaves_no_copy_behind(tmp_path):
    script = tmp_path / "orphans.py"
    script.write_text(textwrap.dedent(ORPHANS))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    main = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert main.stdout is not None
    copies = [int(word) for word in main.stdout.readline().split()]
    assert len(copies) == N
    main.kill()
    main.communicate()
    until = time.monotonic() + 20.0
    while any(map(alive, copies)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, copies))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
