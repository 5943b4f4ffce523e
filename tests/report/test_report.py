"""The page of many runs: what it says, what it draws, and that a real browser agrees."""

import gzip
import json
import lzma
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from cmbpo import report
from cmbpo.experiments import plan
from cmbpo.report import appendix, page, tables
from cmbpo.report.drawing import svg
from cmbpo.report.drawing.axes import Axis, short, spanning
from cmbpo.report.drawing.panel import mean_of_seeds, spread
from cmbpo.report.inside import promises
from cmbpo.report.learning import learning
from cmbpo.report.reading.read import collect
from cmbpo.report.safety import safety
from cmbpo.report.statistics import bootstrap_interval, middle_interval
from cmbpo.runs.tables import CsvTable
from cmbpo.settings import presets
from cmbpo.settings.schema import TrainSettings
from tests.report import browser


def fake(
    folder: Path, settings: TrainSettings, *, episodes: int = 60, good_after: int = 30
) -> Path:
    """A run of episodes of 1000 steps: 40 cost and no return at first, then 4 and 5000."""
    folder.mkdir(parents=True)
    ours = asdict(replace(settings, total_steps=1000 * episodes))
    config = {
        "settings": ours,
        "command": ["cmbpo", "train", "<&>"],
        "versions": {"cmbpo": "0.1.0"},
        "device": "cpu",
        "commit": None,
    }
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(settings.seed)
    good = np.arange(episodes) >= good_after
    cost = np.where(good, 4.0, 40.0)
    returns = np.where(good, 5000.0, 0.0) + rng.normal(0, 5, episodes)
    steps = 1000 * np.arange(1, episodes + 1)
    rows = zip(steps, returns, cost, np.cumsum(cost), strict=True)
    played, updates = [], []
    for n, gain, spent, total in rows:
        played.append(
            {"env_steps": n, "return": gain, "cost": spent, "length": 1000, "terminated": 0}
        )
        update = {"TotalEnvSteps": n, "Cost/Cumulative": total, "Constraint/Limit": 10.0}
        if settings.algo == "cmbpo":
            update |= {
                "Mixing/Alpha": 0.3,
                "Rollout/Length": 5 + rng.random(),
                "Model/HoldoutMSE": rng.random() + 0.01,
                "Model/KL": rng.random() + 0.01,
                "Constraint/Real": spent,
                "Constraint/Model": spent + 1,
                "Bound/EpsilonPolicy": 0.07,
                "Bound/EpsilonModel": 0.2,
                "Bound/Epsilon": 1.0,
                "Bound/PromisedChange": rng.normal(),
                "Bound/RealChange": rng.normal(),
            }
        updates.append(update)
    CsvTable(folder / "episodes.csv").append(played)
    CsvTable(folder / "progress.csv").append(updates)
    return folder


def ant(algo: str = "cmbpo", seed: int = 0, **changes) -> TrainSettings:
    return replace(presets.preset(algo, "AntSafe"), seed=seed, **changes)


def words(places: list[Path]) -> str:
    found = collect(places)
    return page.page(found, report._panels(found))


def test_runs_are_found_at_any_depth_but_tuning_only_where_it_is_named(tmp_path):
    fake(tmp_path / "a" / "b" / "one", ant(seed=0), episodes=30)
    fake(tmp_path / "two", ant(seed=1), episodes=30)
    fake(tmp_path / "tuning" / "three", ant(seed=2), episodes=30)
    found = collect([tmp_path])
    assert [run.name for run in found.runs] == ["a/b/one", "two"]
    assert any("1 run in tuning" in notice for notice in found.notices)
    assert len(collect([tmp_path / "tuning"]).runs) == 1
    assert len(collect([tmp_path, tmp_path / "tuning", tmp_path / "two"]).runs) == 3


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_compressed_tables_read_the_same(tmp_path, suffix, compress):
    plain = fake(tmp_path / "plain", ant())
    packed = tmp_path / "packed"
    shutil.copytree(plain, packed)
    for path in packed.glob("*.csv"):
        path.with_name(f"{path.name}.{suffix}").write_bytes(compress(path.read_bytes()))
        path.unlink()
    one, other = collect([plain]).runs[0], collect([packed]).runs[0]
    assert one.episodes.keys() == other.episodes.keys()
    for name in one.episodes:
        np.testing.assert_array_equal(one.episodes[name], other.episodes[name])


def test_seeds_share_an_arm_and_changed_settings_do_not(tmp_path):
    fake(tmp_path / "a", ant(seed=0), episodes=30)
    fake(tmp_path / "b", ant(seed=1), episodes=30)
    constant = replace(ant().real_share, rule="constant")
    fake(tmp_path / "c", ant(seed=0, real_share=constant), episodes=30)
    fake(tmp_path / "d", ant("cpo"), episodes=30)
    arms = {arm.label: len(arm.runs["AntSafe"]) for arm in collect([tmp_path]).arms}
    assert arms == {"CMBPO": 2, "CMBPO (real_share.rule constant)": 1, "CPO": 1}


def of_a_grid(folder: Path, settings: TrainSettings, *names: str) -> None:
    fake(folder, settings, episodes=30)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"grid": list(names)}))


def test_arms_of_a_grid_are_named_by_what_differs_in_the_order_of_their_numbers(tmp_path):
    for lanes in (100, 20, 500):
        for seed in (0, 1):
            rollout = replace(ant().rollout, lanes=lanes)
            settings = ant(seed=seed, rollout=rollout)
            of_a_grid(tmp_path / f"{lanes}-{seed}", settings, "rollout.lanes", "policy.hidden")
    arms = {arm.label: len(arm.runs["AntSafe"]) for arm in collect([tmp_path]).arms}
    assert list(arms.items()) == [("lanes 20", 2), ("lanes 100", 2), ("lanes 500", 2)]
    fake(tmp_path / "other", ant("cpo"), episodes=30)
    labels = [arm.label for arm in collect([tmp_path]).arms]
    assert labels == ["CMBPO (lanes 20)", "CMBPO (lanes 100)", "CMBPO (lanes 500)", "CPO"]


@pytest.mark.parametrize("noted", [3, ["nothing"], [["a"]], "rollout.lanes"])
def test_a_grid_that_is_none_is_none(tmp_path, noted):
    folder = fake(tmp_path / "a", ant(), episodes=30)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"grid": noted}))
    assert [arm.label for arm in collect([tmp_path]).arms] == ["CMBPO"]


def test_the_arms_of_figure_3_have_their_names_and_a_figure_of_their_own(tmp_path):
    for job in plan.jobs("figure3", seeds=[0, 1], log_dir=str(tmp_path)):
        fake(job.folder, job.settings, episodes=30)
    fake(tmp_path / "cpo", ant("cpo"), episodes=30)
    found = collect([tmp_path])
    labels = [arm.label for arm in found.arms]
    ablated = ["CMBPO, no α(π)", "CMBPO, schedule 1", "CMBPO, schedule 2"]
    assert labels == ["CMBPO", "CPO", *ablated]
    for arm in found.arms:
        tasks = ["AntSafe"] if arm.label == "CPO" else ["AntCircle", "AntSafe"]
        assert sorted(arm.runs) == tasks
        assert {len(runs) for runs in arm.runs.values()} == {1 if arm.label == "CPO" else 2}
    panels = report._panels(found)
    drawn = {
        name: {line.arm.label for panel in panels[name]["AntSafe"] for line in panel.lines}
        for name in ("learning", "ablations")
    }
    assert drawn == {"learning": {"CMBPO", "CPO"}, "ablations": {"CMBPO", *ablated}}
    printed = {row[1]: row[2] for row in tables.table_one(found).rows if "AntSafe" in row[0]}
    assert printed["CMBPO"] == "18"
    assert {printed[label] for label in ablated} == {"–"}
    assert "<h2>Ablations</h2>" in words([tmp_path])


def test_ablations_alone_leave_no_empty_section(tmp_path):
    (job, *_) = plan.jobs("figure3", seeds=[0], algos=["cmbpo-schedule1"], log_dir=str(tmp_path))
    fake(job.folder, job.settings, episodes=30)
    page_of_it = words([tmp_path])
    assert "<h2>Ablations</h2>" in page_of_it
    assert "Learning curves" not in page_of_it


def test_how_far_a_report_is_is_told(tmp_path):
    for seed in range(3):
        fake(tmp_path / "runs" / f"{seed}", ant(seed=seed), episodes=25)
    told = []
    places = [tmp_path / "runs" / "0", tmp_path / "runs"]
    report.write(places, tmp_path / "out", lambda *now: told.append(now))
    read = [share for what, share in told if what == report.READING]
    drawn = [share for what, share in told if what == report.DRAWING]
    assert read == [0.5, 0.75, 1.0]
    assert len(drawn) > 2
    assert drawn == sorted(drawn)


def test_without_ablations_there_is_no_figure_of_them(tmp_path):
    fake(tmp_path / "a", ant(), episodes=30)
    assert "Ablations" not in words([tmp_path])


def test_a_setting_that_an_older_run_lacks_makes_no_arm(tmp_path):
    old = fake(tmp_path / "a", ant(seed=0), episodes=30)
    fake(tmp_path / "b", ant(seed=1), episodes=30)
    config = json.loads((old / "config.json").read_text())
    del config["settings"]["real_share"]["rule"]
    (old / "config.json").write_text(json.dumps(config))
    assert len(collect([tmp_path]).arms) == 1


def test_a_setting_that_an_older_run_lacks_tells_the_others_apart(tmp_path):
    old = fake(tmp_path / "a", ant(seed=0), episodes=30)
    rule = replace(ant().real_share, rule="constant")
    fake(tmp_path / "b", ant(seed=1), episodes=30)
    fake(tmp_path / "c", ant(seed=2, real_share=rule), episodes=30)
    config = json.loads((old / "config.json").read_text())
    del config["settings"]["real_share"]["rule"]
    (old / "config.json").write_text(json.dumps(config))
    assert len(collect([tmp_path]).arms) == 3


def test_runs_of_before_noise_faded_are_no_seeds_of_those_in_which_it_does(tmp_path):
    old = fake(tmp_path / "a", ant(seed=0), episodes=30)
    fading = replace(ant().policy, quiet_end=0.3)
    fake(tmp_path / "b", ant(seed=1, policy=fading), episodes=30)
    config = json.loads((old / "config.json").read_text())
    del config["settings"]["policy"]["quiet_end"]
    (old / "config.json").write_text(json.dumps(config))
    labels = [arm.label for arm in collect([tmp_path]).arms]
    assert labels == ["CMBPO", "CMBPO (policy.quiet_end 0.3)"]


def test_arms_whose_names_are_too_long_stay_apart(tmp_path):
    for seed, epochs in enumerate((3, 4, 4)):
        critic = replace(ant().critic, hidden=(9,), members=5, learning_rate=0.5, epochs=epochs)
        fake(tmp_path / f"{seed}", ant(seed=seed, critic=critic), episodes=30)
    fake(tmp_path / "plain", ant(), episodes=30)
    arms = collect([tmp_path]).arms
    assert [len(arm.runs["AntSafe"]) for arm in arms] == [1, 1, 2]
    assert len({arm.label for arm in arms}) == 3


def test_several_costs_have_a_panel_and_a_limit_each(tmp_path):
    folder = fake(tmp_path / "run", ant(cost_limit=(10.0, 50.0)), episodes=40)
    lines = (folder / "episodes.csv").read_text().splitlines()
    costs = ["cost_wall,cost_fall", *["4.0,30.0"] * 40]
    joined = [f"{a.rpartition(',')[0]},{b}" for a, b in zip(lines, costs, strict=True)]
    (folder / "episodes.csv").write_text("\n".join(joined) + "\n")
    found = collect([folder])
    titles = [panel.title for panel in learning(found.arms, "AntSafe", 50)]
    assert titles[1:3] == [
        "cost wall per 1000 steps, limit 10",
        "cost fall per 1000 steps, limit 50",
    ]
    row = tables.training(found).rows[0]
    assert (row[0], row[4]) == ("AntSafe, limit 10 and 50 per 1000 steps", "4.0 and 30.0")
    assert row[5] == "4.0 and 30.0"
    ended = safety(found.runs[0])
    assert (ended.holds, ended.excess.regret, ended.violating) == (True, 0.0, 0.0)
    assert found.runs[0].limits == {"cost_wall": 10.0, "cost_fall": 50.0}


def moved(folder: Path, env_id: str, **changes) -> Path:
    """The same run, as if it were of another environment."""
    config = json.loads((folder / "config.json").read_text())
    config["settings"] |= {"env_id": env_id, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_limit_is_for_a_whole_episode_of_the_task(tmp_path):
    folder = fake(tmp_path / "run", ant(), episodes=30)
    run = collect([moved(folder, "mine:Robot-v0", env={"horizon": 500})]).runs[0]
    assert run.limits == {"cost": 20.0}
    assert run.task == "mine:Robot-v0"


def test_an_environment_of_ones_own_has_its_own_panels_and_limit_and_no_row_in_table_one(tmp_path):
    fake(tmp_path / "ant", ant("cpo"))
    moved(fake(tmp_path / "own", ant("cpo")), "examples.cost:Robot-v0", cost_limit=[25.0])
    found = collect([tmp_path])
    assert [arm.label for arm in found.arms] == ["CPO"]
    gain, cost, against = learning(found.arms, "examples.cost:Robot-v0", 50)
    assert (gain.rules, against.rules, against.quoted) == ([], [], [])
    assert [rule.y for rule in cost.rules] == [25.0]
    assert {row[0] for row in tables.table_one(found).rows} == {"AntSafe, return 2500"}
    assert {row[0] for row in tables.every_seed(found).rows} == {"AntSafe"}
    text = words([tmp_path])
    assert "2 runs of 1 arm on AntSafe, Robot." in text
    assert "<h3>Robot</h3>" in text
    assert "Robot, limit 25 per 1000 steps" in text
    alone = words([tmp_path / "own"])
    assert "Table I<" not in alone


def test_another_environment_of_the_same_name_is_not_the_papers(tmp_path):
    fake(tmp_path / "ant", ant())
    moved(fake(tmp_path / "other", ant()), "mine/AntSafe-v0")
    found = collect([tmp_path])
    assert [found.title(task) for task in found.tasks] == ["AntSafe", "mine/AntSafe-v0"]
    assert tables.table_one(found).rows[0][-1] == "1 of 1"


@pytest.mark.parametrize("limit", [[0.0], [float("inf")]])
def test_a_limit_of_nothing_and_no_limit_at_all_can_be_drawn(tmp_path, limit):
    fake(tmp_path / "run", ant())
    moved(tmp_path / "run", "mine:Robot-v0", cost_limit=limit)
    found = collect([tmp_path])
    assert "nan" not in words([tmp_path]).split("<script>")[0]
    verdict = tables.training(found).rows[0][7]
    assert verdict.startswith("0 of 1") if limit == [0.0] else verdict == "no limit"


def test_the_same_seed_twice_is_said(tmp_path):
    fake(tmp_path / "a", ant(), episodes=30)
    fake(tmp_path / "b", ant(), episodes=30)
    assert "has seed 0 more than once" in words([tmp_path])


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path):
    text = words([tmp_path])
    assert "There is nothing to show" in text
    assert "holds no run" in text


def test_a_report_of_nothing_is_not_written_and_fails(tmp_path):
    fake(tmp_path / "young" / "run", ant(), episodes=30)
    (tmp_path / "young" / "run" / "episodes.csv").unlink()
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("of yesterday")
    done = command("young", "empty", "--out", "out", cwd=tmp_path)
    assert done.returncode == 1
    left_out, nothing = done.stderr.splitlines()
    assert "no finished episode yet" in left_out
    assert nothing == (
        "cmbpo report: there is nothing to show: no run with a finished episode was found. empty"
        " holds no run: no folder in it has a config.json."
    )
    assert done.stdout == ""
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["of yesterday"]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: (f / "config.json").write_text("{"), "is not readable as JSON"),
        (lambda f: (f / "config.json").write_text("{}"), "holds no settings"),
        (lambda f: (f / "episodes.csv").unlink(), "no finished episode yet"),
        (lambda f: (f / "episodes.csv").write_text(""), "no finished episode yet"),
        (lambda f: (f / "progress.csv").unlink(), "no finished update yet"),
        (lambda f: (f / "progress.csv").write_text("TotalEnvSteps\n5\n"), "no column"),
        (lambda f: (f / "episodes.csv").write_text("x\n1\n"), "no column"),
    ],
)
def test_a_half_written_folder_among_others_is_named(tmp_path, damage, sentence):
    fake(tmp_path / "whole", ant(seed=0), episodes=30)
    damage(fake(tmp_path / "broken", ant(seed=1), episodes=30))
    text = words([tmp_path])
    assert re.search(f"broken.*{sentence}", text)
    assert "1 run of 1 arm" in text


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_a_torn_last_row_and_a_torn_archive_do_no_harm(tmp_path, suffix, compress):
    torn = fake(tmp_path / "torn", ant(), episodes=30)
    for name in ("episodes.csv", "progress.csv"):
        with (torn / name).open("a") as file:
            file.write("310")
    assert len(collect([torn]).runs[0].episodes["env_steps"]) == 30
    whole = compress((torn / "episodes.csv").read_bytes())
    (torn / f"episodes.csv.{suffix}").write_bytes(whole[: len(whole) // 2])
    (torn / "episodes.csv").unlink()
    assert "cannot be shown" in words([torn])


def test_a_row_that_is_not_as_it_was_written_is_left_out_and_said(tmp_path):
    folder = fake(tmp_path / "run", ant(), episodes=30)
    path = folder / "episodes.csv"
    lines = path.read_text().splitlines(keepends=True)
    lines[5] = lines[5].replace(",1000,", ",1001,")
    path.write_text("".join(lines))
    shown = collect([folder])
    assert len(shown.runs[0].episodes["env_steps"]) == 29
    assert shown.left_out == [
        "run: 1 row of episodes.csv is damaged and left out; cmbpo verify names the lines."
    ]


def test_a_cut_number_is_no_word(tmp_path):
    torn = fake(tmp_path / "torn", ant(), episodes=30)
    with (torn / "episodes.csv").open("a") as file:
        file.write("31000,1.0,2.0,1000,-")
    assert collect([torn]).runs[0].episodes["terminated"].dtype == float


def test_a_run_that_is_not_finished_is_named(tmp_path):
    folder = fake(tmp_path / "run", ant(), episodes=30)
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["total_steps"] = 50_000
    (folder / "config.json").write_text(json.dumps(config))
    text = words([folder])
    assert "<details><summary>Not finished: 1 of 1 run</summary>" in text
    assert "<li>run (30,000 of 50,000 steps)</li>" in text


def test_a_setting_that_only_an_older_run_lacks_does_not_differ(tmp_path):
    old = fake(tmp_path / "a", ant(seed=0), episodes=30)
    fake(tmp_path / "b", ant(seed=1, batch_size=77), episodes=30)
    config = json.loads((old / "config.json").read_text())
    del config["settings"]["real_share"]["rule"]
    (old / "config.json").write_text(json.dumps(config))
    table = appendix.settings(collect([tmp_path]))
    assert table is not None
    assert [row[0] for row in table.rows] == ["batch_size"]


def test_table_one_counts_until_the_first_window_and_censors(tmp_path):
    for seed, good_after in ((0, 30), (1, 40), (2, 1000)):
        fake(tmp_path / f"{seed}", ant(seed=seed), episodes=200, good_after=good_after)
    fake(tmp_path / "cpo", ant("cpo"), episodes=200, good_after=1000)
    found = collect([tmp_path])
    # at 40 each before and 4 in the window: 30·40 + 20·4 after 50, 40·40 + 20·4 after 60 episodes
    # the paper's return of 2500 comes with half the window, the cost of 10 with its last episodes
    ours, cpo, *others = tables.table_one(found).rows
    assert {row[0] for row in (ours, cpo, *others)} == {"AntSafe, return 2500"}
    assert [row[1:] for row in others] == [
        ["PPO-L", "422", "no run", ""],
        ["TRPO-L", "385", "no run", ""],
    ]
    seeds = tables.crossings(found.arms[0], "AntSafe")
    assert [seed.reached for seed in seeds] == [True, True, False]
    window = next(k for k in range(1, 21) if (20 - k) * 40 + k * 4 <= 200)
    assert seeds[0].env_steps == 1000 * (30 + window)
    assert seeds[0].cumulative_cost == 30 * 40 + 4 * window
    assert ours[1:] == ["CMBPO", "18", f"{(40 * 40 + 4 * window) / 1000:.1f}", "2 of 3"]
    assert cpo[1:] == ["CPO", "527", "≥ 8.0", "0 of 1"]
    held = [cells[-1] for cells in tables.every_seed(found).rows]
    assert held == ["yes", "yes", "", ""]
    speeds = tables.speed_ups(found)
    assert speeds is not None
    assert speeds.rows[0][2] == f"≥ {200 / (40 + window):.1f}×"


def test_seeds_are_thin_and_their_middle_has_a_band(tmp_path):
    for seed in range(4):
        fake(tmp_path / f"{seed}", ant(seed=seed))
    found = collect([tmp_path])
    gain, cost, _ = learning(found.arms, "AntSafe", 50)
    for panel in (gain, cost):
        assert [line.weight for line in panel.lines] == ["seed"] * 4 + ["main"]
        assert len(panel.bands) == 1
    assert [rule.y for rule in cost.rules] == [10.0]


@pytest.mark.parametrize("rows", [5, 30, 400])
def test_the_mean_of_seeds_does_not_jump_from_seed_to_seed(rows):
    """Three seeds that rise at one pace from 0, 100 and 200: their mean rises so from 100."""
    steps = 1000.0 * np.arange(1, rows + 1)
    seeds = [(steps + 7 * i, 100.0 * i + steps / 1000.0) for i in range(3)]
    x, y = mean_of_seeds(seeds, 53)
    np.testing.assert_allclose(y, 100.0 + x / 1000.0, atol=0.02)
    assert x[0] == pytest.approx(1014.0, rel=0.1)
    assert x[-1] == pytest.approx(1000.0 * rows, rel=0.1)


def test_a_seed_of_one_update_or_of_other_steps_does_not_hide_the_rest():
    steps = 1000.0 * np.arange(1, 11)
    begun = (np.array([1000.0]), np.array([500.0]))
    x, y = mean_of_seeds([(steps, steps), begun], 20)
    np.testing.assert_allclose(x, y)
    assert len(x) > 5
    x, y = mean_of_seeds([(steps, steps), (steps[:2] + 1e6, steps[:2])], 20)
    np.testing.assert_allclose(y, steps)


def test_promises_of_few_updates_are_drawn_as_the_mean_of_the_seeds(tmp_path):
    for seed in range(4):
        fake(tmp_path / f"{seed}", ant(seed=seed), episodes=6)
    found = collect([tmp_path])
    titles = {panel.title.split(":")[0]: panel for panel in promises(found.arms, "AntSafe", 160)}
    real, imagined = titles["J_c"].lines
    # the seeds cost the same: a line through all their points would have four at each place
    assert (np.diff(real.x) > 0).all()
    np.testing.assert_allclose(real.y, 40.0)
    np.testing.assert_allclose(imagined.y, 41.0)
    sums = [np.cumsum(run.values("Bound/RealChange"))[-1] for run in found.runs]
    assert titles["all changes of J_c so far"].lines[0].y[-1] == pytest.approx(np.mean(sums))


@pytest.mark.slow
def test_the_page_stays_small_with_many_runs(tmp_path):
    settings = [
        replace(presets.preset(algo, task), seed=seed)
        for algo in ("cmbpo", "cpo", "ppo-lag", "trpo-lag")
        for task in ("AntSafe", "HalfCheetahSafe", "AntCircle")
        for seed in range(4)
    ]
    for i, run in enumerate(settings):
        fake(tmp_path / f"{i}", run, episodes=250)
    text = words([tmp_path])
    assert "48 runs of 4 arms" in text
    assert len(text) < 3_000_000


@pytest.mark.parametrize(
    "axis",
    [
        Axis("", -3.0, 7.0),
        Axis("", 1e3, 2e6, "log"),
        Axis("", -1.0, 800.0, "knee", 20.0),
        Axis("", -80.0, 6.0, "knee", 5.0),
    ],
)
def test_an_axis_finds_its_values_again(axis):
    values = np.array([axis.low, *axis.ticks(), axis.high])
    np.testing.assert_allclose(axis.unwarp(axis.warp(values)), values, rtol=1e-9, atol=1e-9)
    assert 3 <= len(axis.ticks()) <= 9
    assert np.all(np.diff(axis.fraction(values)) >= 0)


def test_an_axis_spans_what_it_is_given():
    for values in ([0.0], [2.0, 2.0], [np.nan], [], [-1.0, 1e6]):
        axis = spanning("", np.array(values))
        assert axis.low < axis.high


def test_names_beside_one_another_keep_their_order_and_their_distance():
    places = [10.0, 11.0, 50.0, 99.0, 100.0]
    moved_apart = spread(places, gap=15.0, end=100.0)
    assert np.all(np.diff(moved_apart) >= 15.0)
    assert moved_apart == [10.0, 25.0, 50.0, 85.0, 100.0]
    assert spread([], gap=15.0, end=100.0) == []


def test_numbers_are_short():
    values = (0.0, 20_000.0, 1.5e6, -5.0, 0.02, 2.5e-5)
    assert [short(x) for x in values] == ["0", "20k", "1.5M", "−5", "0.02", "2.5e−5"]


def command(*args: str, cwd: Path) -> subprocess.CompletedProcess:
    code = "from cmbpo.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "report", *args], cwd=cwd, capture_output=True, text=True
    )


def test_a_run_that_does_not_exist_is_one_sentence(tmp_path):
    done = command("nowhere", cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.strip() == "cmbpo report: nowhere does not exist"
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The command as a user types it, on two tasks, four algorithms, and two seeds of one."""
    root = tmp_path_factory.mktemp("report")
    for name, settings in {
        "cmbpo-0": ant(seed=0),
        "cmbpo-1": ant(seed=1),
        "cpo": ant("cpo"),
        "cheetah": presets.preset("cmbpo", "HalfCheetahSafe"),
    }.items():
        fake(root / "runs" / name, settings)
    (root / "runs" / "empty").mkdir()
    done = command("runs", "--out", "out", cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "out/report.html"
    return root / "out"


def test_the_figures_are_also_files(made):
    names = {path.name for path in (made / "figures").iterdir()}
    assert names == {
        f"{n}.{kind}" for n in ("learning", "model", "promises") for kind in ("png", "pdf")
    }
    assert (made / "figures" / "learning.png").read_bytes().startswith(b"\x89PNG")
    assert (made / "figures" / "learning.pdf").read_bytes().startswith(b"%PDF")


def test_tasks_that_table_i_does_not_have_are_in_pictures_of_their_own(tmp_path):
    fake(tmp_path / "ant", ant())
    fake(tmp_path / "robot", ant())
    moved(tmp_path / "robot", "examples.velocity:Robot-v0")
    both = collect([tmp_path])
    tasks = {
        name: [*rows] for name, rows in report.pictures(both, report.made(both).panels).items()
    }
    assert tasks["learning"] == ["AntSafe"]
    assert tasks["learning-others"] == ["Robot"]
    alone = collect([tmp_path / "robot"])
    assert [*report.pictures(alone, report.made(alone).panels)["learning"]] == ["Robot"]


def test_the_page_points_to_nothing_outside(made):
    text = (made / "report.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//\w|\bsrc=|\bhref=(?!'#)|url\(|@import|\bfetch\b", text)
    assert "&lt;&amp;&gt;" in text


@pytest.fixture(scope="module")
def tab():
    path = browser.find()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(browser.NAMES)} is on the PATH")
    with browser.tab(path) as opened:
        yield opened


BOXES = """[...document.querySelectorAll(%r)].map((part) => {
  const box = part.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; })"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_every_curve_and_complains_of_nothing(made, tab, tmp_path, width, dark):
    tab.complaints.clear()
    tab.requests.clear()
    tab.open(made / "report.html", width=width, dark=dark)
    assert tab.complaints == []
    assert tab.requests == [(made / "report.html").resolve().as_uri()]
    assert tab.run("performance.getEntriesByType('resource').length") == 0
    figures = tab.run(BOXES % "svg.chart")
    assert len(figures) > 10
    assert all(280 < box[2] <= width and box[3] > 150 for box in figures)
    curves = tab.run(BOXES % "polyline.main")
    assert len(curves) > 20
    assert all(max(box[2:]) > 20 for box in curves)
    assert tab.run("document.documentElement.scrollWidth") <= width
    background = tab.run("getComputedStyle(document.body).backgroundColor")
    light = sum(int(x) for x in re.findall(r"\d+", background)[:3]) / 3
    assert light < 60 if dark else light > 200


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A page of many arms with long names and long commands."""
    root = tmp_path_factory.mktemp("crowded")
    for seed, epochs in enumerate((3, 4, 5, 6)):
        critic = replace(ant().critic, hidden=(9,), members=5, learning_rate=0.5, epochs=epochs)
        fake(root / "a_rather_long_folder" / f"{seed}", ant(seed=seed, critic=critic), episodes=30)
    for algo in ("cmbpo", "cpo", "ppo-lag", "trpo-lag", "trpo"):
        fake(root / f"an/other/{algo}", ant(algo), episodes=30)
        fake(root / f"own/{algo}", ant(algo), episodes=30)
        moved(root / f"own/{algo}", "examples.velocity:Robot-v0")
    (root / "page.html").write_text(words([root]))
    return root / "page.html"


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_wide_tables_stay_in_their_boxes_and_words_stay_whole(crowded, tab, width):
    tab.open(crowded, width=width)
    tab.run("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert all(x >= 0 and x + w <= width for x, _, w, _ in tab.run(BOXES % ".scroll"))
    assert all(w > 24 for _, _, w, _ in tab.run(BOXES % "td"))
    assert all(w > 110 for _, _, w, _ in tab.run(BOXES % "td.name"))
    assert tab.complaints == []


def test_the_name_of_a_row_stays_when_its_table_is_scrolled(crowded, tab):
    tab.open(crowded, width=390)
    tab.run("[...document.querySelectorAll('.scroll')].forEach((box) => box.scrollBy(200, 0))")
    moved_boxes = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollLeft > 100)"
    assert tab.run(f"{moved_boxes}.length") >= 2
    left = f"{moved_boxes}.map((x) => x.querySelector('td.name').getBoundingClientRect().x)"
    assert all(abs(x - 20) < 2 for x in tab.run(left))


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_the_text_of_figures_is_large_enough_and_inside(made, tab, width):
    tab.open(made / "report.html", width=width)
    sizes = tab.run("""[...document.querySelectorAll('svg.chart text:not(.paper-name)')].map(
      (part) => parseFloat(getComputedStyle(part).fontSize) * part.getScreenCTM().a)""")
    assert len(sizes) > 100
    assert 10.5 < min(sizes) <= max(sizes) < 15
    outside = tab.run("""[...document.querySelectorAll('svg.chart text')].filter((part) => {
      const own = part.getBoundingClientRect();
      const box = part.closest('figure').getBoundingClientRect();
      return own.left < box.left || own.right > box.right || own.bottom > box.bottom;
    }).length""")
    assert outside == 0


def test_a_curve_is_there_in_its_colour(made, tab, tmp_path):
    imread = pytest.importorskip("matplotlib.image").imread
    tab.open(made / "report.html")
    tab.run("document.querySelector('svg.chart').scrollIntoView()")
    x, y, width, height = (round(v) for v in tab.run(BOXES % "svg.chart")[0])
    tab.picture(tmp_path / "page.png")
    inside = imread(tmp_path / "page.png")[max(y, 0) : y + height, x : x + width, :3]
    blue = np.abs(inside - np.array([0x1F, 0x6F, 0xB4]) / 255).max(axis=2) < 0.1
    assert blue.sum() > 30


def test_an_arm_is_hidden_and_shown_and_values_are_read_off(made, tab):
    tab.open(made / "report.html")
    visible = "[...document.querySelectorAll('svg .n0')].filter((x) => x.getClientRects().length)"
    before = tab.run(f"{visible}.length")
    x, y, width, height = tab.run(BOXES % "nav button")[0]
    for expected in (0, before):
        tab.click(x + width / 2, y + height / 2)
        assert tab.run(f"{visible}.length") == expected
    tab.run("document.querySelector('svg.chart').scrollIntoView({block: 'center'})")
    x, y, width, height = tab.run(BOXES % "svg.chart")[0]
    tab.move(x + 0.93 * width, y + height / 2)
    tip = tab.run("document.querySelector('.tip').innerText")
    # the middle of all seeds' last episodes, read off the drawing
    values = [float(v) for v in re.findall(r"(\d+)\s+C", tip)]
    assert len(values) == 2
    assert all(abs(v - 5000) < 60 for v in values)
    tab.move(2, 2)
    assert tab.run("document.querySelector('.tip')") is None
    assert tab.complaints == []


def test_fourteen_arms_have_colours_of_their_own_in_legend_and_values_read_off(tab, tmp_path):
    for epochs in range(1, 15):
        critic = replace(ant().critic, epochs=epochs)
        fake(tmp_path / f"{epochs}", ant(critic=critic))
    (tmp_path / "page.html").write_text(words([tmp_path]))
    tab.open(tmp_path / "page.html")
    colour = "getComputedStyle(part).backgroundColor"
    legend = tab.run(f"[...document.querySelectorAll('nav i')].map((part) => {colour})")
    assert len(set(legend)) == 14
    tab.run("document.querySelector('svg.chart').scrollIntoView({block: 'center'})")
    x, y, width, height = tab.run(BOXES % "svg.chart")[0]
    tab.move(x + 0.93 * width, y + height / 2)
    shown = tab.run(f"[...document.querySelectorAll('.tip i')].map((part) => {colour})")
    assert sorted(shown) == sorted(legend)


def test_the_browser_would_have_complained(tab, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<script>console.error('a'); nothing();</script><img src='http://localhost:9/x'>"
    )
    tab.complaints.clear()
    tab.requests.clear()
    tab.open(bad)
    assert len(tab.complaints) >= 2
    assert "http://localhost:9/x" in tab.requests
    tab.complaints.clear()


def test_a_page_of_nothing_is_shown_too(tab, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(words([tmp_path]))
    tab.open(path)
    assert "nothing to show" in tab.run("document.body.innerText")
    assert tab.complaints == []


def test_points_are_left_out_of_a_line_only_where_it_stays():
    x = np.linspace(56.0, 428.0, 250)
    rng = np.random.default_rng(0)
    for y in (np.cumsum(rng.normal(size=250)), np.where(x < 200.0, 3.0, 90.0)):
        kept = svg.needed(x, y)
        drawn = np.interp(x, x[kept], y[kept])
        assert kept[0]
        assert kept[-1]
        assert np.abs(drawn - y).max() <= svg.CLOSE
    assert kept.sum() == 4, "a step is drawn with its ends and its corners"
    assert svg.needed(x, 2.0 * x).sum() == 2
    assert svg.needed(x[:1], x[:1]).all()
    assert svg.needed(x[:0], x[:0]).size == 0


def test_returns_far_above_the_level_leave_room_for_the_others(tmp_path: Path):
    """Runs that end at 5000, above twice AntCircle's level of 2000, below twice the cheetah's."""
    for task in ("AntCircle", "HalfCheetahSafe"):
        fake(tmp_path / task, presets.preset("cmbpo", task))
    found = collect([tmp_path])
    for place in (0, 2):
        axes = {
            task: learning(found.arms, task, 50)[place].y
            for task in ("AntCircle", "HalfCheetahSafe")
        }
        assert axes["HalfCheetahSafe"].kind == "linear"
        assert axes["AntCircle"].kind == "knee"
        assert axes["AntCircle"].knee == 4000.0


def test_the_tables_show_the_interval_that_covers_what_it_says():
    scores = [[1.0, 2.0, 4.0, 9.0]]
    low, high = middle_interval([np.array(row) for row in scores])
    assert tables._middle(scores, "{:.4f}").endswith(f"[{low:.4f}, {high:.4f}]")
    narrow = bootstrap_interval([np.array(row) for row in scores])
    assert high - low > 1.1 * float(narrow[1] - narrow[0])
