"""Episodes that a policy was evaluated in, as a file: `cmbpo evaluate RUN --out` writes it.

In a run folder, as `evaluation.json`, a report reads it.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

import cmbpo
from cmbpo.runs.errors import RunError
from cmbpo.runs.files import read_bytes, whole_file

FILE = "evaluation.json"
"""Its name in a run folder."""
FORMAT = "cmbpo evaluation 1"
KINDS = ("deterministic", "stochastic")
"""Episodes with the mean action, and with drawn ones."""
MOST_EPISODES = 100_000


class Episodes(NamedTuple):
    """Whole episodes."""

    returns: Float[np.ndarray, " n"]
    costs: Float[np.ndarray, "n cost"]
    lengths: Int[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]


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
