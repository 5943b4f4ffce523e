"""Every column of `progress.csv` and `episodes.csv`: its name, what it means, and its unit.

Their names are written here and nowhere else; `docs/columns.md` is made from this module
(`python -m cmbpo.columns > docs/columns.md`). Where OmniSafe has a key it is used, so that people's
plotting scripts read the files. The limits and J_c are per horizon: per episode of full length.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Column(str):
    """The name of a column, with what stands in it.

    `per_cost` columns of a run with several costs are one for each, as in `Metrics/EpCost/wall`.
    """

    meaning: str
    unit: str
    per_cost: bool

    def __new__(cls, name: str, meaning: str, unit: str = "–", *, per_cost: bool = False):
        """A column of this name."""
        column = super().__new__(cls, name)
        column.meaning, column.unit, column.per_cost = meaning, unit, per_cost
        return column

    def of(self, cost: str) -> str:
        """The name of the column for one of several costs."""
        return f"{self}/{cost}"


ENV_STEPS = Column("TotalEnvSteps", "real environment steps so far, warm-up included", "steps")
UPDATE = Column("Train/Epoch", "policy updates so far")
RETURN = Column(
    "Metrics/EpRet",
    "return, mean of the newest 20 episodes, each as long as Train/EpisodeSteps let it be",
    "reward",
)
COST = Column("Metrics/EpCost", "cost, mean of the same", "cost an episode", per_cost=True)
LENGTH = Column("Metrics/EpLen", "length, mean of the same", "steps")
EPISODE_STEPS = Column(
    "Train/EpisodeSteps",
    "steps of episodes that begin now: the horizon, or fewer with --first-episode",
    "steps",
)

CUMULATIVE_COST = Column(
    "Cost/Cumulative", "cost of all real steps so far, all costs together", "cost"
)
COST_RATE = Column("Cost/Rate", "Cost/Cumulative over the real steps so far", "cost a step")
REGRET = Column(
    "Cost/Regret", "Σ over updates of max(0, Constraint/Real − d) · real steps / horizon", "cost"
)
VIOLATING_EPISODES = Column("Cost/ViolatingEpisodes", "episodes so far in which a cost exceeded d")
NOT_FINITE = Column(
    "Env/NotFinite", "real steps so far with an observation, reward or cost that is not finite"
)
RESTARTS = Column("Env/Restarts", "copies started anew so far, since their process died or hung")

LIMIT = Column("Constraint/Limit", "d, the limit", "cost a horizon", per_cost=True)
COST_ESTIMATE = Column(
    "Constraint/Estimate", "J_c as the step was told it", "cost a horizon", per_cost=True
)
IMAGINED_COST = Column(
    "Constraint/Model", "J_c of the imagined steps", "cost a horizon", per_cost=True
)
PREDICTED_CHANGE = Column(
    "Constraint/PredictedChange",
    "change of J_c that the surrogate predicts of the step",
    "cost a horizon",
    per_cost=True,
)
COST_SHARE = Column(
    "Constraint/Share",
    "φ: share of the step that has to lower the cost, of what the region holds (steered step)",
    per_cost=True,
)
REAL_COST = Column(
    "Constraint/Real", "J_c of this update's real steps", "cost a horizon", per_cost=True
)
STANDARD_ERROR = Column(
    "Constraint/StandardError",
    "standard error of J_c from real steps",
    "cost a horizon",
    per_cost=True,
)

COST_CRITIC_LOSS = Column(
    "Loss/Loss_cost_critic",
    "½ squared error of V_c, last pass (SAC-L: of Q_c, all steps)",
    "standard units",
    per_cost=True,
)
POLICY_LOSS = Column(
    "Loss/Loss_pi",
    "the objective, negated: the clipped one, last pass (PPO-L), or the soft one (SAC-L)",
)
CRITIC_LOSS = Column(
    "Loss/Loss_reward_critic",
    "½ squared error of V, last pass (SAC-L: of Q, all steps)",
    "standard units",
)

MULTIPLIER = Column(
    "Metrics/LagrangeMultiplier",
    "λ of penalised advantages (TRPO-L, PPO-L; `pid`: in standard units) or values (SAC-L)",
    per_cost=True,
)

ACCEPTANCE = Column(
    "Misc/AcceptanceStep", "which candidate of the line search was accepted; 0: none"
)
CG_RESIDUAL = Column("Misc/CgResidual", "largest relative residual of conjugate gradients")
STEP_NORM = Column("Misc/FinalStepNorm", "length of the accepted step in θ")
DUAL_LAMBDA = Column("Misc/Lambda_star", "multiplier of the trust region in the step's dual")
DUAL_NU = Column("Misc/Nu_star", "multipliers of the costs in the step's dual", per_cost=True)
CASE_NUMBER = Column(
    "Misc/OptimCase",
    "how the step was found: 0 recovery; 1 unsafe, but the region holds safe points; 2 safe, and a "
    "limit cuts the region; 3 the region is all safe; 4 no constraint (OmniSafe's numbers)",
)
CASE = Column("Misc/Case", "the same in a word: recovery, constrained or unconstrained")
COST_GRADIENT_NORM = Column("Misc/cost_gradient_norm", "length of b, per cost", per_cost=True)
GRADIENT_NORM = Column("Misc/gradient_norm", "length of g, the gradient of the reward")
Q = Column("Misc/q", "q = gᵀF⁻¹g")
R = Column("Misc/r", "r = gᵀF⁻¹b", per_cost=True)
S = Column("Misc/s", "s = bᵀF⁻¹b", per_cost=True)

ALPHA = Column("Mixing/Alpha", "α: real samples over the batch, after their bounds and rounding")

FIT_EPOCHS = Column("Model/Epochs", "epochs of the last fit of the ensemble")
HOLDOUT_ERROR = Column(
    "Model/HoldoutMSE", "squared error of the elites on held-out rows", "standard units"
)
DISAGREEMENT = Column(
    "Model/KL", "D̄ along probing trajectories, winsorised at its 95 % quantile", "nats a dimension"
)
DISAGREEMENT_SHARE = Column("Model/KLShare", "D̄/D̄₀: the same over that of the first data")
RANK_CORRELATION = Column(
    "Model/RankCorrelation", "Spearman's ρ of disagreement and true error, held-out rows"
)
TRAIN_LOSS = Column("Model/TrainLoss", "loss of the last epoch of the last fit")

EFFECTIVE_POLICIES = Column(
    "Rollout/EffectivePolicies", "past policies that start states come from, 1/Σ Pr²"
)
HORIZON = Column("Rollout/Horizon", "longest trajectory that the cut admits", "steps")
ROLLOUT_LENGTH = Column("Rollout/Length", "mean length of imagined trajectories", "steps")
IMAGINED_REWARD = Column("Rollout/RewardRate", "reward of imagined steps", "reward a step")
IMAGINED_ROWS = Column("Rollout/Rows", "imagined steps of the batch", "steps")
IMAGINED_ENDS = Column("Rollout/Terminated", "share of imagined trajectories that end terminally")

KL = Column("Train/KL", "mean KL(π_new ‖ π_old) of the update")
POLICY_STD = Column(
    "Train/PolicyStd", "mean standard deviation of the policy's actions (SAC-L: before the tanh)"
)
ENTROPY = Column("Train/Entropy", "mean entropy of the policy in remembered states", "nats")
REWARD_CHANGE = Column(
    "Train/RewardChange", "change that the surrogate predicts of the step", "standard units a step"
)
PASSES = Column("Train/StopIter", "passes over the batch (PPO-L)")

ADVANTAGE = Column("Value/Adv", "mean advantage of the batch, before it is standardised", "reward")
COST_VALUE_MAX = Column(
    "Value/CostMax", "largest V_c of this update's real states", "cost", per_cost=True
)
COST_VALUE_MIN = Column("Value/CostMin", "least V_c of the same", "cost", per_cost=True)
COST_TARGET = Column("Value/cost", "mean target of V_c", "cost", per_cost=True)
TEMPERATURE = Column("Value/alpha", "α, what a nat of entropy is worth (SAC-L)", "reward")
TARGET = Column("Value/reward", "mean target of V", "reward")

EPSILON_POLICY = Column("Bound/EpsilonPolicy", "ε_π of the update before, from its KL")
EPSILON_MODEL = Column("Bound/EpsilonModel", "ε_m of the update before, from D̄")
EPSILON = Column("Bound/Epsilon", "ε of Boundary 4.1 from both")
PROMISED_CHANGE = Column(
    "Bound/PromisedChange",
    "change of J_c that the update before predicted",
    "cost a horizon",
    per_cost=True,
)
REAL_CHANGE = Column(
    "Bound/RealChange",
    "Constraint/Real less that of the update before",
    "cost a horizon",
    per_cost=True,
)

FPS = Column("Time/FPS", "real steps a second of this update", "steps/s")
UPDATE_SECONDS = Column("Time/Epoch", "this update", "s")
TOTAL_SECONDS = Column(
    "Time/Total", "all updates so far; the warm-up before them is not counted", "s"
)
COLLECT = Column("Time/Collect", "real steps", "s")
MODEL = Column("Time/Model", "archive and fit of the ensemble", "s")
IMAGINE = Column("Time/Imagine", "imagined steps", "s")
ADVANTAGES = Column("Time/Advantage", "advantages and J_c", "s")
POLICY = Column("Time/Policy", "step of the policy (SAC-L: all gradient steps)", "s")
CRITIC = Column("Time/Critic", "fit of V and V_c", "s")
PHASES = (COLLECT, MODEL, IMAGINE, ADVANTAGES, POLICY, CRITIC)

COST_ERROR = Column(
    "Model/CostError", "root mean squared error of the learned cost, held-out rows", per_cost=True
)
COST_AUC = Column(
    "Model/CostAUC", "chance that a costly row is judged higher than another", per_cost=True
)
COST_JUDGED = Column("Model/CostRate", "mean judgement of held-out rows", per_cost=True)
COST_TRUE = Column("Model/CostTrueRate", "what it should be", per_cost=True)
COST_RECALL = Column(
    "Model/CostRecall", "share of the true cost that costly rows are judged to have", per_cost=True
)
COST_EXAMPLES = Column("Model/CostExamples", "costly rows in the archive", "rows", per_cost=True)
END_ERROR = Column("Model/TerminationError", "as Model/CostError, of learned ends")
END_AUC = Column("Model/TerminationAUC", "as Model/CostAUC, of learned ends")
END_JUDGED = Column("Model/TerminationRate", "as Model/CostRate, of learned ends")
END_TRUE = Column("Model/TerminationTrueRate", "as Model/CostTrueRate, of learned ends")
END_RECALL = Column("Model/TerminationRecall", "as Model/CostRecall, of learned ends")
END_EXAMPLES = Column("Model/TerminationExamples", "terminal rows in the archive", "rows")

PROGRESS = tuple(value for value in globals().values() if isinstance(value, Column))
"""The columns of progress.csv, a row per update. A run has those that its algorithm can fill."""

EPISODE_ENV_STEPS = Column("env_steps", "real steps of all copies when the episode ended", "steps")
EPISODE_RETURN = Column("return", "its return", "reward")
EPISODE_COST = Column("cost", "its cost; the sum where there are several", "cost")
EPISODE_LENGTH = Column("length", "its length", "steps")
TERMINATED = Column("terminated", "1 if it ended in a terminal state, 0 if its time ran out")

EPISODES = (EPISODE_ENV_STEPS, EPISODE_RETURN, EPISODE_COST, EPISODE_LENGTH, TERMINATED)
"""The columns of episodes.csv, a row per real training episode."""


CHECK = Column("check", "a checksum of the row, and one of all rows up to it, to see damage by")
"""The last column of both: what `cmbpo verify` and every reader compares with the row."""


def each(row: Mapping[str, T], column: str) -> dict[str, T]:
    """What a row or a table has under a column, or under one for each of several costs."""
    return {n: x for n, x in row.items() if n == column or n.startswith(f"{column}/")}


def episode_cost(name: str) -> str:
    """The column of episodes.csv for one of several costs."""
    return f"{EPISODE_COST}_{name}"


def is_time(name: str) -> bool:
    """Whether a column holds a duration or a speed, which no two runs share."""
    return name.startswith("Time/")


def document() -> Iterator[str]:
    """The lines of docs/columns.md."""
    yield from ("# The columns of a run's records", "")
    yield "Made from `src/cmbpo/columns.py` by `python -m cmbpo.columns > docs/columns.md`."
    yield "With several costs, those marked ‡ are one for each, as in `Metrics/EpCost/wall`."
    for title, rows in (
        ("`progress.csv`: a row per policy update", PROGRESS),
        ("`episodes.csv`: a row per real training episode", EPISODES),
    ):
        yield from ("", f"## {title}", "", "| column | meaning | unit |", "|---|---|---|")
        for column in rows:
            mark = " ‡" if column.per_cost else ""
            yield f"| `{column}`{mark} | {column.meaning} | {column.unit} |"
    yield from ("", "Several costs: `cost_<name>` each, beside their sum.")
    yield from ("", f"The last column of both is `{CHECK}`: {CHECK.meaning} (`cmbpo verify RUN`).")


if __name__ == "__main__":
    print("\n".join(document()))
