"""The benchmark of the model-free algorithms, small."""

import json
import subprocess
import sys

import pytest

from cmbpo import cli
from cmbpo.bench import algorithms
from cmbpo.settings.registry import TUNED
from tests.tiny import tiny


@pytest.mark.slow
def test_the_parts_add_up_to_the_update():
    (row,) = algorithms.measure([tiny("trpo")], updates=2)
    assert row["algorithm"] == "trpo"
    numbers = {name: value for name, value in row.items() if isinstance(value, float)}
    assert min(numbers.values()) > 0.0
    parts = sum(numbers[name] for name in ("simulate", "act", "learn"))
    assert parts == pytest.approx(1e4 / numbers["steps /CPU-s"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--updates", "0"], "updates is 0; allowed: at least 1"),
        (["--cores", "0"], "cores is 0; allowed: at least 1"),
        (["--envs", "Moon"], "unknown task 'Moon'"),
        (["--algos", "sac"], "unknown algorithm 'sac'"),
    ],
)
def test_mistakes_are_one_sentence(flags: list[str], said: str, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cmbpo", "bench", "algorithms", *flags])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert said in str(stopped.value)


@pytest.mark.slow
def test_throughput_with_the_default_presets(tmp_path):
    """CPO makes 3,000 steps per CPU-second; no task takes longer to learn from than to simulate.

    In a process of its own, where no types are checked at every call.
    """
    file = tmp_path / "algorithms.json"
    command = [sys.executable, "-m", "cmbpo.cli", "bench", "algorithms", "--json", str(file)]
    subprocess.run([*command, "--envs", *TUNED], check=True)
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 16
    for row in rows:
        assert row["ratio CPU"] <= 1.0
        if (row["task"], row["algorithm"]) == ("HalfCheetahSafe", "cpo"):
            assert row["steps /CPU-s"] >= 3000.0
