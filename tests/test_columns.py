"""The names of columns stand in one place, and their document is made from it."""

import ast
import subprocess
import sys
from pathlib import Path

import cmbpo
from cmbpo import columns

SOURCE = Path(cmbpo.__file__).parent
DOCUMENT = Path(__file__).parents[1] / "docs" / "columns.md"


def test_the_document_is_made_from_the_module():
    assert DOCUMENT.read_text().rstrip("\n") == "\n".join(columns.document())


def test_the_command_of_the_document_makes_it():
    done = subprocess.run(
        [sys.executable, "-m", "cmbpo.columns"], check=True, capture_output=True, text=True
    )
    assert done.stdout == DOCUMENT.read_text()


def test_no_name_of_a_column_is_written_elsewhere():
    taken = {str(column) for column in columns.PROGRESS if "/" in column}
    assert len(taken) > 70
    for path in SOURCE.rglob("*.py"):
        if path != SOURCE / "columns.py":
            found = {
                node.value
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            assert not found & taken, f"{path.relative_to(SOURCE)}: {found & taken}"


def test_every_column_has_a_name_and_a_meaning_of_its_own():
    for table in (columns.PROGRESS, columns.EPISODES):
        assert len(set(table)) == len({column.meaning for column in table}) == len(table)
        assert all(column.meaning and column.unit for column in table)


def test_a_column_is_its_name_and_knows_that_of_each_cost():
    assert columns.COST == "Metrics/EpCost"
    assert dict.fromkeys([str(columns.COST)], 1.0)[columns.COST] == 1.0
    assert columns.COST.per_cost
    assert columns.COST.of("wall") == "Metrics/EpCost/wall"
    assert columns.episode_cost("wall") == "cost_wall"


def test_the_names_of_omnisafe_are_kept():
    """People's plotting scripts read them."""
    omnisafe = {
        *("TotalEnvSteps", "Train/Epoch", "Metrics/EpRet", "Metrics/EpCost", "Metrics/EpLen"),
        *("Train/KL", "Train/StopIter", "Train/PolicyStd", "Value/Adv", "Value/reward"),
        *("Value/cost", "Loss/Loss_pi", "Loss/Loss_reward_critic", "Loss/Loss_cost_critic"),
        *("Metrics/LagrangeMultiplier", "Misc/AcceptanceStep", "Misc/FinalStepNorm"),
        *("Time/FPS", "Time/Epoch", "Time/Total"),
    }
    assert omnisafe <= set(columns.PROGRESS)


def test_what_no_two_runs_share_is_told_from_the_rest():
    times = {column for column in columns.PROGRESS if columns.is_time(column)}
    measured = {columns.FPS, columns.UPDATE_SECONDS, columns.TOTAL_SECONDS, *columns.PHASES}
    assert times == measured
