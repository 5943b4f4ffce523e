"""The guide to one's own environment, typed as it stands, with fewer steps."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import flags

GUIDE = (Path(__file__).parents[1] / "docs" / "own_environment.md").read_text()
PYTHON = next(b for b in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "Agent" in b)
SMALL = " ".join(flags("cpo", batch_size=500, initial_steps=500))


def typed(folder, command):
    """What the command prints, run in a folder as a user runs it."""
    full = [str(Path(sys.executable).with_name("cmbpo")), *command.split()]
    done = subprocess.run(full, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_from_an_empty_folder_to_an_exported_policy(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "my_robot.py").write_text(blocks[0])
    said = typed(tmp_path, "check --env-id my_robot:Cart-v0")
    assert "can be trained on; lines that hurt: 0" in said
    train = "train --algo cpo --env-id my_robot:Cart-v0 --cost-limit 10"
    typed(tmp_path, f"{train} --total-steps 2000 {SMALL}")
    (run,) = (tmp_path / "runs" / "cpo-Cart").iterdir()
    typed(tmp_path, f"train --resume {run} --total-steps 3000 --trust")
    with (run / "progress.csv").open() as file:
        steps = [int(row["TotalEnvSteps"]) for row in csv.DictReader(file)]
    assert steps == [1000, 1500, 2000, 2500, 3000]
    with (run / "episodes.csv").open() as file:
        lengths = {r["length"] for r in csv.DictReader(file) if r["terminated"] == "0"}
    assert lengths == {"200"}, "no episode is glued together across the interruption"
    said = typed(tmp_path, f"evaluate {run} --episodes 2 --trust")
    assert "cost per 200 steps (limit 10)" in said
    typed(tmp_path, f"export {run} robot/policy.npz --trust")
    code = "observation = [0.0, 0.0, 1.0]\n" + blocks[1] + "\nprint(action[0])"
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['jax'] = None\n" + code],
        cwd=tmp_path / "robot",
        capture_output=True,
        text=True,
        check=True,
    )
    assert -5.0 <= np.float64(done.stdout) <= 5.0


@pytest.mark.slow
def test_the_python_of_the_guide_prints_what_it_says(tmp_path):
    (tmp_path / "my_robot.py").write_text(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[0])
    small = (
        "total_steps=1500, num_envs=5, batch_size=500, initial_steps=500,"
        ' critic={"hidden": (8,), "epochs": 1}'
    )
    assert "total_steps=300_000" in PYTHON
    code = PYTHON.replace("total_steps=300_000", small)
    (tmp_path / "script.py").write_text(f"{code}print(agent.predict([0.0, 0.0, 1.0]).shape)\n")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "cost per 200 steps (limit 10)" in done.stdout
    assert "object at 0x" not in done.stdout
    numbers, folder, shape = done.stdout.strip().splitlines()[-3:]
    assert re.fullmatch(r"-?[\d,.]+ ± [\d,.?]+ -?[\d,.]+ ± [\d,.?]+", numbers)
    assert folder.startswith("runs/cpo-lambda/seed-000-")
    assert shape == "(1,)"
