"""A user's algorithm is seen by name everywhere, and imported only where it may be."""

import importlib.metadata
import sys
from importlib.metadata import EntryPoint

import pytest

import cmbpo
from cmbpo import cli
from cmbpo.experiments import plan
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.settings import plugins, registry
from cmbpo.settings.overrides import changed
from cmbpo.settings.presets import preset
from cmbpo.settings.trust import flag_for_acting, flag_for_training
from cmbpo.training import loop
from tests.tiny import rows, tiny

SOURCE = """
import cmbpo
from cmbpo.algorithms.trpo import ALGORITHM

cmbpo.register_algorithm(
    "plain-trpo", module=__name__, label="Plain", reads=("trust_region.max_kl",), heeds_cost=False
)
"""
FULL = "my_rules:plain-trpo"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a module of the user's, which nothing has imported."""
    (tmp_path / "my_rules.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(registry.ALGORITHMS)
    forget()
    yield tmp_path
    forget()
    registry.ALGORITHMS.update(before)


def forget() -> None:
    """As in a new process; the table itself stays, which other modules have by now."""
    for name in [name for name in registry.ALGORITHMS if ":" in name]:
        del registry.ALGORITHMS[name]
    sys.modules.pop("my_rules", None)


def test_an_algorithm_is_named_by_its_module_and_then_by_itself(folder):
    with pytest.raises(ValueError, match="unknown algorithm 'plain-trpo'"):
        preset("plain-trpo", "PointCircle")
    settings = preset(FULL, "PointCircle")
    assert settings.algo == FULL
    assert preset("Plain_TRPO", "PointCircle").algo == FULL
    assert cmbpo.Agent(FULL, "PointCircle-v0", trust_region={"max_kl": 0.1}).settings.algo == FULL
    with pytest.raises(ValueError, match=r"lagrangian\.rule is not read by my_rules:plain-trpo"):
        changed(settings, {"lagrangian.rule": "pid"})


def test_a_run_of_it_is_opened_with_trust_only(folder, monkeypatch):
    made, _ = loop.run(tiny(FULL, folder / "runs", total_steps=400, policy__normalise=False))
    assert made.parent.name == "plain-trpo-PointCircle"
    settings = Run.open(made).settings
    assert flag_for_acting(settings) == flag_for_training(settings) == " --trust"
    forget()
    for attempt in (Run.open, cmbpo.load, loop.resume):
        with pytest.raises(RunError, match=r"in a module, whose code would run; .* --trust"):
            attempt(made)
    assert "my_rules" not in sys.modules
    loop.resume(made, total_steps=800, trusted=True)
    assert len(rows(made)) == 2
    forget()
    assert cmbpo.load(made, trust=True).predict([0.0] * 4).shape == (2,)


def test_an_experiment_runs_it(folder):
    (job,) = plan.jobs("figure2", seeds=[3], envs=["PointCircle"], algos=[FULL], log_dir="runs")
    assert job.settings.algo == FULL
    assert job.name == "plain-trpo-PointCircle/seed-003"


def test_what_a_package_declares_is_found_by_its_name_and_needs_no_trust(folder, monkeypatch):
    point = EntryPoint("plain-trpo", "my_rules", plugins.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    monkeypatch.syspath_prepend(folder)
    assert preset("plain-trpo", "PointCircle").algo == FULL
    forget()
    plugins.if_installed("other_rules:plain-trpo")
    assert "my_rules" not in sys.modules
    plugins.if_installed(FULL)
    assert registry.algorithm_name(FULL) == FULL


def test_verify_asks_for_trust_and_calls_nothing_damaged_for_want_of_it(
    folder, monkeypatch, capsys
):
    with Run.create(tiny(FULL, folder)) as run:
        run.save({}, 1)
    forget()
    monkeypatch.setattr("sys.argv", ["cmbpo", "verify", str(run.folder)])
    with pytest.raises(SystemExit, match=r"^cmbpo verify: .* say so with --trust"):
        cli.main()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.argv", ["cmbpo", "verify", str(run.folder), "--trust"])
    cli.main()
    assert capsys.readouterr().out.endswith(f"{run.folder} is whole\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:x", "there is no module 'nowhere' here or installed"),
        ("my_rules:other", "the module 'my_rules' registers no algorithm 'other'; allowed: one"),
        ("..:x", "'..' is no name of a module"),
        ("__main__:x", "it was registered in a script: put it in a module of its own"),
    ],
)
def test_what_cannot_be_found_is_one_sentence(name, said, folder):
    with pytest.raises(ValueError, match=said):
        plugins.asked_for(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [("cpo", "'cpo' is taken by cpo"), ("ppol", "taken by ppo-lag"), ("My Rule", "small letters")],
)
def test_a_name_that_is_taken_or_none_is_refused(name, said):
    with pytest.raises(ValueError, match=said):
        plugins.register_algorithm(name, module="my_rules")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reads": ("clipped.lr",)}, "reads has 'clipped.lr': unknown setting 'clipped.lr'; there"),
        ({"reads": ("dynamics",)}, "reads has 'dynamics': dynamics is called ensemble now"),
        ({"reads": "lagrangian"}, "reads is 'lagrangian'; allowed: several names of settings or"),
        ({"module": "nope"}, "module is 'nope', which is not here or installed; allowed: module=_"),
        ({"module": "nope.inner"}, "module is 'nope.inner', which is not here"),
        ({"module": ".."}, "module is '..', which is not here"),
    ],
)
def test_what_an_algorithm_cannot_read_and_a_module_that_is_not_there_are_refused(
    given, said, folder
):
    before = dict(registry.ALGORITHMS)
    with pytest.raises(ValueError, match=f"^{said}"):
        plugins.register_algorithm("mine", **{"module": __name__, **given})
    assert before == registry.ALGORITHMS


def test_an_algorithm_reads_settings_and_groups_and_its_module_is_not_imported_for_that(folder):
    sys.path.insert(0, str(folder))
    reads = ["lagrangian", "trust_region.max_kl", "replay.size"]
    name = plugins.register_algorithm("mine", module="my_rules", reads=reads)
    assert set(reads) <= set(registry.ALGORITHMS[name].reads)
    for each in ("first_episode", "episode_growth", "cost_estimate.target"):
        assert registry.reads(name, each)
    for each in ("rollout", "replay.ratio"):
        assert not registry.reads(name, each)
    assert "my_rules" not in sys.modules


@pytest.mark.parametrize(("line", "has"), [("", "None"), ("ALGORITHM = 5", "5")])
def test_a_module_without_an_algorithm_is_named(folder, line, has):
    register = "import cmbpo\ncmbpo.register_algorithm('empty', module=__name__)\n"
    (folder / "my_rules.py").write_text(register + line)
    settings = tiny("my_rules:empty", folder / "runs")
    said = f"'my_rules' of the algorithm my_rules:empty has {has} as ALGORITHM; allowed: cmbpo.alg"
    with pytest.raises(ValueError, match=said):
        loop.run(settings)
    assert not (folder / "runs").exists()
