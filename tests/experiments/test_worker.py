"""The run's side of an experiment, from its first moment."""

import os

from cmbpo.experiments import plan
from cmbpo.experiments.worker import Worker
from tests.experiments.test_drive import SMALL, rows, wait_until

LOSING = """
import gc, os, signal, sys

def interrupt(phase, info):
    if "jax.numpy" in sys.modules:
        gc.callbacks.remove(interrupt)
        open(os.environ["SENT"], "w").close()
        os.kill(os.getpid(), signal.SIGINT)

gc.callbacks.append(interrupt)
"""


def test_a_run_that_is_still_starting_loses_no_ctrl_c(tmp_path):
    """Python swallows an exception that is raised while its garbage collector calls back."""
    (tmp_path / "sitecustomize.py").write_text(LOSING)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    env = {"PYTHONPATH": path, "SENT": str(tmp_path / "sent")}
    (job,) = plan.jobs(
        "table1",
        seeds=[0],
        envs=["PointCircle"],
        algos=["cpo"],
        overrides=SMALL,
        total_steps=100_000_000,
        log_dir=str(tmp_path),
        device="cpu",
    )
    worker = Worker(job, job.folder, cores=1, command=["cmbpo"], env=env)
    try:
        wait_until(lambda: worker.ended)
    finally:
        worker.kill()
    assert (tmp_path / "sent").exists()
    assert worker.failure() == "interrupted"
    assert not rows(job.folder)
