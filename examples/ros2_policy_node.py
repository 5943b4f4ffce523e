"""A trained policy as a ROS 2 node: observations come in, actions go out at a steady rate.

    cmbpo export RUN robot/policy.npz
    python ros2_policy_node.py robot/policy.npz --rate 20

The robot's computer needs this file, the two that `cmbpo export` wrote, NumPy and ROS 2 (Humble or
later); neither JAX nor this package. The node listens on `observation` and publishes on `action`,
both std_msgs/Float64MultiArray. Where observations stop, or are no finite numbers, and when the
node ends, it publishes the safe action: zero, or the bound that is nearest to it.

Where rclpy is missing, a stand-in runs the same node on a simulated robot; here the sensor is
silent for one second, two seconds after the start:

    python ros2_policy_node.py robot/policy.npz --task cmbpo/PointCircle-v0 --silence 2 1
"""

import argparse
import logging
import math
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

try:
    import rclpy
    from rclpy.node import Node
    from rclpy.signals import SignalHandlerOptions
    from rclpy.utilities import remove_ros_args
    from std_msgs.msg import Float64MultiArray
except ImportError:
    rclpy = None

    class Float64MultiArray:
        """A message."""

        def __init__(self, data: list[float]):
            """Hold the numbers."""
            self.data = data

    class Node:
        """As much of rclpy's as the node below needs; `simulate` calls what it was given."""

        def __init__(self, name: str):
            """Named as its messages are."""
            self.name = name

        def create_subscription(self, kind: Any, topic: str, callback: Any, depth: int) -> None:
            """Keep whom to tell of an observation."""
            self.on_observation = callback

        def create_publisher(self, kind: Any, topic: str, depth: int) -> "Node":
            """Keep what is published, itself."""
            return self

        def create_timer(self, seconds: float, callback: Callable[[], None]) -> None:
            """Keep whom to call at each tick."""
            self.on_tick = callback

        def publish(self, message: Float64MultiArray) -> None:
            """Keep the newest message."""
            self.published = message.data

        def get_logger(self) -> logging.Logger:
            """Python's own."""
            return logging.getLogger(self.name)


class PolicyNode(Node):
    """At each tick the policy's action, or the safe one where there is nothing to act on."""

    def __init__(self, path: Path, *, rate: float, patience: float, clock: Callable[[], float]):
        """Load the policy and connect its topics; an observation counts for `patience` seconds."""
        super().__init__("policy")
        self.policy, self.safe = load(path)
        self.patience, self.clock = patience, clock
        self.obs, self.came, self.trouble = None, -math.inf, ""
        self.actions = self.create_publisher(Float64MultiArray, "action", 1)
        self.create_subscription(Float64MultiArray, "observation", self.observe, 1)
        self.create_timer(1.0 / rate, self.tick)

    def observe(self, message: Float64MultiArray) -> None:
        """Keep the newest observation."""
        self.obs, self.came = np.array(message.data), self.clock()

    def tick(self) -> None:
        """Act once, and say so when trouble begins or ends."""
        action, trouble = self.decide()
        if trouble and trouble != self.trouble:
            self.get_logger().warning(f"{trouble}: the safe action")
        elif self.trouble and not trouble:
            self.get_logger().info("observations are there: the policy acts")
        self.trouble = trouble
        self.act(action)

    def decide(self) -> tuple[np.ndarray, str]:
        """An action, and what is wrong where it is not the policy's."""
        if self.obs is None:
            return self.safe, "no observation has come"
        if self.clock() - self.came > self.patience:
            return self.safe, f"no observation for {self.patience:g} s"
        try:
            action = self.policy(self.obs)
        except ValueError:
            return self.safe, "the observation is not of the size or not of finite numbers"
        return (
            (action, "") if np.isfinite(action).all() else (self.safe, "the action is not finite")
        )

    def act(self, action: np.ndarray) -> None:
        """Publish it."""
        self.actions.publish(Float64MultiArray(data=action.astype(float).tolist()))


def load(path: Path) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """An exported policy, with the reader that lies beside it, and the safe action."""
    sys.path.insert(0, str(path.parent))
    import numpy_policy

    try:
        with np.load(path, allow_pickle=False) as file:
            return numpy_policy.load(path), np.clip(0.0, file["low"], file["high"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        sys.exit(f"{path} is no policy that cmbpo export wrote: {error}")


def spin(words: argparse.Namespace, clock: Callable[[], float]) -> None:
    """Run on the robot until it is stopped; the last action is the safe one."""
    # With rclpy's own handlers nothing could be published any more once Ctrl-C is pressed.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    node = PolicyNode(words.policy, rate=words.rate, patience=words.patience, clock=clock)
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.act(node.safe)
        node.destroy_node()
        rclpy.shutdown()


def simulate(words: argparse.Namespace) -> None:
    """Run one episode of a Gymnasium task, in simulated time, and say what came of it."""
    import gymnasium

    if words.task.startswith("cmbpo/"):
        import cmbpo.tasks  # noqa: F401, registers them
    sys.path.insert(0, "")
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    try:
        env = gymnasium.make(words.task)
    except (gymnasium.error.Error, ImportError) as error:
        sys.exit(f"{words.task!r} cannot be made: {error}")
    step, ended, earned, cost, safe = 0, False, 0.0, 0.0, 0
    node = PolicyNode(
        words.policy, rate=words.rate, patience=words.patience, clock=lambda: step / words.rate
    )
    if node.safe.shape != env.action_space.shape:
        shapes = f"{node.safe.shape}, those of {words.task} {env.action_space.shape}"
        sys.exit(f"actions of the policy have the shape {shapes}: it was trained on another task")
    obs, _ = env.reset(seed=words.seed)
    start, length = words.silence
    while not ended and step < words.steps:
        if not start <= step / words.rate < start + length:
            node.on_observation(Float64MultiArray(data=obs.tolist()))
        node.on_tick()
        action = np.array(node.published, env.action_space.dtype)
        obs, reward, terminated, truncated, info = env.step(action)
        step, ended, safe = step + 1, terminated or truncated, safe + bool(node.trouble)
        earned, cost = earned + float(reward), cost + float(info.get("cost", 0.0))
    print(f"{words.task}: {step} steps, return {earned:.1f}, cost {cost:g}; {safe} safe actions")


def arguments() -> argparse.Namespace:
    """What was typed, once it can be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("policy", type=Path, help="the .npz file that cmbpo export wrote")
    parser.add_argument("--rate", type=float, default=20.0, help="actions per second, as trained")
    parser.add_argument("--patience", type=float, help="seconds (default: three actions)")
    parser.add_argument("--task", help="without ROS: the Gymnasium id of a simulated robot")
    parser.add_argument("--steps", type=int, default=1000, help="without ROS: at most so many")
    parser.add_argument("--seed", type=int, default=0, help="without ROS: seed of the episode")
    parser.add_argument(
        "--silence",
        type=float,
        nargs=2,
        default=(0.0, 0.0),
        metavar=("START", "SECONDS"),
        help="without ROS: when the sensor is silent",
    )
    words = parser.parse_args((remove_ros_args(sys.argv) if rclpy else sys.argv)[1:])
    if not (words.rate > 0.0 and math.isfinite(words.rate)):
        parser.error(f"--rate is {words.rate}; allowed: a finite number above 0")
    words.patience = 3.0 / words.rate if words.patience is None else words.patience
    if not 0.0 < words.patience < math.inf:
        parser.error(f"--patience is {words.patience}; allowed: a finite number above 0")
    for path in (words.policy, words.policy.with_name("numpy_policy.py")):
        if not path.is_file():
            parser.error(f"{path} is not there; cmbpo export RUN {words.policy} writes it")
    if bool(words.task) == bool(rclpy):
        parser.error(
            "--task is given, but rclpy is there: it is for trying the node without ROS"
            if rclpy
            else "rclpy is missing: source the setup of ROS 2, or try it without, with --task"
        )
    return words


def main() -> None:
    """Run the node, on the robot or simulated."""
    words = arguments()
    if words.task:
        simulate(words)
    else:
        # A clock that nobody sets: one that is set back would make old observations new.
        spin(words, time.monotonic)


if __name__ == "__main__":
    main()
