"""Boundary 4.1 in its practical form: what a step predicted of the cost, and what came of it."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from cmbpo.theory.bound import Practical, practical


@dataclass(frozen=True)
class Prediction:
    """What the step of an update was made from: the real cost then, and the change it predicted.

    Costs are per horizon; `disagreement` is D̄ in nats of the whole vector, 0 without a model.
    """

    cost: np.ndarray
    change: np.ndarray
    kl: np.ndarray
    disagreement: np.ndarray

    def against(self, real: np.ndarray, *, discount: float) -> Practical:
        """The prediction beside the real cost `real` of the next update."""
        return practical(
            kl=jnp.asarray(self.kl, jnp.float32),
            disagreement=jnp.asarray(self.disagreement, jnp.float32),
            cost_surrogate=jnp.asarray(self.change, jnp.float32),
            cost_before=jnp.asarray(self.cost, jnp.float32),
            cost_after=jnp.asarray(real, jnp.float32),
            discount=discount,
        )


def no_prediction(n_cost: int) -> Prediction:
    """Before the first step; its comparison is not a number."""
    unknown = np.full(n_cost, np.nan)
    return Prediction(unknown, unknown, np.array(np.nan), np.array(np.nan))
