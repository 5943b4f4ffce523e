"""What an exported policy is worth: found without noise, which is how it acts on a robot.

Training holds the limit with the noise it explores with. Without, the same policy may cost more,
and far more where noise does not fade at the end of a run. So an export says what an evaluation
found, or that nobody has looked.
"""

import json
import shlex

from cmbpo.evaluation import evaluated
from cmbpo.evaluation.evaluated import Evaluated, cost_label
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.trust import flag_for_acting


def found(run: Run, *, best: bool, env_steps: int | None) -> Evaluated | None:
    """The evaluation in the run folder, if it is of this policy: after so many real steps."""
    path = run.folder / evaluated.file_of(best=best)
    if env_steps is None or not path.is_file():
        return None
    kept = evaluated.read(path)
    ours = (kept.run, kept.best, kept.env_steps) == (run.id, best, env_steps)
    return kept if ours else None


def facts(kept: Evaluated) -> dict[str, str]:
    """Means without noise, as they go with the policy; costs as JSON has lists."""
    episodes = kept.deterministic
    return {
        "episodes": str(len(episodes.returns)),
        "mean_return": f"{episodes.mean_return().mean:.7g}",
        "cost": json.dumps([float(f"{rate:.7g}") for rate in episodes.cost_rates(kept.horizon)]),
    }


def sentence(run: Run, *, best: bool, env_steps: int | None) -> str:
    """What is known of it, or how to know."""
    try:
        kept = found(run, best=best, env_steps=env_steps)
    except RunError as error:
        # a policy goes to its robot without its records, too
        return f"what it costs is not known: {error}"
    if kept is None:
        words = ["cmbpo", "evaluate", str(run.folder), *["--best"] * best, "--episodes", "100"]
        command = shlex.join([*words, "--out", str(run.folder / evaluated.file_of(best=best))])
        return (
            "what it costs is not known: training held the limit with noise, this acts without."
            f" To know it: {command}{flag_for_acting(run.settings)}"
        )
    episodes = kept.deterministic
    costs, above = [], False
    for i, (name, limit) in enumerate(zip(kept.cost_names, kept.cost_limits, strict=True)):
        rate = episodes.cost_rate(i, kept.horizon)
        label = cost_label(name, kept.cost_names)
        costs.append(f"{label} {rate} per {kept.horizon} steps, limit {limit:g}")
        above |= rate.mean > limit
    return (
        f"{'ABOVE ITS LIMIT: ' * above}{len(episodes.returns)} episodes without noise:"
        f" return {episodes.mean_return()}, {'; '.join(costs)}"
    )
