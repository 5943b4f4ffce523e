"""The tables of a run grow by rows and columns, and are cut back to where a checkpoint was."""

import gzip
import lzma
import resource

import jax.numpy as jnp
import numpy as np
import pytest

from cmbpo.runs.errors import RunError
from cmbpo.runs.tables import CsvTable, read_table
from tests.runs.stand_in import row

ROWS = [{"TotalEnvSteps": 1, "Train/KL": jnp.float32(0.1), "Time/FPS": 3.0}, {"TotalEnvSteps": 2}]


@pytest.fixture
def table(tmp_path):
    return CsvTable(tmp_path / "progress.csv")


def test_columns_are_those_of_the_first_row_with_times_last(table):
    table.append([{"Time/FPS": 3.0, "TotalEnvSteps": 1, "Train/KL": jnp.float32(0.1)}])
    table.append([{"TotalEnvSteps": 2}])
    assert table.path.read_text() == "TotalEnvSteps,Train/KL,Time/FPS\n1,0.1,3.0\n2,,\n"
    assert table.rows == 2


def test_a_new_column_widens_the_table_and_is_blank_before(table):
    table.append(ROWS)
    table.append([{"TotalEnvSteps": 3, "Train/Epoch": 1, "Time/Total": 9.0, "Time/FPS": 4.0}])
    lines = table.path.read_text().splitlines()
    assert lines[0] == "TotalEnvSteps,Train/KL,Train/Epoch,Time/FPS,Time/Total"
    assert lines[1:] == ["1,0.1,,3.0,", "2,,,,", "3,,1,4.0,9.0"]
    assert CsvTable(table.path).columns == table.columns
    assert not list(table.path.parent.glob(".*.tmp"))


def test_rows_that_come_together_may_have_different_columns(table):
    table.append([{"a": 1}, {"a": 2, "b": 3}])
    assert table.path.read_text() == "a,b\n1,\n2,3\n"


def test_values_that_are_numbers_of_any_kind_or_words_are_written_plainly(table):
    table.append(
        [{"i": np.int64(3), "f": np.float32(0.1), "b": True, "n": np.bool_(True), "w": "x"}]
    )
    assert table.path.read_text().splitlines()[1].split(",") == ["3", "0.1", "1", "1", "x"]


def test_nothing_is_written_of_no_rows(table):
    table.append([])
    assert not table.path.exists()
    assert table.position() == {"bytes": 0, "rows": 0}


def test_a_table_is_cut_back_by_rows_also_where_it_was_widened_since(table):
    table.append(ROWS)
    position = table.position()
    table.append([{"TotalEnvSteps": 3, "Train/Epoch": 1}])
    table.rewind(position)
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0]
    table.append([{"TotalEnvSteps": 3, "Train/Epoch": 7}])
    assert read_table(table.path)["Train/Epoch"][-1] == 7.0
    assert table.rows == 3


def test_a_table_cut_back_to_nothing_begins_anew_with_other_columns(table):
    table.append(ROWS)
    table.rewind({"bytes": 0, "rows": 0})
    table.append([{"a": 1}])
    assert table.path.read_text() == "a\n1\n"


def test_a_torn_last_row_is_not_read_and_does_not_stay(table):
    table.append(ROWS)
    position = table.position()
    with table.path.open("a") as file:
        file.write("3,0.")
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0]
    again = CsvTable(table.path)
    again.rewind(position)
    again.append([{"TotalEnvSteps": 3}])
    assert read_table(table.path)["TotalEnvSteps"].tolist() == [1.0, 2.0, 3.0]


def test_a_table_shorter_than_it_was_is_refused(table):
    table.append(ROWS)
    position = table.position()
    table.path.write_text("")
    with pytest.raises(RunError, match="has 0 rows, but had 2 when the checkpoint was saved"):
        table.rewind(position)


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


def test_a_damaged_archive_is_a_value_error(tmp_path):
    (tmp_path / "progress.csv.xz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="format not supported"):
        read_table(tmp_path / "progress.csv.xz")


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
