"""What the networks miss of real steps, added to imagined ones: means alone never stumble."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cmbpo.data.archive import Archive
from cmbpo.data.data_split import is_held_out
from cmbpo.data.start_states import Starts
from cmbpo.model.ensemble import Ensemble, Prediction, predict

ROWS = 512
"""Real steps whose errors are kept for a batch of imagined ones."""
CANDIDATES = 2**15
"""Draws that these are found among: where 5000 rows are held out of 100,000, one in twenty is."""


def held_out_errors(
    ensemble: Ensemble, archive: Archive, starts: Starts, *, key: PRNGKeyArray
) -> Float[Array, "E rows obs"]:
    """What each network's mean missed of real steps, in units of the σ that it predicted.

        eᵢ = (s'ᵢ − sᵢ − μ(sᵢ, aᵢ)) / σ(sᵢ, aᵢ)

    The steps are drawn as start states are, so of policies like the present one, and only those
    are taken that no network was fitted to. Where none is held out, the errors are 0.
    """
    drawn = starts.draw(archive, (CANDIDATES,), key=key)
    held = is_held_out(archive)[drawn]
    (found,) = jnp.nonzero(held, size=ROWS, fill_value=0)
    count = jnp.minimum(jnp.sum(held), ROWS)
    rows = drawn[found[jnp.arange(ROWS) % jnp.maximum(count, 1)]]
    obs = archive.obs[rows]
    prediction = predict(ensemble, obs, archive.act[rows])
    n_obs = obs.shape[-1]
    missed = (archive.next_obs[rows] - obs)[None] - prediction.mean[..., :n_obs]
    return jnp.where(count > 0, missed / jnp.sqrt(prediction.variance[..., :n_obs]), 0.0)


def with_errors(
    prediction: Prediction, errors: Float[Array, "E rows obs"], *, key: PRNGKeyArray
) -> Float[Array, "E lanes obs"]:
    """Δs of every network with an error of a real step, drawn anew for each lane.

        Δs = μ(s, a) + σ(s, a)·eᵢ

    The loss draws σ² towards the variance of the data, so that σ only says where errors are larger;
    eᵢ says how large, with their tails and what they have in common. It is of the same step for
    all networks: what is judged over them is one event.
    """
    _, rows, n_obs = errors.shape
    row = jax.random.randint(key, prediction.mean.shape[1:-1], 0, rows)
    return (
        prediction.mean[..., :n_obs] + jnp.sqrt(prediction.variance[..., :n_obs]) * errors[:, row]
    )
