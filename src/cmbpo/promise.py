"""Boundary 4.1 in its practical form: what a step promised of the cost, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from cmbpo import bound


@dataclass(frozen=True)
class Promise:
    """What the step of an update was made from: the real cost then, and the change it predicted."""

    cost: np.ndarray
    change: np.ndarray
    kl: np.ndarray
    disagreement: np.ndarray

    @classmethod
    def none(cls, n_cost: int) -> "Promise":
        """Before the first step; its comparison is not a number."""
        unknown = np.full(n_cost, np.nan)
        return cls(unknown, unknown, np.array(np.nan), np.array(np.nan))

    @classmethod
    def of(cls, metrics: Mapping[str, Any], *, width: int) -> "Promise":
        """From what an update measured; the model predicts `width` numbers a step."""
        return cls(
            cost=np.asarray(metrics["Constraint/Real"], float),
            change=np.asarray(metrics["Constraint/PredictedChange"], float),
            kl=np.asarray(metrics["Train/KL"], float),
            disagreement=np.array(width * float(metrics.get("Model/KL", 0.0))),
        )

    def against(self, real: np.ndarray, *, discount: float) -> dict[str, Any]:
        """The promise beside the real cost `real` of the next update, for the log."""
        kept = bound.practical(
            kl=jnp.asarray(self.kl, jnp.float32),
            disagreement=jnp.asarray(self.disagreement, jnp.float32),
            cost_surrogate=jnp.asarray(self.change, jnp.float32),
            cost_before=jnp.asarray(self.cost, jnp.float32),
            cost_after=jnp.asarray(real, jnp.float32),
            discount=discount,
        )
        return {
            "Bound/EpsilonPolicy": kept.eps_pi,
            "Bound/EpsilonModel": kept.eps_m,
            "Bound/Epsilon": kept.epsilon,
            "Bound/PromisedChange": kept.predicted_cost_change,
            "Bound/RealChange": kept.real_cost_change,
        }
