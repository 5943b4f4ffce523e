"""Every setting of a run, as frozen dataclasses: what `config.json` holds and the flags offer.

They stand together, apart from the modules they configure, because those import JAX and `--help`
need not. A setting is here because a preset, an arm or a committed run varies it, or because users
have to say it; what nothing varies is a constant beside the code that reads it.
"""

import os
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from cmbpo.settings.ranges import (
    Count,
    Discount,
    Fraction,
    Group,
    NotNegative,
    Number,
    Positive,
    Range,
    Share,
    Widths,
)
from cmbpo.settings.registry import algorithm_name, preset_names

BOOKKEEPING = ("total_steps", "log_dir", "device", "checkpoint_every", "wandb")
"""Settings that change nothing of what is learned up to a step: how long, where, and how noted. Of
how long depends where `policy.quiet_end` begins."""


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{name} is {value!r}; allowed: {allowed}")


@dataclass(frozen=True, kw_only=True)
class PolicySettings(Group):
    """The policy π_θ(a|s)."""

    PREFIX = "policy."

    hidden: Widths = (256, 256)
    """Widths of the hidden layers."""
    log_std: Number = -0.5
    """Initial logarithm of the standard deviation (SAC-L: before the tanh)."""
    min_std: NotNegative = 0.0
    """Least standard deviation: an update never explores less, but for `quiet_end`."""
    quiet_end: Fraction = 0.0
    """Share of total_steps, at the end, in which the noise fades while the cost is within its
    target: the last policy then costs far less without noise, and training more meanwhile."""
    last_layer_scale: NotNegative = 1.0
    """Factor on the initial weights of the last layer; small: it starts near zero torque."""
    normalise: bool = False
    """Standardise observations with the statistics of the first real steps."""
    adapt_units: bool = False
    """With `normalise`: with the statistics of all real steps so far, anew after each update."""
    compress: bool = False
    """See sign(z)·log(1 + |z|) of an observation z: far ones stay where the network still differs
    between them, so that `normalise` need not follow the data."""


@dataclass(frozen=True, kw_only=True)
class CriticSettings(Group):
    """The value functions V and V_c, each a small ensemble fitted by least squares."""

    PREFIX = "critic."

    hidden: Widths = (128, 128)
    """Widths of the hidden layers."""
    members: Count = 3
    """Networks per value function; the value is their mean."""
    learning_rate: Positive = 3e-4
    """Adam's step size."""
    batch_size: Count = 2048
    """Rows of one gradient step."""
    epochs: Count = 8
    """Passes over the batch of an update."""
    bound_cost: bool = True
    """Keep V_c, as prediction and as target, within [0, 1/(1 − γ_c)]."""


@dataclass(frozen=True, kw_only=True)
class AdvantageSettings(Group):
    """Generalised advantage estimation, for reward and for cost."""

    PREFIX = "advantage."

    discount: Discount = 0.99
    """γ of the reward."""
    lam: Fraction = 0.95
    """λ of the reward's advantages."""
    cost_discount: Discount = 0.97
    """γ of the costs."""
    cost_lam: Fraction = 0.5
    """λ of the costs' advantages."""
    terminal_cost_steps: NotNegative | None = None
    """Steps for which a terminal step is taken to go on costing what it cost. None: what V_c says
    of the terminal state."""
    apart: bool = False
    """Centre and standardise the advantages of real and of imagined steps each by themselves (the
    authors' code), not as one batch."""


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings(Group):
    """The ensemble p(s', r | s, a) and its fits."""

    PREFIX = "ensemble."

    hidden: Widths = (512, 512)
    """Widths of the hidden layers of each network."""
    members: Annotated[int, Range(2, 1000)] = 7
    """Networks of the ensemble."""
    elites: Count = 5
    """Networks, the best on held-out data, that imagined steps are drawn from."""
    batch_size: Count = 2048
    """Rows of one gradient step, per network."""
    epochs: Count = 10
    """Most epochs of each fit after the first; more where `fit_rows` says so."""
    fit_rows: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Rows that a fit passes in all its epochs, at most, where these are more than `epochs`: a
    small archive is passed more often."""
    fit_every: Count = 1000
    """New real steps after which the ensemble is fitted again, at the latest."""
    fit_growth: Fraction = 0.0
    """Share by which the archive has to grow until then, where that is sooner; 0: it never is."""

    def __post_init__(self) -> None:
        """Check the values, also against each other."""
        super().__post_init__()
        few = self.elites <= self.members
        _require(few, "ensemble.elites", self.elites, f"1 to members = {self.members}")

    def until_due(self, rows: int, *, least: int) -> int:
        """New steps until the next fit, after one to so many rows; at least those of an update."""
        sooner = int(self.fit_growth * rows) if self.fit_growth > 0.0 else self.fit_every
        return min(self.fit_every, max(sooner, least))

    def most_epochs(self, rows: int) -> int:
        """Most epochs of a fit, after the first, to so many rows: max(epochs, ⌊fit_rows/rows⌋)."""
        return max(self.epochs, self.fit_rows // max(rows, 1))


@dataclass(frozen=True, kw_only=True)
class RolloutSettings(Group):
    """Imagined trajectories: where they start and where they are cut."""

    PREFIX = "rollout."

    cut: Literal["batch", "trajectory", "schedule"] = "batch"
    """One horizon for a whole batch, from a quantile of disagreement; each trajectory where
    its disagreement would pass d_H (paper); or a fixed schedule (ablation)."""
    first_horizon: Count = 5
    """h₀: the mean horizon that d_H allows on the first data."""
    min_horizon: Count = 1
    """With `batch`: the shortest common horizon, however much the networks disagree."""
    max_horizon: Count = 40
    """Longest imagined trajectory."""
    schedule: Annotated[tuple[int, int, int], Range(1, 2**31 - 1)] = (3, 15, 1000)
    """With `schedule`: first horizon, last horizon, and the updates over which it grows."""
    temperature: NotNegative = 20.0
    """β: how strongly start states prefer past policies close to the present one."""
    lanes: Annotated[int, Range(2, 10**6)] = 500
    """Trajectories imagined side by side; half as many only measure disagreement before."""
    cost_over_members: bool = True
    """Cost of an imagined step: the mean over all networks' next states, not the chosen one's."""
    model_errors: bool = False
    """Add to each imagined step what the networks missed of a real step that they were not fitted
    to: mean predictions never stumble."""

    def __post_init__(self) -> None:
        """Check the values, also against each other."""
        super().__post_init__()
        for name in ("min_horizon", "first_horizon"):
            value = getattr(self, name)
            within = value <= self.max_horizon
            _require(within, f"rollout.{name}", value, f"1 to max_horizon = {self.max_horizon}")


@dataclass(frozen=True, kw_only=True)
class RealShareSettings(Group):
    """α(π): the share of real samples in the batch of an update."""

    PREFIX = "real_share."

    rule: Literal["paper", "proportional", "constant"] = "paper"
    """α = 1 − (1−α₀)·D̄₀/D̄ (paper), α = α₀·D̄/D̄₀ (the authors' code), or α = α₀ always (ablation)."""
    first_alpha: Share = 0.3
    """α₀, the share at the first update."""
    min_real: Count = 1000
    """Fewest real samples of an update."""
    max_real: Count = 5000
    """Most real samples of an update."""

    def __post_init__(self) -> None:
        """Check the values, also against each other."""
        super().__post_init__()
        within = self.min_real <= self.max_real
        _require(within, "real_share.min_real", self.min_real, f"1 to max_real = {self.max_real}")


@dataclass(frozen=True, kw_only=True)
class CostEstimateSettings(Group):
    """J_c(π): what the policy costs now, and what the step aims at."""

    PREFIX = "cost_estimate."

    source: Literal["real", "larger", "batch"] = "real"
    """Cost rate of recent real steps; the larger of that and the imagined one, which rises earlier;
    or mean cost of the mixed batch (the authors' code)."""
    time_constant: NotNegative = 4.0
    """Updates over which older real steps fade from the estimate, or thousands of real steps where
    an update takes fewer; 0 keeps only the newest."""
    target: Share = 0.7
    """Share of the cost limit that the step aims at: the margin for noise and lag."""


@dataclass(frozen=True, kw_only=True)
class TrustRegionSettings(Group):
    """The (constrained) trust-region step."""

    PREFIX = "trust_region."

    step: Literal["cpo", "barrier", "steered"] = "cpo"
    """CPO's step with its dual, the barrier step with hysteresis (C-TRPO), or the steered step, of
    which a controlled share lowers the cost: it holds the mean."""
    max_kl: Positive = 0.01
    """δ, the largest mean KL(π_new ‖ π_old) of one update."""
    fisher_share: Share = 1.0
    """Share of the batch's states that the Fisher matrix is averaged over; conjugate gradients take
    that share of their time."""
    cost_gain: Positive = 1.0
    """Factor on the costs' surrogate in the barrier step, where it underrates a step's effect."""
    hysteresis: Share = 0.8
    """Share of the target below which the barrier step ends a recovery."""


@dataclass(frozen=True, kw_only=True)
class ClippedSettings(Group):
    """PPO's clipped objective."""

    PREFIX = "clipped."

    learning_rate: Positive = 3e-4
    """Adam's step size."""
    iterations: Count = 80
    """Most passes over the batch."""
    minibatches: Count = 1
    """Gradient steps of one pass."""
    stop_kl: Positive = 0.012
    """Mean KL at which the passes end."""


@dataclass(frozen=True, kw_only=True)
class LagrangianSettings(Group):
    """The multipliers of TRPO-L, PPO-L and SAC-L."""

    PREFIX = "lagrangian."

    rule: Literal["adam", "pid"] = "adam"
    """Softplus with Adam, or a PID controller on the constraint."""
    gains: Annotated[tuple[float, float, float], Range(0.0)] = (1.0, 0.05, 0.0)
    """Proportional, integral and derivative gain of the PID rule, on (J_c − d)/d."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(Group):
    """The replay buffer, and how much is learned from it."""

    PREFIX = "replay."

    ratio: Annotated[int, Range(1, 100)] = 1
    """Gradient steps of the critics for each real step; the policy makes one."""
    size: Annotated[int, Range(1, 10**8)] = 1_000_000
    """Real transitions kept; the newest replace the oldest."""
    batch_size: Count = 256
    """Transitions of one gradient step."""


@dataclass(frozen=True, kw_only=True)
class EnvSettings(Group):
    """An environment of your own: any that Gymnasium makes and that reports a cost."""

    PREFIX = "env."

    cost_key: tuple[str, ...] = ("cost",)
    """Names in `info` of the costs of a step; several names are several constraints."""
    horizon: Count | None = None
    """Steps after which an episode is truncated. None: the environment's own time limit."""
    copies: Literal["inline", "processes"] = "inline"
    """Step the copies one after the other, or each in a process of its own: for slow ones."""
    timeout: Annotated[float, Range(0.01, 10**7)] | None = 600.0
    """Seconds that making, reset and step may each take before it counts as hanging. None: any."""

    def __post_init__(self) -> None:
        """Check the values; costs are told apart by their names."""
        super().__post_init__()
        once = len(set(self.cost_key)) == len(self.cost_key)
        _require(once, "env.cost_key", self.cost_key, "one or more names, each once")


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Group):
    """One training run."""

    algo: str = "cmbpo"
    """Algorithm: {algorithms}."""
    env_id: str = "PointCircle-v0"
    """Task: {tasks}; or an environment of your own, as in my_package:MyRobot-v0."""
    preset: str = "default"
    """Where the settings start from: default, paper (the printed algorithm), or released (the
    authors' code; CMBPO only)."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of everything random in the run."""
    total_steps: Annotated[int, Range(1, 10**12)] = 1_000_000
    """Real environment steps after which training ends."""
    num_envs: Annotated[int, Range(1, 10**5)] = 20
    """Copies of the task that are stepped at once."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the networks run."""
    log_dir: str = "runs"
    """Folder that run folders are written to."""
    cost_limit: Annotated[tuple[float, ...], Range(0.0)] | None = None
    """d, the largest cost per episode, one number for each constraint. None: the task's own."""
    batch_size: Annotated[int, Range(1, 10**8)] = 50_000
    """Samples, real and imagined, of one policy update (SAC-L: real steps between two)."""
    initial_steps: Annotated[int, Range(1, 10**8)] = 20_000
    """Real steps of the untrained policy before the first update: for CMBPO's first model, and for
    the units of a policy that normalises."""
    first_episode: Count | None = None
    """Steps after which a copy is reset at first; they grow to the whole episode, while the cost is
    within its target. None: whole episodes from the start."""
    episode_growth: Annotated[float, Range(1.0, 10.0)] = 1.02
    """With `first_episode`: factor on the length of episodes for each update within the target, or
    for each 1000 real steps where an update takes fewer."""
    archive_size: Annotated[int, Range(1, 2 * 10**6)] = 200_000
    """Real transitions kept for the ensemble and for start states (CMBPO)."""
    checkpoint_every: Count = 20
    """Updates between checkpoints."""
    init_from: str | None = None
    """Run folder whose policy, critics and model this run starts with."""
    wandb: bool = False
    """Also report to Weights & Biases (extra `wandb`)."""
    env: EnvSettings = EnvSettings()
    policy: PolicySettings = PolicySettings()
    critic: CriticSettings = CriticSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    ensemble: EnsembleSettings = EnsembleSettings()
    rollout: RolloutSettings = RolloutSettings()
    real_share: RealShareSettings = RealShareSettings()
    cost_estimate: CostEstimateSettings = CostEstimateSettings()
    trust_region: TrustRegionSettings = TrustRegionSettings()
    clipped: ClippedSettings = ClippedSettings()
    lagrangian: LagrangianSettings = LagrangianSettings()
    replay: ReplaySettings = ReplaySettings()

    def __post_init__(self) -> None:
        """Check the values; the algorithm and the preset must be such that there are."""
        super().__post_init__()
        # A shell leaves ~ as it is behind `=`.
        object.__setattr__(self, "log_dir", os.path.expanduser(self.log_dir))
        name = algorithm_name(self.algo)
        _require(self.algo == name, "algo", self.algo, name)
        presets = preset_names(name)
        _require(self.preset in presets, "preset", self.preset, ", ".join(presets))

    def for_programs(self) -> "TrainSettings":
        """These settings without those that no compiled program depends on.

        Programs are compiled once for equal settings: other seeds, folders and environments with as
        many observations and actions share them.
        """
        plain = TrainSettings()
        apart = (*BOOKKEEPING, "seed", "env_id", "env")
        apart += ("first_episode", "episode_growth", "init_from", "preset", "cost_limit")
        return replace(self, **{name: getattr(plain, name) for name in apart})
