"""A call that takes too long is interrupted; nothing else is, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cmbpo.envs import alarm
from cmbpo.envs.alarm import Alarm, TimeUp


@pytest.fixture(autouse=True)
def nothing_left_behind():
    if alarm._clock._interval:  # of another test's environment; its next tick may be a minute away
        alarm._clock._tick(signal.SIGALRM, None)
    before = signal.getsignal(signal.SIGALRM)
    yield
    until = time.monotonic() + 5.0
    while signal.getsignal(signal.SIGALRM) is not before and time.monotonic() < until:
        time.sleep(0.01)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_hangs_is_interrupted_after_its_time():
    began = time.monotonic()
    with pytest.raises(TimeUp), Alarm(0.1):
        time.sleep(60.0)
    assert 0.1 <= time.monotonic() - began < 30.0


def test_who_catches_every_exception_is_interrupted_too():
    def deaf():
        while True:
            try:
                time.sleep(60.0)
            except Exception:
                continue

    with pytest.raises(TimeUp), Alarm(0.05):
        deaf()


def test_calls_one_after_the_other_have_the_time_each():
    limit = Alarm(0.5)
    for _ in range(8):
        with limit:
            time.sleep(0.1)


def test_none_is_no_limit():
    with Alarm(None):
        assert alarm._clock.alarm is None


def test_another_thread_takes_its_time():
    seen = []

    def hang():
        with Alarm(0.01):
            time.sleep(0.2)
        seen.append(True)

    thread = threading.Thread(target=hang)
    thread.start()
    thread.join()
    assert seen == [True]


LEAVING = """
import time
from cmbpo.envs.alarm import Alarm
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)
slow = Slow()
with Alarm(1.0):
    print("whole")
"""


def test_no_tick_ends_a_process_that_takes_its_time_to_end():
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\n", "")


STOPPED = """
import time
from cmbpo.envs.alarm import Alarm
with Alarm(1.0):
    print("begun", flush=True)
    time.sleep(0.4)
print("whole", flush=True)
"""


def test_while_the_process_is_stopped_its_time_does_not_pass():
    child = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(child.pid, signal.SIGCONT)
    assert child.communicate()[0] == "whole\n"
