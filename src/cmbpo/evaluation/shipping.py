"""Put the policy of a run, with its card, among those that come with this package.

python -m cmbpo.evaluation.shipping RUN --best
"""

import argparse
import json
from pathlib import Path

from cmbpo.envs.find import find_task
from cmbpo.evaluation import export, shipped
from cmbpo.evaluation.evaluate import load_policy, run_episodes, steps_of
from cmbpo.evaluation.shipped import Card
from cmbpo.runs.array_file import write_whole
from cmbpo.runs.run_folder import Run
from cmbpo.settings.registry import task_name

EPISODES = 100
SEED = 1_000_000


def ship(folder: Path, *, best: bool = False, episodes: int = EPISODES) -> Card:
    """Evaluate the policy of a run on a task of this package; write it and its card."""
    run = Run.open(folder)
    name = task_name(run.settings.env_id)
    task = find_task(run.settings)
    policy = load_policy(run, task, best=best)
    found = run_episodes(policy, task, episodes=episodes, deterministic=True, seed=SEED)
    words = " --best" * best
    card = Card(
        task=task.name,
        algorithm=run.settings.algo,
        env_steps=steps_of(run, best=best) or 0,
        command=_command(run.config["command"]),
        cmbpo=f"{run.config['versions']['cmbpo']}, {run.config.get('commit')}",
        episodes=episodes,
        mean_return=round(found.mean_return().mean, 2),
        cost=tuple(round(rate, 3) for rate in found.cost_rates(task.horizon)),
        cost_cvar=tuple(round(found.tail_cost(i), 3) for i in range(len(task.cost_names))),
        cost_limits=run.settings.cost_limit or task.cost_limits,
        horizon=task.horizon,
        evaluate_command=f"cmbpo evaluate RUN --episodes {episodes} --seed {SEED}{words}",
    )
    write_whole(shipped.POLICIES / f"{name}.npz", export.arrays(policy, task.bounds))
    text = json.dumps(card._asdict(), indent=2, ensure_ascii=False) + "\n"
    (shipped.POLICIES / f"{name}.json").write_text(text, encoding="utf-8")
    return card


def _command(words: list[str]) -> str:
    """The command that trained it, without the place it wrote to."""
    if "--log-dir" in words:
        place = words.index("--log-dir")
        words = [*words[:place], *words[place + 2 :]]
    return " ".join(words)


def main() -> None:
    """Ship the policy of the run that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--best", action="store_true", help="the best within the limit")
    words = parser.parse_args()
    print(ship(words.run, best=words.best).sentence())


if __name__ == "__main__":
    main()
