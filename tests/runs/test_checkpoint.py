"""A checkpoint comes back to the bit, or is refused by name; it is written whole or not at all."""

import hashlib
import json
import resource
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cmbpo.networks import Policy
from cmbpo.runs import checkpoint
from cmbpo.runs.array_file import write_whole
from cmbpo.runs.errors import DamagedError, RunError


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


def test_what_an_older_version_saved_and_nothing_needs_any_more_is_passed_over(run):
    kept = {"reference": np.array(0.02), "accumulated": np.array(0.1)}

    def state(limits):
        return {"learner": {"model": {"limits": limits}}}

    run.save(state(kept | {"mean": np.array(0.014)}), 1)
    same_bits(run.load(state(kept)), state(kept))


def test_a_checkpoint_is_not_compressed_so_that_a_large_archive_saves_in_a_second(run):
    """Zeros and ones would shrink to nothing, and take ten times as long."""
    path = run.save({"obs": jnp.ones((2000, 80)), "epoch": jnp.zeros(2000, jnp.int32)}, 1)
    with zipfile.ZipFile(path) as file:
        assert {member.compress_type for member in file.infolist()} == {zipfile.ZIP_STORED}
    assert path.stat().st_size > 4 * 2000 * 81


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
        except DamagedError:
            noticed += 1
        else:  # a bit that nothing reads, as in a date
            same_bits(loaded, a_state(2))
    assert noticed > 100


def test_a_checkpoint_of_another_format_says_so(run, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 7)
    run.save({"a": 1}, 1)
    monkeypatch.undo()
    with pytest.raises(RunError, match=r"format 7, written by cmbpo .* reads format 1"):
        run.load({"a": 1})


def forged(manifest, **leaves):
    """The members of a checkpoint whose checksum is right, whatever its manifest says."""
    header = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    digest = hashlib.sha256(header)
    for array in leaves.values():
        digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return {
        "manifest": np.frombuffer(header, np.uint8),
        "checksum": np.frombuffer(digest.digest(), np.uint8),
        **{f"leaves/{name}": array for name, array in leaves.items()},
    }


RIGHT = {"format": 1, "cmbpo": "0", "leaves": ["a"], "keys": {}, "notes": {"update": 1}}


@pytest.mark.parametrize(
    "change",
    [
        *({"format": None}, {"cmbpo": 3}, {"leaves": {"a": 1}}, {"leaves": [["a"]]}),
        *({"leaves": "a"}, {"leaves": ["a", "b"]}, {"leaves": None}, {"keys": []}),
        *({"keys": {"a": 3}}, {"keys": {"a": "nonsense"}}, {"notes": [1]}, {"notes": None}),
        *({"notes": {}}, {"notes": {"update": 1, "tables": 3}}, {"notes": {"settings": 3}}),
        *({"notes": {"update": 1, "tables": {"progress.csv": {"rows": "x"}}}},),
        *({"notes": {"update": [1]}}, {"leaves": []}),
    ],
)
def test_a_forged_manifest_with_a_right_checksum_is_one_sentence(run, change):
    path = run.folder / "checkpoints" / "1.npz"
    write_whole(path, forged(RIGHT | change, a=np.zeros(3)))
    for read in (run.load, run.restore):
        with pytest.raises(RunError) as error:
            read({"a": np.zeros(3)})
        assert str(path) in str(error.value)
    assert path.exists()


@pytest.mark.parametrize("text", [b"", b"[", b"3", b"[" * 100_000, b"\xff", b"1" * 5000])
def test_a_manifest_that_is_no_json_is_damage(run, text):
    path = run.folder / "checkpoints" / "1.npz"
    write_whole(path, forged(text, a=np.zeros(3)))
    with pytest.raises(DamagedError, match=r"1\.npz is"):
        checkpoint.load(path, {"a": np.zeros(3)})


def test_loading_executes_nothing(run):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("executed",))

    np.savez(run.folder / "checkpoints" / "1.npz", manifest=np.array(Bomb(), dtype=object))
    with pytest.raises(RunError, match=r"every checkpoint .* of type object"):
        run.load({"a": 1})


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


def test_a_batch_that_made_a_quantity_infinite_is_kept_to_be_looked_at(run):
    path = run.save_offending({"obs": jnp.array([1.0, jnp.nan])}, 17)
    assert path.name == "nonfinite-17.npz"
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["batch/obs"], [1.0, np.nan])
