"""How arms stand: the last quarter of their steps, and who is better."""

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cmbpo.experiments import plan, standing
from cmbpo.experiments.standing import ArmStanding, Standing
from cmbpo.runs.tables import CsvTable


def record(
    folder: Path,
    returns: Sequence[float],
    costs: Sequence[float],
    *,
    every: int = 100,
    episode: int = 1000,
) -> None:
    """A run folder with a row for each update of 100 steps."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"settings": {}, "horizon": 1000}))
    rows = [
        {
            "TotalEnvSteps": 100 * number,
            "Train/Epoch": number,
            "Metrics/EpRet": ret,
            "Metrics/EpCost": cost,
            "Constraint/Limit": 10.0,
            "Constraint/Real": cost,
            "Train/EpisodeSteps": episode,
            "Time/Total": 1.0 * number,
        }
        for number, (ret, cost) in enumerate(zip(returns, costs, strict=True), start=1)
    ]
    (folder / "progress.csv").unlink(missing_ok=True)
    CsvTable(folder / "progress.csv").append(rows)
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / f"{len(rows)}.npz").touch()


def jobs(folder: Path, *grid: str, seeds: int = 1, total_steps: int = 800) -> list[plan.Job]:
    """A grid of CPO on PointCircle whose first update is after few steps."""
    return plan.jobs(
        "grid",
        seeds=range(seeds),
        algos=["cpo"],
        grid=grid,
        overrides=["initial_steps=10"],
        total_steps=total_steps,
        log_dir=str(folder),
    )


KL = "trust-region.max-kl=0.01,0.02,0.03,0.04"


def test_a_run_is_judged_by_the_last_quarter_of_its_steps(tmp_path):
    record(tmp_path, [0, 0, 0, 0, 0, 0, 30, 50], [99, 99, 99, 99, 99, 99, 4, 8])
    assert standing.standing(tmp_path) == Standing(800, 40.0, 0.6)


def test_a_run_that_went_on_stood_then_as_it_stood(tmp_path):
    record(tmp_path, [1, 2, 3, 4], [1, 2, 3, 4])
    then = standing.standing(tmp_path)
    record(tmp_path, [1, 2, 3, 4, 50, 60], [1, 2, 3, 4, 50, 60])
    assert standing.standing(tmp_path, until=350) == then
    assert standing.standing(tmp_path) != then


def test_several_costs_are_judged_by_the_one_furthest_beyond_its_limit(tmp_path):
    record(tmp_path, [1.0], [1.0])
    row = {
        "TotalEnvSteps": 100,
        "Metrics/EpRet": 1.0,
        "Constraint/Limit/wall": 10.0,
        "Constraint/Limit/fall": 0.0,
        "Constraint/Real/wall": 5.0,
        "Constraint/Real/fall": 0.1,
        "Train/EpisodeSteps": 200,
    }
    (tmp_path / "progress.csv").unlink()
    CsvTable(tmp_path / "progress.csv").append([row])
    assert standing.standing(tmp_path) == Standing(100, 1.0, math.inf, cut=200)


def test_what_cannot_be_read_stands_nowhere(tmp_path):
    assert standing.standing(tmp_path) is None
    (tmp_path / "progress.csv").write_text("a,b\n1,2\n")
    assert standing.standing(tmp_path) is None


def test_within_the_limit_by_return_and_beyond_it_by_cost():
    def arm(name: str, *seeds: tuple[float, float]) -> ArmStanding:
        return ArmStanding(name, [Standing(1, ret, cost) for ret, cost in seeds])

    order = [
        arm("earns most within", (50, 0.9), (70, 1.0)),
        arm("earns less", (40, 0.1)),
        arm("earns nothing yet", (math.nan, 0.1)),
        arm("nearly within", (900, 1.1)),
        arm("one seed far beyond", (900, 0.5), (900, 3.0)),
        arm("no run"),
    ]
    assert sorted(order[3:] + order[:3], key=lambda arm: arm.rank) == order


def test_the_table_has_those_that_went_furthest_first_and_best_first_among_them(tmp_path):
    ends = {
        "0.01": ([10, 20], [1, 1]),
        "0.02": ([10, 90, 90, 90, 90, 90, 90, 90], [99, 99, 1, 1, 1, 1, 20, 20]),
        "0.03": ([10, 30, 30, 30, 30, 30, 30, 30], [99, 99, 1, 1, 1, 1, 5, 5]),
    }
    for value, (returns, costs) in ends.items():
        record(tmp_path / f"cpo-PointCircle/max-kl={value}/seed-000", returns, costs, episode=300)
    out = io.StringIO()
    standing.show(jobs(tmp_path, KL), Console(file=out, width=100, highlight=False))
    title, _, *rows = [" ".join(line.split()) for line in out.getvalue().strip().split("\n")]
    assert title == "PointCircle, the last quarter of each run:"
    assert rows == [
        "max-kl 0.03 1 800 30 0.50 yes, episodes cut at 300 steps",
        "max-kl 0.02 1 800 90 2.00 no, episodes cut at 300 steps",
        "max-kl 0.01 1 200 of 800 20 0.10 yes, episodes cut at 300 steps",
        "max-kl 0.04 0 0 of 800 – – not known",
    ]


def test_no_limit_is_said_to_hold_before_an_episode_has_ended(tmp_path):
    record(tmp_path / "cpo-PointCircle/max-kl=0.01/seed-000", [math.nan] * 2, [0, 0], episode=300)
    out = io.StringIO()
    standing.show(jobs(tmp_path, KL)[:1], Console(file=out, width=100, highlight=False))
    assert out.getvalue().split("\n")[3].split("  ")[-1].strip() == "no episode has ended yet"


def test_arms_are_called_by_what_differs():
    names = standing.labels(plan.jobs("table1", seeds=[0], envs=["AntSafe"]))
    assert list(names.values()) == ["cmbpo", "cpo", "ppo-lag", "trpo-lag"]
    two = ["policy.hidden=8x8,16", "trust-region.max-kl=0.02"]
    both = plan.jobs("grid", seeds=[0, 1], algos=["cpo", "trpo"], grid=two)
    assert list(standing.labels(both).values()) == [
        *("cpo, policy.hidden 8x8", "cpo, policy.hidden 16"),
        *("trpo, policy.hidden 8x8", "trpo, policy.hidden 16"),
    ]
    one = [job for job in both if job.arm == "cpo"]
    assert list(standing.labels(one).values()) == ["policy.hidden 8x8", "policy.hidden 16"]
