"""Every setting of a run, as frozen dataclasses: what `config.json` holds and the flags offer.

They stand together, apart from the modules they configure, because those import JAX and `--help`
need not.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """The Gaussian policy π_θ(a|s)."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden tanh layers."""
    log_std: float = -0.5
    """Initial logarithm of the standard deviation, the same in every state."""
    min_std: float = 0.0
    """Least standard deviation: an update never explores less."""
    last_layer_scale: float = 1.0
    """Factor on the initial weights of the last layer; small: it starts near zero torque."""
    normalise: bool = False
    """Standardise observations with the statistics of the first real steps."""
    adapt_units: bool = False
    """With `normalise`: with the statistics of all real steps so far, anew after each update."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.min_std >= 0.0, "policy.min_std", self.min_std, "0 or more")
        _require(
            bool(self.hidden) and min(self.hidden) > 0, "policy.hidden", self.hidden, "positive"
        )


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """The value functions V and V_c, each a small ensemble fitted by least squares."""

    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers."""
    members: int = 3
    """Networks per value function; the value is their mean."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    batch_size: int = 2048
    """Rows of one gradient step."""
    epochs: int = 8
    """Passes over the batch of an update."""
    bound_cost: bool = True
    """Keep V_c, as prediction and as target, within [0, 1/(1 − γ_c)]."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.members >= 1, "critic.members", self.members, "at least 1")
        _require(self.epochs >= 1, "critic.epochs", self.epochs, "at least 1")


@dataclass(frozen=True, kw_only=True)
class AdvantageSettings:
    """Generalised advantage estimation, for reward and for cost."""

    discount: float = 0.99
    """γ of the reward."""
    lam: float = 0.95
    """λ of the reward's advantages."""
    cost_discount: float = 0.97
    """γ of the costs."""
    cost_lam: float = 0.5
    """λ of the costs' advantages."""
    terminal_cost_value: float | None = None
    """Cost still to come after a terminal state. None: what V_c says there."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("discount", "lam", "cost_discount", "cost_lam"):
            value = getattr(self, name)
            _require(0.0 <= value <= 1.0, f"advantage.{name}", value, "0 to 1")
        for name in ("discount", "cost_discount"):
            value = getattr(self, name)
            _require(value < 1.0, f"advantage.{name}", value, "below 1")


@dataclass(frozen=True, kw_only=True)
class DynamicsSettings:
    """The ensemble p(s', r | s, a) and its fits."""

    hidden: tuple[int, ...] = (512, 512)
    """Widths of the hidden layers of each network."""
    head_hidden: tuple[int, ...] = (128, 128)
    """The same of those that learn cost and termination where the task does not know them."""
    members: int = 7
    """Networks of the ensemble."""
    elites: int = 5
    """Networks, the best on held-out data, that imagined steps are drawn from."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 2048
    """Rows of one gradient step, per network."""
    weight_decay: float = 1e-6
    """L2 penalty on the last layer's weights; half of it on hidden ones, a quarter on the first."""
    layer_norm: bool = False
    """Normalise each hidden layer."""
    variance_loss: Literal["regularised", "paper"] = "regularised"
    """How σ² is learned: pulled towards the targets' variance (the authors' code), or ‖σ² − SE‖² as
    printed, with a floor."""
    holdout: float = 0.2
    """Share of the data kept for early stopping and the choice of elites."""
    max_holdout: int = 5000
    """Most rows that are held out."""
    subsample: float = 1.0
    """Share of the other rows that each network learns from, its own share for each."""
    first_epochs: int = 200
    """Most epochs of the first fit."""
    epochs: int = 10
    """Most epochs of each later fit."""
    patience: int = 5
    """Epochs without a gain of 1 % after which a network stops."""
    fit_every: int = 1000
    """New real steps after which the ensemble is fitted again."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.members >= 2, "dynamics.members", self.members, "at least 2")
        _require(
            1 <= self.elites <= self.members, "dynamics.elites", self.elites, f"1 to {self.members}"
        )
        _require(0.0 < self.holdout < 1.0, "dynamics.holdout", self.holdout, "between 0 and 1")
        _require(
            0.0 < self.subsample <= 1.0, "dynamics.subsample", self.subsample, "above 0, up to 1"
        )


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """Imagined trajectories: where they start and where they are cut."""

    cut: Literal["batch", "trajectory", "schedule"] = "batch"
    """One horizon for a whole batch, from a quantile of disagreement; each trajectory where
    its disagreement would pass d_H (paper); or a fixed schedule (ablation)."""
    quantile: float = 0.75
    """With `batch`: the quantile of the trajectories' disagreement that is held against d_H."""
    first_horizon: int = 5
    """h₀: the mean horizon that d_H allows on the first data."""
    min_horizon: int = 1
    """With `batch`: the shortest common horizon, however much the networks disagree."""
    max_horizon: int = 40
    """Longest imagined trajectory."""
    schedule: tuple[int, int, int] = (3, 15, 1000)
    """With `schedule`: first horizon, last horizon, and the updates over which it grows."""
    recalibrate: bool = False
    """Set d_m and d_H anew after each fit, not only on the first data."""
    temperature: float = 20.0
    """β: how strongly start states prefer past policies close to the present one."""
    lanes: int = 500
    """Trajectories imagined side by side."""
    probe: int = 250
    """Trajectories imagined only to measure disagreement."""
    cost_over_members: bool = True
    """Cost of an imagined step: the mean over all networks' next states, not the chosen one's."""
    end_over_members: bool = False
    """End an imagined trajectory where any network, with the noise it expects, foresees a terminal
    state, not where the chosen one's mean does: mean predictions calm down and foresee too few."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.temperature >= 0.0, "rollout.temperature", self.temperature, "0 or more")
        _require(
            1 <= self.min_horizon <= self.max_horizon,
            "rollout.min_horizon",
            self.min_horizon,
            f"1 to max_horizon = {self.max_horizon}",
        )
        _require(0.0 < self.quantile <= 1.0, "rollout.quantile", self.quantile, "above 0, up to 1")
        _require(
            1 <= self.first_horizon <= self.max_horizon,
            "rollout.first_horizon",
            self.first_horizon,
            f"1 to max_horizon = {self.max_horizon}",
        )


@dataclass(frozen=True, kw_only=True)
class MixingSettings:
    """α(π): the share of real samples in the batch of an update."""

    rule: Literal["paper", "proportional", "constant"] = "paper"
    """α = 1 − (1−α₀)·D̄₀/D̄ (paper), α = α₀·D̄/D̄₀ (the authors' code), or α = α₀ always (ablation)."""
    first_alpha: float = 0.3
    """α₀, the share at the first update."""
    min_real: int = 1000
    """Fewest real samples of an update."""
    max_real: int = 5000
    """Most real samples of an update."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(
            0.0 < self.first_alpha <= 1.0,
            "mixing.first_alpha",
            self.first_alpha,
            "above 0, up to 1",
        )
        _require(
            0 < self.min_real <= self.max_real,
            "mixing.min_real",
            self.min_real,
            f"1 to max_real = {self.max_real}",
        )


@dataclass(frozen=True, kw_only=True)
class ConstraintSettings:
    """J_c(π): what the policy costs now, and what the step aims at."""

    source: Literal["real", "larger", "batch"] = "real"
    """Cost rate of recent real steps; the larger of that and the imagined one, which rises earlier;
    or mean cost of the mixed batch (the authors' code)."""
    time_constant: float = 4.0
    """Updates over which older real steps fade from the estimate; 0 keeps only the newest."""
    target: float = 0.7
    """Share of the cost limit that the step aims at: the margin for noise and lag."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(
            self.time_constant >= 0.0, "constraint.time_constant", self.time_constant, "0 or more"
        )
        _require(0.0 < self.target <= 1.0, "constraint.target", self.target, "above 0, up to 1")


@dataclass(frozen=True, kw_only=True)
class TrustRegionSettings:
    """The (constrained) trust-region step."""

    step: Literal["cpo", "barrier"] = "cpo"
    """CPO's step with its dual, or the barrier step with hysteresis (C-TRPO)."""
    max_kl: float = 0.01
    """δ, the largest mean KL(π_new ‖ π_old) of one update."""
    cg_iterations: int = 10
    """Conjugate-gradient steps per solve with the Fisher matrix."""
    cg_damping: float = 0.1
    """Multiple of the identity added to the Fisher matrix."""
    fisher_share: float = 1.0
    """Share of the batch's states that the Fisher matrix is averaged over; conjugate gradients take
    that share of their time."""
    backtrack: float = 0.8
    """Factor by which the line search shortens the step."""
    backtracks: int = 10
    """Most candidates of the line search."""
    barrier_weight: float = 0.1
    """Weight of the logarithmic barrier in the divergence of the barrier step."""
    cost_gain: float = 1.0
    """Factor on the costs' surrogate in the barrier step, where it underrates a step's effect."""
    hysteresis: float = 0.8
    """Share of the target below which the barrier step ends a recovery."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.max_kl > 0.0, "trust_region.max_kl", self.max_kl, "above 0")
        _require(
            0.0 < self.fisher_share <= 1.0,
            "trust_region.fisher_share",
            self.fisher_share,
            "above 0, up to 1",
        )
        _require(
            0.0 < self.backtrack < 1.0, "trust_region.backtrack", self.backtrack, "between 0 and 1"
        )
        _require(
            0.0 < self.hysteresis <= 1.0,
            "trust_region.hysteresis",
            self.hysteresis,
            "above 0, up to 1",
        )


@dataclass(frozen=True, kw_only=True)
class ClippedSettings:
    """PPO's clipped objective."""

    clip: float = 0.2
    """Largest change of the likelihood ratio that still pays."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    iterations: int = 80
    """Most passes over the batch."""
    minibatches: int = 1
    """Gradient steps of one pass."""
    stop_kl: float = 0.012
    """Mean KL at which the passes end."""


@dataclass(frozen=True, kw_only=True)
class LagrangianSettings:
    """The multipliers of TRPO-L and PPO-L."""

    rule: Literal["adam", "pid"] = "adam"
    """Softplus with Adam, or a PID controller on the constraint."""
    first: float = 1.0
    """Multiplier at the first update."""
    learning_rate: float = 0.05
    """Adam's step size."""
    gains: tuple[float, float, float] = (0.1, 0.01, 0.01)
    """Proportional, integral and derivative gain of the PID rule."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.first > 0.0, "lagrangian.first", self.first, "above 0")


@dataclass(frozen=True, kw_only=True)
class EnvSettings:
    """An environment of your own: any that Gymnasium makes and that reports a cost."""

    cost_key: tuple[str, ...] = ("cost",)
    """Names in `info` of the costs of a step; several names are several constraints."""
    horizon: int | None = None
    """Steps after which an episode is truncated. None: the environment's own time limit."""
    copies: Literal["inline", "processes"] = "inline"
    """Step the copies one after the other, or each in a process of its own: for slow ones."""

    def __post_init__(self) -> None:
        """Check the values."""
        _require(
            bool(self.cost_key) and len(set(self.cost_key)) == len(self.cost_key),
            "env.cost_key",
            self.cost_key,
            "one or more names, each once",
        )
        _require(
            self.horizon is None or self.horizon >= 1, "env.horizon", self.horizon, "at least 1"
        )


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """One training run."""

    algo: str = "cmbpo"
    """Algorithm: cmbpo, cpo, trpo-lag, ppo-lag, trpo."""
    env_id: str = "PointCircle-v0"
    """Task: AntSafe-v0, HalfCheetahSafe-v0, AntCircle-v0, PointCircle-v0; or an environment of your
    own, as in my_package:MyRobot-v0."""
    preset: str = "default"
    """Where the settings start from: default, or paper (the printed algorithm)."""
    seed: int = 0
    """Seed of everything random in the run."""
    total_steps: int = 1_000_000
    """Real environment steps after which training ends."""
    num_envs: int = 20
    """Copies of the task that are stepped at once."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the networks run."""
    log_dir: str = "runs"
    """Folder that run folders are written to."""
    cost_limit: tuple[float, ...] | None = None
    """d, the largest cost per episode, one number for each constraint. None: the task's own."""
    batch_size: int = 50_000
    """Samples, real and imagined, of one policy update."""
    initial_steps: int = 20_000
    """Real steps of the untrained policy before the first update: for CMBPO's first model, and for
    the units of a policy that normalises."""
    first_episode: int | None = None
    """Steps after which a copy is reset at first; they grow to the whole episode, while the cost is
    within its target. None: whole episodes from the start."""
    archive_size: int = 200_000
    """Real transitions kept for the ensemble and for start states (CMBPO)."""
    checkpoint_every: int = 20
    """Updates between checkpoints."""
    init_from: str | None = None
    """Run folder whose policy, critics and model this run starts with."""
    wandb: bool = False
    """Also report to Weights & Biases (extra `wandb`)."""
    env: EnvSettings = EnvSettings()
    policy: PolicySettings = PolicySettings()
    critic: CriticSettings = CriticSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    dynamics: DynamicsSettings = DynamicsSettings()
    rollout: RolloutSettings = RolloutSettings()
    mixing: MixingSettings = MixingSettings()
    constraint: ConstraintSettings = ConstraintSettings()
    trust_region: TrustRegionSettings = TrustRegionSettings()
    clipped: ClippedSettings = ClippedSettings()
    lagrangian: LagrangianSettings = LagrangianSettings()

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("total_steps", "num_envs", "batch_size", "archive_size", "checkpoint_every"):
            value = getattr(self, name)
            _require(value >= 1, name, value, "at least 1")
        _require(self.seed >= 0, "seed", self.seed, "0 or more")
        _require(
            self.first_episode is None or self.first_episode >= 1,
            "first_episode",
            self.first_episode,
            "at least 1",
        )
        if self.cost_limit is not None:
            _require(
                all(math.isfinite(x) and x >= 0.0 for x in self.cost_limit)
                and bool(self.cost_limit),
                "cost_limit",
                self.cost_limit,
                "finite numbers, 0 or more",
            )

    def for_programs(self) -> "TrainSettings":
        """These settings without those that no compiled program depends on.

        Programs are compiled once for equal settings: other seeds and folders share them.
        """
        return replace(
            self,
            seed=0,
            total_steps=1,
            first_episode=None,
            log_dir="",
            device="auto",
            checkpoint_every=1,
            init_from=None,
            wandb=False,
            preset="",
        )
