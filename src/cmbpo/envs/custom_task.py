"""The user's own environment as a task: what is known of it, and what will have to be learned."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float

from cmbpo.envs.adapter import EnvAdapter, adapted
from cmbpo.envs.copies.vector import VectorCopies
from cmbpo.envs.failures import EnvironmentFailure
from cmbpo.envs.making import horizon_of
from cmbpo.envs.random_steps import Transitions, random_steps
from cmbpo.envs.spaces import rescaled, rows_of
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.task import Task

TOLERATED = 0.01
"""Share of steps on which a function may differ from its environment: single precision at edges."""
TOLERATED_EVENTS, FEW = 0.1, 3
"""The same among steps that cost or end, once there are a few: most steps do neither."""


class CustomTask(Task):
    """What is known of an environment: its spaces, its time limit, and the functions it offers.

    `env.cost(obs, act, next_obs)` and `env.terminated(obs, act, next_obs)`, in the environment's
    units and for any leading axes, are used in imagined steps; what is not offered is learned.
    """

    def __init__(
        self,
        make: Callable[..., gymnasium.Env],
        *,
        name: str,
        cost_limits: tuple[float, ...],
        settings: EnvSettings,
        num_envs: int = 1,
    ):
        """Make one copy and take a step in it; of a robot there are `num_envs`, and no more."""
        self.name, self.cost_limits, self.settings = name, cost_limits, settings
        self.cost_names, self.most_copies = settings.cost_key, num_envs
        self.make = make
        try:
            env = self.environment()
            env.reset(seed=0)
            env.step(np.zeros(env.bounds.shape))
        except EnvironmentFailure as problem:
            raise EnvironmentFailure(f"{name}: {problem}") from problem
        self.horizon = horizon_of(env, name, settings.horizon)
        self._bounds = env.bounds
        self.obs_names = env.obs_names
        self._obs_space = env.env.observation_space
        self.act_names = tuple(f"act_{i}" for i in range(self.bounds.shape[0]))
        self._cost = _function(env, "cost")
        self._terminated = _function(env, "terminated")
        self.knows_cost = self._cost is not None
        self.knows_termination = self._terminated is not None
        self._dt = 1.0 / float(env.metadata.get("render_fps") or 20.0)

    @property
    def dt(self) -> float:
        """Seconds of a step, as far as the environment says with its frames a second."""
        return self._dt

    @property
    def bounds(self) -> Box:
        """The environment's action space."""
        return self._bounds

    def copies(self, num_envs: int, *, threads: int) -> VectorCopies:
        """Copies in line or in processes, whose physics need no threads of ours."""
        del threads
        return VectorCopies(self.make, num_envs, settings=self.settings)

    def environment(self, **options: Any) -> EnvAdapter:
        """One more copy; `options`, such as the render mode, go to what makes it."""
        settings = self.settings
        return adapted(self.make, settings.cost_key, timeout=settings.timeout, **options)

    def as_rows(self, obs: Any) -> Float[np.ndarray, "*batch obs"]:
        """Observations as the policy takes them; of a Dict, its entries one after the other."""
        if not isinstance(obs, Mapping):
            return super().as_rows(obs)
        return rows_of(obs, self._obs_space)

    def in_units(self, act: Float[Any, "*batch act"]) -> Float[Any, "*batch act"]:
        """The environment's action for a policy's, which is within [−1, 1]."""
        return rescaled(act, self.bounds)

    def costs(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Float[Any, "*batch cost"]:
        """What the environment's own function says of each cost."""
        if self._cost is None:
            raise ValueError(f"{self.name} offers no function cost(obs, act, next_obs)")
        xp = next_obs.__array_namespace__()
        cost = 1.0 * xp.asarray(self._cost(obs, self.in_units(act), next_obs))
        if cost.ndim == next_obs.ndim - 1:
            cost = cost[..., None]
        return xp.where(self.finite(next_obs)[..., None], cost, 1.0).astype(next_obs.dtype)

    def terminated(
        self,
        obs: Float[Any, "*batch obs"],
        act: Float[Any, "*batch act"],
        next_obs: Float[Any, "*batch obs"],
    ) -> Bool[Any, "*batch"]:
        """What the environment's own function says of the end."""
        if self._terminated is None:
            raise ValueError(f"{self.name} offers no function terminated(obs, act, next_obs)")
        xp = next_obs.__array_namespace__()
        ended = xp.asarray(self._terminated(obs, self.in_units(act), next_obs)).astype(bool)
        return ended | ~self.finite(next_obs)

    def verify(self, steps: int = 300) -> None:
        """Hold the functions that the environment offers against random steps of it."""
        if not (self.knows_cost or self.knows_termination):
            return
        rows = random_steps(self.environment(), steps, horizon=self.horizon, seed=0)
        for complaint in complaints(self, rows):
            raise ValueError(f"{self.name}: {complaint}")


def complaints(task: CustomTask, rows: Transitions) -> list[str]:
    """What is wrong with the functions that an environment offers, on these steps of it."""
    sayings = []
    if task.knows_cost:
        sayings.append(_complaint("cost", task.costs, rows, rows.cost))
    if task.knows_termination:
        sayings.append(_complaint("terminated", task.terminated, rows, rows.terminated))
    return [complaint for complaint in sayings if complaint]


def _complaint(
    name: str, function: Callable[..., Any], rows: Transitions, true: np.ndarray
) -> str | None:
    import jax

    told = f"its function {name}(obs, act, next_obs)"
    single = [part.astype(np.float32) for part in (rows.obs, rows.act, rows.next_obs)]
    try:
        # Two leading axes, as imagined steps of several networks have.
        said = jax.jit(function)(*(part[None] for part in single))
    except Exception as error:  # the user's function may raise anything
        reason = (str(error).strip().splitlines() or [""])[0]
        return (
            f"{told} fails on JAX arrays ({type(error).__name__}: {reason}); it must be written"
            " with array operations only, as in xp = next_obs.__array_namespace__(); xp.where(…)"
        )
    said = np.asarray(said)
    if said.shape != (1, *true.shape):
        wanted = " (one axis more for several costs)" if name == "cost" else ""
        return (
            f"{told} makes shape {said.shape} of a batch of shape {(1, *rows.obs.shape)}; allowed:"
            f" {(1, *true.shape[:1])}{wanted}"
        )
    rows_said, rows_true = (x.reshape(len(true), -1).astype(float) for x in (said[0], true))
    wrong = ~np.isclose(rows_said, rows_true, rtol=1e-3, atol=1e-4)
    differ = np.any(wrong, axis=1) & rows.sound
    missed = differ[np.any((rows_said != 0.0) | (rows_true != 0.0), axis=1)]
    if differ.mean() > TOLERATED or (len(missed) >= FEW and missed.mean() > TOLERATED_EVENTS):
        first = int(np.argmax(differ))
        return (
            f"{told} differs from the environment on {differ.mean():.1%} of {len(true)} steps: in"
            f" step {first} it says {said[0, first]}, the environment {true[first]}"
        )
    return None


def _function(env: gymnasium.Env, name: str) -> Callable[..., Any] | None:
    """The function of (obs, act, next_obs) that the environment or a wrapper of it offers, if any.

    Something else may well have the same name: it is not what is looked for.
    """
    offered = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    if not callable(offered):
        return None
    try:
        inspect.signature(offered).bind("obs", "act", "next_obs")
    except (TypeError, ValueError):
        return None
    return offered
