"""The tables of a run grow by rows and columns, and are cut back to where a checkpoint was."""

import gzip
import lzma
import resource
from contextlib import suppress

import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.runs import tables
from cmbpo.runs.errors import DamagedError, RunError
from cmbpo.runs.tables import CsvTable, read_table
from tests.runs.stand_in import row

ROWS = [{"TotalEnvSteps": 1, "Train/KL": jnp.float32(0.1), "Time/FPS": 3.0}, {"TotalEnvSteps": 2}]


@pytest.fixture
def table(tmp_path):
    return CsvTable(tmp_path / "progress.csv")


def without_checks(table: CsvTable) -> list[str]:
    """The lines, which must all end in a check that holds."""
    found = tables.examine(table.path)
    assert found.checked
    assert not found.damaged
    assert not found.gaps
    return [line.rpartition(",")[0] for line in table.path.read_text().splitlines()]


def test_columns_are_those_of_the_first_row_with_times_last(table):
    table.append([{"Time/FPS": 3.0, "TotalEnvSteps": 1, "Train/KL": jnp.float32(0.1)}])
    table.append([{"TotalEnvSteps": 2}])
    assert without_checks(table) == ["TotalEnvSteps,Train/KL,Time/FPS", "1,0.1,3.0", "2,,"]
    assert table.rows == 2


def test_a_new_column_widens_the_table_and_is_blank_before(table):
    table.append(ROWS)
    table.append([{"TotalEnvSteps": 3, "Train/Epoch": 1, "Time/Total": 9.0, "Time/FPS": 4.0}])
    lines = without_checks(table)
    assert lines[0] == "TotalEnvSteps,Train/KL,Train/Epoch,Time/FPS,Time/Total"
    assert lines[1:] == ["1,0.1,,3.0,", "2,,,,", "3,,1,4.0,9.0"]
    assert CsvTable(table.path).columns == table.columns
    assert not list(table.path.parent.glob(".*.tmp"))


def test_rows_that_come_together_may_have_different_columns(table):
    table.append([{"a": 1}, {"a": 2, "b": 3}])
    assert without_checks(table) == ["a,b", "1,", "2,3"]


def test_values_that_are_numbers_of_any_kind_or_words_are_written_plainly(table):
    table.append(
        [{"i": np.int64(3), "f": np.float32(0.1), "b": True, "n": np.bool_(True), "w": "x"}]
    )
    assert without_checks(table)[1].split(",") == ["3", "0.1", "1", "1", "x"]


def test_nothing_is_written_of_no_rows(table):
    table.append([])
    assert not table.path.exists()
    assert table.mark() == {"rows": 0, "check": ""}


def test_a_table_is_cut_back_by_rows_also_where_it_was_widened_since(table):
    table.append(ROWS)
    mark = table.mark()
    table.append([{"TotalEnvSteps": 3, "Train/Epoch": 1}])
    table.rewind(mark)
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0]
    table.append([{"TotalEnvSteps": 3, "Train/Epoch": 7}])
    assert read_table(table.path)["Train/Epoch"][-1] == 7.0
    assert table.rows == 3


def test_a_table_cut_back_to_nothing_begins_anew_with_other_columns(table):
    table.append(ROWS)
    table.rewind({"rows": 0})
    table.append([{"a": 1}])
    assert without_checks(table) == ["a", "1"]


def test_a_torn_last_row_is_not_read_and_does_not_stay(table):
    table.append(ROWS)
    mark = table.mark()
    with table.path.open("a") as file:
        file.write("3,0.")
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0]
    again = CsvTable(table.path)
    again.rewind(mark)
    again.append([{"TotalEnvSteps": 3}])
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0, 3.0]


def test_a_table_that_is_lost_is_said_and_goes_on(table):
    table.append(ROWS)
    mark = table.mark()
    table.path.unlink()
    assert "is lost with its 2 rows" in (table.rewind(mark) or "")
    table.append([{"a": 1}])
    assert read_table(table.path)["a"].tolist() == [1.0]
    assert tables.examine(table.path).gaps == [2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"300,", b"301,"),
        lambda data: data.replace(b"300,", b"\x00\x00\x00\x00"),
        lambda data: data.replace(b"300,", b"\xff\xfe\xff,"),
        lambda data: data.replace(b"\n300,", b"300,"),
        lambda data: data[: data.index(b"\n300,") + 1] + data[data.index(b"\n400,") + 1 :],
    ],
)
@pytest.mark.parametrize("after", [0, 3])
def test_of_a_damaged_table_what_is_whole_is_kept_and_the_file_set_aside(damage, after, table):
    rows = [{"TotalEnvSteps": 100 * i, "Train/KL": 0.1, "Time/FPS": i} for i in range(1, 10)]
    table.append(rows[:5])
    mark = table.mark()
    table.append(rows[5 : 5 + after])
    damaged = damage(table.path.read_bytes())
    table.path.write_bytes(damaged)
    again = CsvTable(table.path)
    said = again.rewind(mark)
    assert said is not None
    assert "where the checkpoint noted 5" in said
    assert table.path.with_name("progress.csv.damaged").read_bytes() == damaged
    kept = read_table(table.path)["TotalEnvSteps"].tolist()
    assert kept in ([100.0, 200.0, 400.0, 500.0], [100.0, 400.0, 500.0])
    again.append(rows[5:])
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [*kept, 600, 700, 800, 900]


def test_every_changed_byte_of_a_row_is_seen(table):
    table.append([{"TotalEnvSteps": i, "Misc/Case": "safe", "Time/FPS": 3.5} for i in range(3)])
    whole = table.path.read_bytes()
    written = {"TotalEnvSteps": {0.0, 1.0, 2.0}, "Misc/Case": {"safe"}, "Time/FPS": {3.5}}
    for i in range(len(whole) - 1):
        changed = bytearray(whole)
        changed[i] = changed[i] ^ 1
        table.path.write_bytes(changed)
        found = tables.examine(table.path)
        assert found.damaged or found.gaps or not found.checked, changed[max(0, i - 9) : i + 9]
        for name, values in found.columns.items():
            assert set(values.tolist()) <= written.get(name, set(values.tolist()))


@pytest.mark.parametrize(("order", "gaps"), [((1, 3), [3]), ((1, 2, 2, 3), [4]), ((2, 1, 3), [2])])
def test_rows_that_are_missing_repeated_or_moved_are_seen(order, gaps, table):
    table.append([{"a": i} for i in (1, 2, 3)])
    header, *rows = table.path.read_text().splitlines()
    table.path.write_text("\n".join([header, *(rows[i - 1] for i in order)]) + "\n")
    found = tables.examine(table.path)
    assert not found.damaged
    assert found.gaps[:1] == gaps


def test_a_table_of_an_older_version_is_read_and_goes_on_with_checks(table):
    table.path.write_text("TotalEnvSteps,Time/FPS\n1,3.0\n2,3.5\n")
    assert not tables.examine(table.path).checked
    table.rewind({"bytes": 12, "rows": 2})
    table.append([{"TotalEnvSteps": 3, "Time/FPS": 4.0}])
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0, 3.0]
    assert tables.examine(table.path)[1:4] == ([], [], True)


def test_widening_leaves_a_damaged_row_as_it_is(table):
    table.append([{"a": 1}, {"a": 2}])
    table.path.write_bytes(table.path.read_bytes().replace(b"\n2,", b"\n3,"))
    table.append([{"a": 3, "b": 4}])
    found = tables.examine(table.path)
    assert found.damaged == [3]
    assert found.columns["a"].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_what_unpacks_to_more_than_any_run_has_is_refused_before_it_is_unpacked(
    suffix, compress, tmp_path, monkeypatch
):
    monkeypatch.setattr(tables, "MOST_UNPACKED", 10_000)
    path = tmp_path / f"progress.csv{suffix}"
    path.write_bytes(compress(b"a\n" + b"1\n" * 10_000))
    with pytest.raises(RunError, match=rf"progress\.csv\{suffix} unpacks to more than"):
        read_table(path)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_damaged_archive_is_named(suffix, compress, tmp_path):
    path = tmp_path / f"progress.csv{suffix}"
    whole = compress(b"a\n1\n")
    for data in (b"no archive", whole[:-9], b""):
        path.write_bytes(data)
        with pytest.raises(DamagedError, match=rf"progress\.csv\{suffix} is damaged"):
            read_table(path)


@pytest.mark.parametrize("data", [b"\0" * 3000, b"a\n" + b",\n" * 3000, b"," * 5000 + b"\n1\n"])
def test_what_is_no_table_is_named_or_has_no_rows(data, table):
    table.path.write_bytes(data)
    with suppress(DamagedError):
        assert not any(len(column) for column in read_table(table.path).values())


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_compressed_table_reads_the_same(suffix, compress, table):
    table.append(ROWS)
    packed = table.path.with_name(f"progress.csv{suffix}")
    packed.write_bytes(compress(table.path.read_bytes()))
    for (name, plain), (other, unpacked) in zip(
        read_table(table.path).items(), read_table(packed).items(), strict=True
    ):
        assert name == other
        np.testing.assert_array_equal(plain, unpacked)


def test_columns_of_words_stay_words_and_blank_numbers_are_none(table):
    table.append([{"case": "recovery", "kl": 0.1}, {"case": "constrained"}])
    found = read_table(table.path)
    assert found["case"].tolist() == ["recovery", "constrained"]
    np.testing.assert_array_equal(found["kl"], [0.1, np.nan])


def test_a_full_disk_under_the_records_is_reported(run):
    run.record(row(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (run.progress.path.stat().st_size + 5, hard))
    try:
        with pytest.raises(RunError, match=r"could not write .*progress\.csv"):
            run.record(row(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
