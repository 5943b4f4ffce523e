"""Episodes that a policy was evaluated in, as a file: `cmbpo evaluate RUN --out` writes it.

In a run folder, as `evaluation.json`, a report reads it; an export also reads that of the best.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

import cmbpo
from cmbpo.runs.errors import RunError
from cmbpo.runs.files import read_bytes, whole_file
from cmbpo.runs.tail_cost import tail_mean

FILE = "evaluation.json"
"""Its name in a run folder, of the policy at the end."""
BEST_FILE = "evaluation-best.json"
"""Of the best within the limit, which is chosen and so looks better than it is."""
FORMAT = "cmbpo evaluation 1"
KINDS = ("deterministic", "stochastic")
"""Episodes with the mean action, and with drawn ones."""
MOST_EPISODES = 100_000


class Estimate(NamedTuple):
    """A mean, and the half width of its 95 % confidence interval."""

    mean: float
    margin: float

    def __str__(self) -> str:
        """As in 12.3 ± 0.4."""
        digits = 0 if abs(self.mean) >= 1000 else 2
        margin = f"{self.margin:,.{digits}f}" if math.isfinite(self.margin) else "?"
        return f"{self.mean:,.{digits}f} ± {margin}"


def estimate(values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]) -> Estimate:
    """r = Σ vᵢ / Σ wᵢ with Student's interval of the residuals vᵢ − r·wᵢ.

    With weights 1 it is the interval of a mean; with lengths as weights, that of a rate per step.
    """
    n = len(values)
    ratio = values.sum() / weights.sum()
    if n < 2:
        return Estimate(float(ratio), math.inf)
    spread = np.std(values - ratio * weights, ddof=1) / weights.mean()
    return Estimate(float(ratio), float(stdtrit(n - 1, 0.975) * spread / math.sqrt(n)))


class Episodes(NamedTuple):
    """Whole episodes, and what they say of a policy."""

    returns: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, "n cost"]
    lengths: Int[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]

    def mean_return(self) -> Estimate:
        """Return of an episode."""
        return estimate(self.returns, np.ones(len(self.returns)))

    def mean_length(self) -> Estimate:
        """Steps of an episode."""
        return estimate(self.lengths.astype(float), np.ones(len(self.lengths)))

    def mean_cost(self, which: int = 0) -> Estimate:
        """Cost of an episode."""
        return estimate(self.costs[:, which], np.ones(len(self.costs)))

    def cost_rate(self, which: int = 0, horizon: int = 1000) -> Estimate:
        """Cost per `horizon` steps: an episode that ended early is not cheap for being short."""
        return estimate(self.costs[:, which], self.lengths / horizon)

    def cost_rates(self, horizon: int = 1000) -> list[float]:
        """The mean of each `cost_rate`."""
        return [self.cost_rate(i, horizon).mean for i in range(self.costs.shape[1])]

    def tail_cost(self, which: int = 0) -> float:
        """Mean cost of the costliest tenth of the episodes, CVaR₀.₁: what the mean may hide."""
        return tail_mean(self.costs[:, which])

    def within(self, cost_limits: Sequence[float], horizon: int = 1000) -> float:
        """Share of the episodes whose costs per `horizon` steps keep every limit."""
        rates = horizon * self.costs / self.lengths[:, None]
        return float((rates <= np.array(cost_limits)).all(axis=1).mean())


class Evaluated(NamedTuple):
    """What was evaluated, and the episodes of both kinds."""

    run: str
    """The id of the run that its policy is from, as config.json has it."""
    env_steps: int
    """Real steps that the policy had been trained with."""
    best: bool
    """Whether it is the best within the limit, and not the newest."""
    seed: int
    horizon: int
    cost_names: tuple[str, ...]
    cost_limits: tuple[float, ...]
    deterministic: Episodes
    stochastic: Episodes


def file_of(*, best: bool) -> str:
    """The name in a run folder of what its newest, or its best, policy was evaluated in."""
    return BEST_FILE if best else FILE


def cost_label(name: str, names: Sequence[str]) -> str:
    """What a cost is called in a line: its name is told where there are several."""
    return "cost" if len(names) == 1 else f"cost of {name}"


def require_place(path: Path) -> None:
    """Refuse, before anything is run, a file that could not be written or that is another."""
    if path.suffix != ".json":
        raise ValueError(f"--out is {str(path)!r}; allowed: a name that ends in .json")
    if not path.parent.is_dir():
        raise ValueError(f"--out is {str(path)!r}, but there is no folder {path.parent}")
    if path.exists():
        try:
            read(path)
        except RunError:
            raise ValueError(
                f"{path} is there already, and is no evaluation; allowed: a new name, or that of"
                " an evaluation, which is replaced"
            ) from None


def write(path: Path, found: Evaluated) -> None:
    """Write it whole or not at all; returns and costs keep seven digits."""
    notes: dict[str, Any] = {"format": FORMAT, "cmbpo": cmbpo.__version__, **found._asdict()}
    for kind in KINDS:
        episodes: Episodes = notes[kind]
        notes[kind] = {
            "returns": [_seven(x) for x in episodes.returns],
            "costs": [[_seven(x) for x in row] for row in episodes.costs],
            "lengths": episodes.lengths.tolist(),
            "terminated": episodes.terminated.astype(int).tolist(),
        }
    with whole_file(path) as file:
        file.write((json.dumps(notes, ensure_ascii=False) + "\n").encode())


def _seven(number: float) -> float:
    return float(f"{number:.7g}")


def read(path: Path) -> Evaluated:
    """Read what `write` wrote; anything else is refused in one sentence."""
    try:
        notes = json.loads(read_bytes(path).decode())
        if not isinstance(notes, dict) or notes.get("format") != FORMAT:
            raise ValueError("it does not say that it is one")
        names = tuple(str(name) for name in notes["cost_names"])
        limits = tuple(float(limit) for limit in notes["cost_limits"])
        if not names or len(names) != len(limits):
            raise ValueError(f"it has {len(names)} costs and {len(limits)} limits")
        kinds = {kind: _episodes(notes[kind], len(names)) for kind in KINDS}
        run = str(notes["run"])
        steps, seed, horizon = (int(notes[name]) for name in ("env_steps", "seed", "horizon"))
        if min(steps, seed) < 0 or horizon < 1:
            raise ValueError("its steps, seed or horizon cannot be")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{path} is no evaluation: {why}") from error
    return Evaluated(run, steps, bool(notes.get("best")), seed, horizon, names, limits, **kinds)


def _episodes(notes: dict[str, Any], costs: int) -> Episodes:
    returns, lengths = np.array(notes["returns"], float), np.array(notes["lengths"], int)
    spent, terminated = np.array(notes["costs"], float), np.array(notes["terminated"], bool)
    n = len(returns)
    if not 1 <= n <= MOST_EPISODES:
        raise ValueError(f"it has {n} episodes; allowed: 1 to {MOST_EPISODES:,}")
    if (returns.shape, lengths.shape, terminated.shape) != ((n,),) * 3:
        raise ValueError("its columns differ in length")
    if spent.shape != (n, costs) or not np.isfinite(returns).all() or not np.isfinite(spent).all():
        raise ValueError("a return or a cost of it is missing or not finite")
    if lengths.min() < 1:
        raise ValueError("an episode of it has no step")
    return Episodes(returns, spent, lengths, terminated)
