"""What a benchmark prints, it also writes as data."""

import json

from cmbpo.bench import table


def test_contenders_take_turns():
    turns = []
    seconds = table.interleaved(
        {"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, rounds=3
    )
    assert turns == ["a", "b"] * 4
    assert [len(times) for times in seconds.values()] == [3, 3]


def test_what_is_printed_is_written_with_the_machine_it_was_measured_on(tmp_path, capsys):
    rows = [{"task": "Ant", "steps": 12345, "ratio": 0.123456, "none": None}]
    table.show("Speed", rows, notes="Of one run.", json_file=tmp_path / "new" / "a.json")
    printed = capsys.readouterr().out
    for words in ("Speed", "Ant", "12,345", "0.123", "–", "Of one run."):
        assert words in printed
    written = json.loads((tmp_path / "new" / "a.json").read_text())
    assert written["rows"] == rows
    assert written["machine"]
