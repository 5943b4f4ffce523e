"""A run folder to test with."""

import pytest

from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import TrainSettings


@pytest.fixture
def settings(tmp_path):
    return TrainSettings(log_dir=str(tmp_path), env_id="cmbpo/AntSafe-v0", seed=3)


@pytest.fixture
def run(settings):
    with Run.create(settings, {"horizon": 1000}) as run:
        yield run
