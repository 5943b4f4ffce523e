"""What the velocity tasks share: a robot of Gymnasium's that runs, and a speed from which it costs.

They are one family: a robot is a class of numbers, names and, where it can fall, when it has.
"""

from abc import abstractmethod
from functools import cache
from typing import Any, ClassVar

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from cmbpo.tasks.drawing import scenery
from cmbpo.tasks.physics.stepped import SteppedPhysics
from cmbpo.tasks.simulated import SimulatedTask, Transition, compiled, robot


class VelocityTask(SimulatedTask):
    """Run along x, but cost 1 in every step that is faster than `fastest`; limit 25 an episode.

    Reward, cost, end, observations and starts are those of Gymnasium's v4 environment of the robot
    with the threshold of Safety-Gymnasium 1.0's velocity task (its v1), step by step.

    Speed is the way of a step over its time. Positions along the ground are not observed, so that
    speed is no function of observations: the model learns cost, as of an environment of one's own.
    It knows the end: `failed` is the one definition, for robot and model alike.

    Differences to Safety-Gymnasium 1.0: today's MuJoCo, not 2.3.3. Actions are within [−1, 1],
    clipped before their price is charged; theirs is charged for what is beyond the bounds, too.
    Physics that blow up end the episode, earn nothing and cost 1; theirs are reset inside MuJoCo.
    A robot in a plane has its solver start cold at every step, which moves its next state by less
    than the solver's tolerance. Steps have five parts, with the cost in `info`.
    """

    cost_limits = (25.0,)
    cost_names = ("speed",)
    knows_cost = False

    file: ClassVar[str]
    """The robot, as Gymnasium ships it."""
    fastest: ClassVar[float]
    """Speed up to which a step is free, m/s."""
    unseen: ClassVar[int] = 1
    """Positions, the first ones, that are not observed."""
    largest_seen: ClassVar[float] = np.inf
    """Bound that observed velocities are clipped to."""
    strongest: ClassVar[float] = 1.0
    """Control of the actuators at an action of 1."""
    speed_weight: ClassVar[float] = 1.0
    control_weight: ClassVar[float]
    survival: ClassVar[float] = 0.0
    """Reward of every step, the last one included."""
    noise: ClassVar[float]
    """Positions start U(−noise, noise) around the model's."""
    normal_rates: ClassVar[bool] = False
    """Whether velocities start N(0, noise²), not U(−noise, noise)."""

    def scene(self, *, drawn: bool) -> mujoco.MjModel:
        """The robot on its floor; drawn on one that does not end."""
        return _model(self.file, drawn=drawn)

    def unsafe(self, obs: Float[Any, "*batch obs"]) -> Bool[Any, "*batch"]:
        """Not known: no observation tells the speed of the step that led to it."""
        raise ValueError(f"{self.name} has no cost(obs, act, next_obs): its cost is learned")

    def charged(self, step: Transition) -> Float[np.ndarray, "N cost"]:
        """1 where the step was too fast."""
        velocity = self.velocity(step.state, step.next_state)
        # In a line only speed ahead counts, in the plane every direction.
        speed = velocity[:, 0] if velocity.shape[1] == 1 else np.sqrt(np.vecdot(velocity, velocity))
        too_fast = (speed > self.fastest) | ~self.finite(step.next_obs)
        return too_fast[:, None].astype(np.float64)

    def velocity(
        self, state: Float[np.ndarray, "N state"], next_state: Float[np.ndarray, "N state"]
    ) -> Float[np.ndarray, "N axes"]:
        """Mean velocity of a step along x, m/s."""
        return (next_state[:, 1:2] - state[:, 1:2]) / self.dt

    def start(self, random: np.random.Generator) -> Float[np.ndarray, " start"]:
        """The model's pose, with noise."""
        model = self.model
        qpos = model.qpos0 + random.uniform(-self.noise, self.noise, model.nq)
        if self.normal_rates:
            qvel = self.noise * random.standard_normal(model.nv)
        else:
            qvel = random.uniform(-self.noise, self.noise, model.nv)
        return np.concatenate([[0.0], qpos, qvel])

    def control(
        self, state: Float[np.ndarray, "N state"], act: Float[np.ndarray, "N act"]
    ) -> Float[np.ndarray, "N ctrl"]:
        """Shares of the actuators' gears."""
        return self.strongest * act

    def observe(
        self, state: Float[np.ndarray, "N state"], measured: Float[np.ndarray, "N measured"]
    ) -> Float[np.ndarray, "N obs"]:
        """Positions but the first, and velocities."""
        qvel = 1 + self.model.nq
        rates = state[:, qvel : qvel + self.model.nv]
        if np.isfinite(self.largest_seen):
            rates = np.minimum(np.maximum(rates, -self.largest_seen), self.largest_seen)
        return np.concatenate([state[:, 1 + self.unseen : qvel], rates], axis=1)

    def reward_terms(
        self,
        state: Float[np.ndarray, "N state"],
        act: Float[np.ndarray, "N act"],
        next_state: Float[np.ndarray, "N state"],
        measured: Float[np.ndarray, "N measured"],
    ) -> dict[str, Float[np.ndarray, " N"]]:
        """Forward speed, a bonus for each step where the robot can fall, and what control costs."""
        terms = {"reward_forward": self.speed_weight * self.velocity(state, next_state)[:, 0]}
        if self.survival:
            terms["reward_survive"] = np.full(len(state), self.survival)
        control = self.strongest * act
        return terms | {"reward_control": -self.control_weight * np.vecdot(control, control)}


class SpatialVelocityTask(VelocityTask):
    """The same for robots that are free in space, whose speed is that of a place of the robot.

    Gymnasium reads that place as MuJoCo's step leaves it, at the last stage of Runge–Kutta. It is
    known after that step only, so that rows of states keep it: [time, qpos, qvel, warm start of the
    solver, x, y]. With the warm start a robot does to the bit what Gymnasium's does.
    """

    unseen = 2
    measured: ClassVar[int] = 2
    """Numbers that are read after a step; the first two are the place."""
    forces: ClassVar[bool] = False
    """Whether contact forces are among them."""

    @staticmethod
    @abstractmethod
    def place(data: mujoco.MjData) -> Float[np.ndarray, "2"]:
        """Where the robot is, x and y, as the kinematics have it."""

    def read(self, model: mujoco.MjModel, data: mujoco.MjData, out: np.ndarray) -> None:
        """Write all that is measured."""
        out[:2] = self.place(data)

    def physics(self, threads: int) -> SteppedPhysics:
        """Physics that keep the place of the robot."""
        return SteppedPhysics(
            self.model,
            self.frame_skip,
            threads,
            read=self.read,
            measured=self.measured,
            forces=self.forces,
        )

    def velocity(
        self, state: Float[np.ndarray, "N state"], next_state: Float[np.ndarray, "N state"]
    ) -> Float[np.ndarray, "N axes"]:
        """Mean velocity of the place in a step along x and y, m/s."""
        return (next_state[:, -2:] - state[:, -2:]) / self.dt


@cache
def _model(file: str, *, drawn: bool) -> mujoco.MjModel:
    spec = robot(file)
    if drawn:
        scenery.soften(spec)
        scenery.endless(spec)
    return compiled(spec)
