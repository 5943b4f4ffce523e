"""The example of a ROS 2 node, as a user types it: without ROS, and with a rclpy that is played."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo.evaluation import numpy_policy
from cmbpo.evaluation.export import arrays
from cmbpo.networks import Policy
from cmbpo.runs.checkpoint import write_whole

NODE = Path(__file__).parents[1] / "examples" / "ros2_policy_node.py"
SIMULATED = ("--task", "cmbpo/PointCircle-v0", "--steps", "100", "--patience", "0.12")
PLAYED = {
    "std_msgs/__init__.py": "",
    "std_msgs/msg.py": """
class Float64MultiArray:
    def __init__(self, *, data): self.data = data
""",
    "rclpy/signals.py": "import enum\nSignalHandlerOptions = enum.Enum('Options', 'NO ALL')",
    "rclpy/utilities.py": """
def remove_ros_args(words): return words[: words.index('--ros-args')]
""",
    "rclpy/node.py": """
import logging

class Node:
    def __init__(self, name): self.logger = logging.getLogger(name)
    def create_subscription(self, kind, topic, callback, depth):
        assert topic == 'observation'
        self.heard = callback
    def create_publisher(self, kind, topic, depth):
        assert topic == 'action'
        return self
    def create_timer(self, seconds, callback): self.ticks = callback
    def publish(self, message): print(message.data)
    def get_logger(self): return self.logger
    def destroy_node(self): print('destroyed')
""",
    "rclpy/__init__.py": """
import sys, time
from std_msgs.msg import Float64MultiArray

def init(*, signal_handler_options): assert signal_handler_options.name == 'NO'

def spin(node):
    node.ticks()
    for data in ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3], [0.1, 0.2, float('nan'), 0.4]):
        node.heard(Float64MultiArray(data=data))
        node.ticks()
    node.heard(Float64MultiArray(data=[0.1, 0.2, 0.3, 0.4]))
    time.sleep(0.3)
    node.ticks()
    raise KeyboardInterrupt

def shutdown(): print(sorted({'jax', 'gymnasium', 'cmbpo', 'equinox'} & set(sys.modules)))
""",
}
"""As much of ROS as the node needs, which plays a robot that sends what it should not."""


@pytest.fixture
def robot(tmp_path):
    """A folder as `cmbpo export` leaves it; the policy's first action is above zero throughout."""
    policy = Policy(4, 2, hidden=(8,), log_std=-1.0, last_layer_scale=0.5, key=jax.random.key(1))
    bounds = Box(np.array([0.25, -1.0]), np.array([1.0, 1.0]), dtype=np.float64)
    write_whole(tmp_path / "policy.npz", arrays(policy, bounds))
    (tmp_path / "numpy_policy.py").write_bytes(Path(numpy_policy.__file__).read_bytes())
    return tmp_path


def typed(robot, *words, path=""):
    return subprocess.run(
        [sys.executable, str(NODE), "policy.npz", *words],
        cwd=robot,
        env={"PYTHONPATH": str(path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_without_ros_it_runs_a_simulated_robot(robot):
    done = typed(robot, *SIMULATED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cmbpo/PointCircle-v0: 100 steps, return ")
    assert done.stdout.endswith("; 0 safe actions\n")
    assert done.stderr == ""


def test_a_silent_sensor_is_answered_by_the_safe_action_until_it_speaks_again(robot):
    done = typed(robot, *SIMULATED, "--silence", "2", "1")
    assert done.stdout.endswith("; 18 safe actions\n"), "20 ticks less the two within the patience"
    assert done.stderr.splitlines() == [
        "policy: no observation for 0.12 s: the safe action",
        "policy: observations are there: the policy acts",
    ]


def test_on_ros_only_observations_that_are_fresh_and_sound_reach_the_policy(robot):
    for name, content in PLAYED.items():
        path = robot / "ros" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    done = typed(robot, "--patience", "0.2", "--ros-args", "-r", "a:=b", path=robot / "ros")
    assert done.returncode == 0, done.stderr
    first, acted, *others = done.stdout.splitlines()
    safe = "[0.25, 0.0]"
    assert first == safe, "nothing has come"
    expected = numpy_policy.load(robot / "policy.npz")(np.array([0.1, 0.2, 0.3, 0.4]))
    assert acted == str(expected.astype(float).tolist())
    assert others == [safe] * 4 + ["destroyed", "[]"], "too short, not finite, too old, the end"
    assert done.stderr.count("the safe action") == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "rclpy is missing: source the setup of ROS 2, or try it without, with --task"),
        (("--rate", "0"), "--rate is 0.0; allowed: a finite number above 0"),
        (("--patience", "nan"), "--patience is nan; allowed: a finite number above 0"),
        (("--task", "Nowhere-v0"), "'Nowhere-v0' cannot be made: "),
        (("--task", "Pendulum-v1"), "it was trained on another task"),
    ],
)
def test_a_mistake_is_one_sentence(robot, words, sentence):
    done = typed(robot, *words)
    assert done.returncode != 0
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["policy.npz", "numpy_policy.py"])
def test_what_is_missing_is_named(robot, name):
    (robot / name).unlink()
    done = typed(robot, *SIMULATED)
    assert done.stderr.splitlines()[-1].endswith(
        f"{name} is not there; cmbpo export RUN policy.npz writes it"
    )


def test_what_is_no_policy_is_named(robot):
    (robot / "policy.npz").write_bytes(b"measurements")
    assert typed(robot, *SIMULATED).stderr.startswith("policy.npz is no policy that cmbpo export")
