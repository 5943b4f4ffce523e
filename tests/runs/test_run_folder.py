"""A run folder survives what happens to runs: kills, damaged files, full disks, other versions."""

import dataclasses
import json
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbpo.networks import Policy
from cmbpo.runs import checkpoint
from cmbpo.runs.run_folder import NonFiniteError, Run, RunError, check_finite, settings_from_json
from cmbpo.runs.tables import read_table
from cmbpo.settings.schema import EnsembleSettings, RolloutSettings, TrainSettings


@pytest.fixture
def settings(tmp_path):
    return TrainSettings(log_dir=str(tmp_path), env_id="cmbpo/AntSafe-v0", seed=3)


@pytest.fixture
def run(settings):
    with Run.create(settings, {"horizon": 1000}) as run:
        yield run


def a_policy(seed):
    key = jax.random.key(seed)
    return Policy(4, 2, hidden=(8, 8), log_std=-0.5, last_layer_scale=1.0, key=key)


def a_state(seed):
    """One leaf of each kind that a training state has."""
    policy = a_policy(seed)
    return {
        "policy": policy,
        "opt_state": optax.adam(1e-3).init(eqx.filter(policy, eqx.is_array)),
        "key": jax.random.key(seed),
        "keys": jax.random.split(jax.random.key(seed, impl="rbg"), (2, 3)),
        "physics": {"qpos": np.random.default_rng(seed).normal(size=(3, 7))},
        "flags": jnp.array([True, False]),
        "nothing": jnp.zeros((0, 4)),
        "special": np.array([np.nan, np.inf, -0.0]),
        "update": seed,
        "env_steps": 10**12 + seed,
        "reference": 0.1 + seed,
        "recovering": bool(seed % 2),
        "phase": "first",
        "absent": None,
    }


def same_bits(a, b):
    def bits(x):
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return str(jax.random.key_impl(x)), np.asarray(jax.random.key_data(x)).tobytes()
        x = np.asarray(x)
        return x.dtype, x.shape, x.tobytes()

    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        assert bits(x) == bits(y)


def row(update):
    return {
        "TotalEnvSteps": 1000 * update,
        "Time/Total": time.time(),
        "Metrics/EpRet": np.float32(0.1) * update,
        "Misc/Case": "unconstrained",
    }


def episode(update):
    return {
        "env_steps": 1000 * update,
        "return": 1.5,
        "cost": 0.0,
        "length": 1000,
        "terminated": False,
    }


def without_time(text):
    lines = [line.split(",") for line in text.splitlines()]
    keep = [i for i, name in enumerate(lines[0]) if not name.startswith("Time/")]
    return [[line[i] for i in keep] for line in lines]


def test_the_folder_is_named_after_algorithm_task_and_seed(run, tmp_path):
    assert run.folder.parent == tmp_path / "cmbpo-AntSafe"
    assert run.folder.name.startswith("seed-003-20")


def test_runs_started_in_the_same_second_do_not_share_a_folder(settings):
    runs = [Run.create(settings) for _ in range(3)]
    assert len({run.folder for run in runs}) == 3
    for run in runs:
        run.close()


def test_the_config_says_what_it_ran_on(run):
    config = json.loads((run.folder / "config.json").read_text())
    assert config["versions"].keys() >= {"cmbpo", "python", "jax", "mujoco", "gymnasium", "numpy"}
    assert config["horizon"] == 1000
    assert {"device", "commit", "command"} <= config.keys()


@given(
    seed=st.integers(0, 2**31),
    hidden=st.lists(st.integers(1, 512), min_size=1, max_size=4).map(tuple),
    limit=st.none() | st.lists(st.floats(0, 1e6), min_size=1, max_size=3).map(tuple),
    temperature=st.floats(0, 1e3),
)
def test_settings_come_back_from_json_exactly(seed, hidden, limit, temperature):
    settings = TrainSettings(
        seed=seed,
        cost_limit=limit,
        ensemble=EnsembleSettings(hidden=hidden),
        rollout=RolloutSettings(temperature=temperature),
    )
    config = json.loads(json.dumps({"settings": dataclasses.asdict(settings)}))
    assert settings_from_json(config) == settings
    assert hash(settings_from_json(config)) == hash(settings)


def test_an_unknown_setting_is_named_with_the_version_that_wrote_it():
    config = {"versions": {"cmbpo": "9.1"}, "settings": dataclasses.asdict(TrainSettings())}
    config["settings"]["rollout"]["colour"] = "red"
    with pytest.raises(RunError, match=r"cmbpo 9\.1.*'rollout\.colour'"):
        settings_from_json(config)


def test_a_missing_setting_takes_its_default_and_says_so():
    config = {"settings": dataclasses.asdict(TrainSettings())}
    del config["settings"]["rollout"]["lanes"]
    with pytest.warns(UserWarning, match=r"lacks 'rollout\.lanes'"):
        assert settings_from_json(config) == TrainSettings()


def test_an_impossible_setting_is_named():
    config = {"settings": dataclasses.asdict(TrainSettings())}
    config["settings"]["num_envs"] = 0
    with pytest.raises(RunError, match="num_envs is 0"):
        settings_from_json(config)


def test_a_folder_without_config_is_no_run(tmp_path):
    with pytest.raises(RunError, match="no config"):
        Run.open(tmp_path)


def test_a_state_comes_back_bit_for_bit(run):
    state = a_state(5)
    run.save(state, 1)
    same_bits(run.load(a_state(6)), state)


def test_a_state_fills_a_template_of_shapes_only(run):
    policy = a_policy(5)
    run.save({"policy": policy}, 1)
    same_bits(run.load({"policy": jax.eval_shape(lambda: a_policy(0))}), {"policy": policy})


def test_a_part_of_the_state_loads_alone(run):
    run.save(a_state(5), 1)
    same_bits(run.load(a_policy(6), under="policy"), a_state(5)["policy"])


def test_an_archive_of_two_hundred_thousand_rows_saves_in_about_a_second(run):
    archive = {"obs": jnp.ones((200_000, 80)), "epoch": jnp.zeros(200_000, jnp.int32)}
    began = time.perf_counter()
    run.save(archive, 1)
    assert time.perf_counter() - began < 3.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": 1.0}, "'update': int where float"),
        ({"flags": jnp.zeros(3)}, r"'flags': bool\(2,\) where float32\(3,\)"),
        ({"key": jnp.zeros(2)}, "'key': a random key where none"),
        ({"more": 1}, "no 'more'"),
    ],
)
def test_a_state_of_another_shape_is_refused_by_name(run, change, message):
    run.save(a_state(1), 1)
    with pytest.raises(RunError, match=message):
        run.load(a_state(2) | change)


def test_a_state_with_more_than_the_template_is_refused(run):
    run.save({"a": 1, "b": 2}, 1)
    with pytest.raises(RunError, match="'b', unknown"):
        run.load({"a": 1})


def test_only_plain_arrays_go_into_a_checkpoint(run):
    with pytest.raises(RunError, match="'x' of type object"):
        run.save({"x": object()}, 1)


def test_the_newest_two_checkpoints_stay(run):
    for update in (1, 9, 10, 100):
        run.save({"update": update}, update)
    assert [path.name for path in run.checkpoints()] == ["100.npz", "10.npz"]
    assert run.load({"update": 0}) == {"update": 100}


def test_a_truncated_checkpoint_falls_back_to_the_one_before(run):
    for update in (1, 2):
        run.save(a_state(update), update)
    newest = run.checkpoints()[0]
    whole = newest.read_bytes()
    for share in (0.0, 0.3, 0.7, 0.99):
        newest.write_bytes(whole[: int(share * len(whole))])
        with pytest.warns(UserWarning, match="2.npz is damaged"):
            same_bits(run.load(a_state(0)), a_state(1))


def test_no_flipped_bit_goes_unnoticed(run):
    for update in (1, 2):
        run.save(a_state(update), update)
    newest = run.checkpoints()[0]
    whole = newest.read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for position in rng.integers(len(whole), size=200):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << rng.integers(8)
        newest.write_bytes(flipped)
        try:
            loaded = checkpoint.load(newest, a_state(0)).state
        except checkpoint.DamagedError:
            noticed += 1
        else:  # a bit that nothing reads, as in a date
            same_bits(loaded, a_state(2))
    assert noticed > 100


def test_when_every_checkpoint_is_damaged_the_message_says_so(run):
    run.save({"a": 1}, 1)
    run.checkpoints()[0].write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match="every checkpoint"),
    ):
        run.load({"a": 1})


def test_a_checkpoint_of_another_format_says_so(run, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 7)
    run.save({"a": 1}, 1)
    monkeypatch.undo()
    with pytest.raises(RunError, match=r"format 7, written by cmbpo .* reads format 1"):
        run.load({"a": 1})


def test_loading_executes_nothing(run):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("executed",))

    np.savez(run.folder / "checkpoints" / "1.npz", manifest=np.array(Bomb(), dtype=object))
    with (
        pytest.warns(UserWarning, match="Object arrays cannot be loaded"),
        pytest.raises(RunError, match="every checkpoint"),
    ):
        run.load({"a": 1})


def trained(run, updates):
    """A stand-in for training: a row each, some episodes, a checkpoint every fourth update."""
    for update in updates:
        run.record(row(update))
        run.record_episodes([episode(update)] if update % 2 else [])
        if update % 4 == 0:
            run.save({"update": update}, update)


def test_resumed_records_are_those_of_the_unbroken_run(settings):
    with Run.create(settings) as unbroken:
        trained(unbroken, range(1, 13))
    with Run.create(settings) as run:
        trained(run, range(1, 8))
    with (run.folder / "progress.csv").open("a") as file:
        file.write("8000,0.8,torn")
    with Run.resume(run.folder) as run:
        state = run.restore({"update": 0})
        assert state == {"update": 4}
        trained(run, range(5, 13))
    for name in ("progress.csv", "episodes.csv"):
        assert without_time((run.folder / name).read_text()) == without_time(
            (unbroken.folder / name).read_text()
        )
    assert run.progress.rows == 12


def test_a_run_killed_before_its_first_checkpoint_starts_anew(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 3))
    with Run.resume(run.folder) as run:
        assert run.restore({"update": 0}) is None
        assert (run.folder / "progress.csv").read_text() == ""
        trained(run, range(1, 3))
    assert read_table(run.folder / "progress.csv")["TotalEnvSteps"].tolist() == [1000, 2000]


def test_damaged_newer_checkpoints_are_dropped_on_resume(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 9))
        run.checkpoints()[0].write_bytes(b"junk")
    with Run.resume(run.folder) as run:
        with pytest.warns(UserWarning, match="8.npz is damaged"):
            assert run.restore({"update": 0}) == {"update": 4}
        assert [path.name for path in run.checkpoints()] == ["4.npz"]
        assert run.progress.rows == 4


def test_records_shorter_than_the_checkpoint_says_are_refused(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 5))
    (run.folder / "progress.csv").write_text("")
    with Run.resume(run.folder) as run, pytest.raises(RunError, match="has 0 bytes, but had"):
        run.restore({"update": 0})


def test_columns_are_those_of_the_first_row_with_times_last(run):
    run.record({"Time/FPS": 3.0, "TotalEnvSteps": 1, "Train/KL": jnp.float32(0.1)})
    run.record({"TotalEnvSteps": 2})
    text = (run.folder / "progress.csv").read_text()
    assert text == "TotalEnvSteps,Train/KL,Time/FPS\n1,0.1,3.0\n2,,\n"
    with pytest.raises(RunError, match="no column 'Train/Epoch'"):
        run.record({"TotalEnvSteps": 3, "Train/Epoch": 1})


def test_tensorboard_reads_the_same_numbers_and_is_told_what_to_forget(settings):
    with Run.create(settings) as run:
        trained(run, range(1, 7))
    with Run.resume(run.folder) as run:
        run.restore({"update": 0})
        trained(run, range(5, 7))
    first, second = (list(events(path)) for path in sorted(run.folder.glob("events.out.*")))
    assert [event.step for event in first[2:]] == [1000, 2000, 3000, 4000, 5000, 6000]
    values = {value.tag: value.simple_value for value in first[2].summary.value}
    assert values["Metrics/EpRet"] == np.float32(0.1)
    assert "Misc/Case" not in values
    assert second[1].session_log.status == 1
    assert [event.step for event in second[1:]] == [4001, 5000, 6000]


def events(path: Path):
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_a_folder_opened_to_read_is_not_written_to(run):
    reader = Run.open(run.folder)
    with pytest.raises(RunError, match="to be read"):
        reader.record(row(1))


def test_a_missing_wandb_is_named_before_anything_is_made(settings, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RunError, match=r'pip install "cmbpo\[wandb\]"'):
        Run.create(dataclasses.replace(settings, wandb=True))
    assert list(tmp_path.iterdir()) == []


def test_a_quantity_that_is_not_finite_is_named(run):
    check_finite({"policy loss": 1.0, "critic": {"w": jnp.ones(3)}, "count": 3}, 17)
    with pytest.raises(NonFiniteError, match=r"critic is not finite \(inf\) at update 17"):
        check_finite({"loss": 1.0, "critic": {"w": jnp.array([1.0, jnp.inf])}}, 17)
    path = run.save_offending({"obs": jnp.array([1.0, jnp.nan])}, 17)
    assert path.name == "nonfinite-17.npz"
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["batch/obs"], [1.0, np.nan])


def test_a_full_disk_leaves_the_last_good_checkpoint(run):
    run.save({"x": np.zeros(10)}, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(RunError, match=r"could not write .*2\.npz: File too large"):
            run.save({"x": np.ones(100_000)}, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["1.npz"]
    np.testing.assert_array_equal(run.load({"x": np.ones(10)})["x"], np.zeros(10))


def test_a_full_disk_under_the_records_is_reported(run):
    run.record(row(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (run.progress.path.stat().st_size + 5, hard))
    try:
        with pytest.raises(RunError, match=r"could not write .*progress\.csv"):
            run.record(row(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def python(code, *args):
    """A process that runs `code`; its output is read line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_do_not_train_in_one_folder_but_a_dead_one_does_not_block(run):
    run.close()
    code = """
        import sys, time
        from cmbpo.run import Run
        run = Run.resume(sys.argv[1])
        print("holding", flush=True)
        time.sleep(60)
    """
    with python(code, run.folder) as process:
        assert process.stdout
        assert process.stdout.readline() == "holding\n"
        with pytest.raises(RunError, match=f"process {process.pid} is already training"):
            Run.resume(run.folder)
        process.send_signal(signal.SIGKILL)
    with Run.resume(run.folder):
        pass


def test_a_run_killed_while_it_saves_goes_on_from_a_whole_checkpoint(run):
    run.close()
    code = """
        import sys
        import numpy as np
        from cmbpo.run import Run
        with Run.resume(sys.argv[1]) as run:
            state = run.restore({"x": np.zeros(1_000_000, int), "update": 0})
            first = 1 if state is None else state["update"] + 1
            for update in range(first, 1000):
                run.record({"TotalEnvSteps": update, "Metrics/EpRet": 0.5})
                run.save({"x": np.full(1_000_000, update), "update": update}, update)
                print(update, flush=True)
    """
    template = {"x": np.zeros(1_000_000, int), "update": 0}
    for delay in (0.005, 0.03):
        with python(code, run.folder) as process:
            assert process.stdout
            for _ in range(2):
                process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        with Run.resume(run.folder) as resumed:
            state = resumed.restore(template)
            assert state is not None
            assert state["update"] >= 2
            assert (state["x"] == state["update"]).all()
            assert resumed.progress.rows == state["update"]
        assert not list(run.folder.glob("**/*.tmp"))
