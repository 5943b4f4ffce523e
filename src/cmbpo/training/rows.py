"""What an update did, from typed records to the columns of progress.csv and episodes.csv."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from cmbpo import columns
from cmbpo.algorithms.update import PolicyStep
from cmbpo.columns import Column
from cmbpo.data.ledger import Episode
from cmbpo.model import learned_cost_quality
from cmbpo.model.learned_cost_quality import Quality
from cmbpo.model.state import Imagined, Model
from cmbpo.policy.directions import CASES
from cmbpo.theory.bound import Practical
from cmbpo.training.learner import BatchValues, CostMeasure, CriticFit
from cmbpo.training.replay_learner import ReplayUpdate

Row = dict[str, float | int | str]
Values = Mapping[Column, Any]

_COST_QUALITY = {
    "error": (columns.COST_ERROR, columns.END_ERROR),
    "auc": (columns.COST_AUC, columns.END_AUC),
    "rate": (columns.COST_JUDGED, columns.END_JUDGED),
    "true_rate": (columns.COST_TRUE, columns.END_TRUE),
    "recall": (columns.COST_RECALL, columns.END_RECALL),
    "examples": (columns.COST_EXAMPLES, columns.END_EXAMPLES),
}


@dataclass(frozen=True)
class Update:
    """What the phases of one update did; the model's part is None without one."""

    alpha: float
    imagined: Imagined | None
    values: BatchValues
    cost: CostMeasure
    step: PolicyStep
    policy_std: Float[Array, ""]
    critics: CriticFit


def of_update(update: Update, model: Model | None, *, horizon: int) -> dict[Column, Any]:
    """The columns that every phase fills."""
    step, values, cost = update.step, update.values, update.cost
    filled: dict[Column, Any] = {
        columns.COST_ESTIMATE: cost.used,
        columns.REAL_COST: cost.real,
        columns.STANDARD_ERROR: cost.standard_error,
        columns.PREDICTED_CHANGE: step.cost_change,
        columns.KL: step.kl,
        columns.REWARD_CHANGE: step.reward_change,
        columns.POLICY_STD: update.policy_std,
        columns.ADVANTAGE: values.advantage,
        columns.TARGET: values.target,
        columns.COST_TARGET: values.cost_target,
        columns.COST_VALUE_MIN: values.cost_min,
        columns.COST_VALUE_MAX: values.cost_max,
        columns.CRITIC_LOSS: update.critics.loss,
        columns.COST_CRITIC_LOSS: update.critics.cost_loss,
        **_of_step(step),
    }
    if model is not None and update.imagined is not None:
        filled |= {columns.ALPHA: update.alpha, **_of_model(model, update.imagined, horizon)}
    return jax.device_get(filled)


def _of_step(step: PolicyStep) -> Values:
    """What only some algorithms can say of their step."""
    filled: dict[Column, Any] = {}
    if (report := step.trust_region) is not None:
        filled |= {
            columns.CASE: CASES[int(report.case)],
            columns.CASE_NUMBER: report.case,
            columns.ACCEPTANCE: np.where(report.accepted, report.backtracks + 1, 0),
            columns.STEP_NORM: report.step_norm,
            columns.GRADIENT_NORM: report.gradient_norm,
            columns.COST_GRADIENT_NORM: report.cost_gradient_norm,
            columns.Q: report.q,
            columns.R: report.r,
            columns.S: report.s,
            columns.DUAL_LAMBDA: report.lam,
            columns.DUAL_NU: report.nu,
            columns.CG_RESIDUAL: report.cg_residual,
        }
    others = {
        columns.PASSES: step.passes,
        columns.POLICY_LOSS: step.loss,
        columns.MULTIPLIER: step.multiplier,
        columns.COST_SHARE: step.share,
    }
    return filled | {column: value for column, value in others.items() if value is not None}


def _of_model(model: Model, imagined: Imagined, horizon: int) -> Values:
    fit, batch = model.quality, imagined.batch
    filled: dict[Column, Any] = {
        columns.DISAGREEMENT: imagined.disagreement,
        columns.DISAGREEMENT_SHARE: imagined.disagreement_share,
        columns.ROLLOUT_LENGTH: batch.length,
        columns.HORIZON: imagined.horizon,
        columns.IMAGINED_ROWS: batch.rows,
        columns.IMAGINED_REWARD: batch.reward_rate,
        columns.IMAGINED_ENDS: batch.terminated,
        columns.EFFECTIVE_POLICIES: imagined.effective_policies,
        columns.IMAGINED_COST: horizon * batch.cost_rate,
        columns.HOLDOUT_ERROR: fit.holdout_error,
        columns.TRAIN_LOSS: fit.train_loss,
        columns.FIT_EPOCHS: fit.epochs,
        columns.RANK_CORRELATION: fit.rank_correlation,
    }
    if model.cost_model is not None and fit.cost is not None:
        costs, end = learned_cost_quality.parts(model.cost_model, fit.cost)
        filled |= dict(_of_quality(costs, 0)) | dict(_of_quality(end, 1))
    return filled


def _of_quality(quality: Quality | None, which: int) -> Iterable[tuple[Column, Any]]:
    if quality is not None:
        for field, pair in _COST_QUALITY.items():
            yield pair[which], getattr(quality, field)


def of_replay(update: ReplayUpdate, cost: CostMeasure) -> dict[Column, Any]:
    """The columns of an update from the replay buffer, in the units of rewards and costs."""
    step, units = update.step, update.units
    return jax.device_get(
        {
            columns.COST_ESTIMATE: cost.used,
            columns.REAL_COST: cost.real,
            columns.STANDARD_ERROR: cost.standard_error,
            columns.POLICY_STD: update.policy_std,
            columns.ENTROPY: step.entropy,
            columns.TEMPERATURE: update.temperature * units.reward,
            columns.TARGET: step.target[0] * units.reward,
            columns.COST_TARGET: -step.target[1:] * units.cost,
            columns.CRITIC_LOSS: step.critic_loss[0],
            columns.COST_CRITIC_LOSS: step.critic_loss[1:],
            columns.POLICY_LOSS: step.policy_loss,
            columns.MULTIPLIER: update.multiplier,
        }
    )


def of_bound(kept: Practical) -> Values:
    """What became of the prediction of the update before."""
    return {
        columns.EPSILON_POLICY: kept.eps_pi,
        columns.EPSILON_MODEL: kept.eps_m,
        columns.EPSILON: kept.epsilon,
        columns.PROMISED_CHANGE: kept.predicted_cost_change,
        columns.REAL_CHANGE: kept.real_cost_change,
    }


def flat(values: Values, cost_names: tuple[str, ...]) -> Row:
    """The row in plain numbers and words; with several costs, a column for each of its own."""
    row: Row = {}
    for column, value in values.items():
        if isinstance(value, str):
            row[str(column)] = value
        elif np.ndim(value) == 0 or len(cost_names) == 1:
            row[str(column)] = np.asarray(value).item()
        else:
            row |= {column.of(n): float(v) for n, v in zip(cost_names, value, strict=True)}
    return row


def of_episode(episode: Episode, cost_names: tuple[str, ...]) -> Row:
    """A real episode as a row of episodes.csv."""
    row: Row = {
        columns.EPISODE_ENV_STEPS: episode.env_steps,
        columns.EPISODE_RETURN: episode.ret,
        columns.EPISODE_COST: sum(episode.cost),
        columns.EPISODE_LENGTH: episode.length,
        columns.TERMINATED: int(episode.terminated),
    }
    if len(cost_names) > 1:
        several = zip(cost_names, episode.cost, strict=True)
        row |= {columns.episode_cost(name): cost for name, cost in several}
    return row
