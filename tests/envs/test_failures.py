"""Whatever goes wrong in an environment is named: what, where in the user's code, and when."""

import re
import time

import numpy as np
import pytest

from cmbpo.envs.custom_task import CustomTask
from cmbpo.envs.failures import EnvironmentFailure, Guard, Hung, moment, place, told, words
from cmbpo.envs.simulator import Simulator
from cmbpo.settings.schema import EnvSettings
from tests.envs import bad_environments
from tests.envs.bad_environments import BAD, making

INLINE = [name for name, bad in BAD.items() if bad.inline]
N = 2


def task(name: str) -> CustomTask:
    settings = EnvSettings(timeout=0.2 if name.startswith("hangs") else 60.0)
    return CustomTask(making(name), name=name, cost_limits=(1.0,), settings=settings)


def run(simulator: Simulator, steps: int = 80) -> None:
    for _ in range(steps):
        simulator.step(np.full((N, 1), 0.25))


@pytest.mark.parametrize("name", [name for name in INLINE if BAD[name].then != "goes on"])
def test_a_bad_environment_stops_in_line_with_its_cause(name):
    with pytest.raises(EnvironmentFailure, match=re.escape(BAD[name].words)) as failure:
        run(Simulator(task(name), N, seed=0))
    said = str(failure.value)
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < 1000


@pytest.mark.parametrize("name", [name for name in INLINE if BAD[name].then == "goes on"])
def test_what_can_be_borne_is_counted_and_said_once(name):
    simulator = Simulator(task(name), N, seed=0)
    run(simulator)
    simulator.close()
    said = simulator.mishaps.take_sentences()
    counts = bool(BAD[name].words)
    assert len(said) == counts
    assert (simulator.mishaps.not_finite > 0) == counts
    assert all(BAD[name].words in sentence for sentence in said)


def test_a_failure_says_file_and_line_copy_episode_step_and_action():
    with pytest.raises(EnvironmentFailure) as failure:
        run(Simulator(task("raises_in_step"), N, seed=0))
    source = bad_environments.__file__
    with open(source, encoding="utf-8") as file:
        lines = [i for i, line in enumerate(file, 1) if "motor 3 does not answer" in line]
    assert re.fullmatch(
        rf"step\(\) raised ValueError: motor 3 does not answer, at {source}:{lines[1]} in late\."
        r" It was step 4 of the episode that reset\(seed=\d+\) of copy 0 began, with the action"
        r" \[0\.25\]\.",
        str(failure.value),
    )
    assert isinstance(failure.value.__cause__, ValueError), "Python shows the whole traceback"


def test_the_place_is_the_users_even_if_a_library_raised():
    with pytest.raises(np.linalg.LinAlgError) as raised:
        np.linalg.inv(np.zeros((2, 3)))
    assert f"{__file__}:" in place(raised.value)


def test_without_a_frame_of_the_users_the_deepest_is_named():
    assert place(ValueError()) == " at an unknown place"


def test_only_the_users_own_stop_passes():
    with pytest.raises(KeyboardInterrupt), Guard(None)("step()"):
        raise KeyboardInterrupt
    failed = pytest.raises(EnvironmentFailure, match=r"^step\(\) raised SystemExit: 0, at .*\.$")
    with failed, Guard(None)("step()"):
        raise SystemExit(0)


def test_a_call_that_takes_too_long_is_interrupted():
    late = pytest.raises(Hung, match=r"reset\(\) has not returned within 0.05 s \(--env.timeout\)")
    with late, Guard(0.05)("reset()"):
        time.sleep(60.0)


def test_words_and_sentences():
    assert words(ValueError()) == "ValueError"
    assert words(KeyError("hip")) == "KeyError: 'hip'"
    assert len(words(ValueError("x" * 1000))) < 320
    assert told("One", "", "Two.") == "One. Two."
    assert moment(None, 3, 0, None) == "It was reset(seed=3)"
    assert moment(1, 3, 2, np.ones(9)).endswith("action [1, 1, 1, 1, 1, 1, 1, 1, …]")
