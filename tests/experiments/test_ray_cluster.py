"""The same experiments on a real Ray cluster of two nodes, of which a worker and a node die."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cmbpo.experiments.ray_cluster import packed, unpack
from tests.tiny import assignments

pytest.importorskip("ray", reason="the extra `ray` is not installed")

EVERY = 5
CHANGES = {
    "num_envs": 120,
    "batch_size": 240,
    "checkpoint_every": EVERY,
    "policy.normalise": False,
    "critic.members": 1,
    "critic.epochs": 1,
}
SMALL = assignments("cpo", **CHANGES)
NODES = """
from ray.cluster_utils import Cluster
quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}
small = {"num_cpus": 1, "object_store_memory": 80_000_000}
cluster = Cluster()
cluster.add_node(**small, include_dashboard=False, _system_config=quick)
second = cluster.add_node(**small)
print(cluster.address, flush=True)
if input() == "lose a node":
    cluster.remove_node(second, allow_graceful=False)
    input()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[subprocess.Popen[str]]:
    """A process that holds two nodes of one CPU each; its first line is their address."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", NODES],
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path_factory.mktemp("cluster"),
    ) as process:
        try:
            yield process
        finally:
            process.communicate("\n", timeout=60)


@pytest.fixture(scope="module")
def address(cluster: subprocess.Popen[str]) -> str:
    assert cluster.stdout is not None
    return cluster.stdout.readline().strip()


def command(address: str, log_dir: str | Path, *args: str) -> list[str]:
    cmbpo = [sys.executable, "-m", "cmbpo.cli", "experiment", "table1", "--ray", address]
    what = ["--envs", "PointCircle", "--algos", "cpo", "--device", "cpu", "--cpus-per-run", "1"]
    return [*cmbpo, *what, "--log-dir", str(log_dir), *args, "--set", *SMALL]


def rows(folder: Path) -> list[dict[str, str]]:
    path = folder / "progress.csv"
    if not path.exists():
        return []
    with path.open() as file:
        found = list(csv.DictReader(file))
    return [row for row in found if None not in row.values()]


def wait_for_rows(folder: Path, count: int) -> list[dict[str, str]]:
    end = time.monotonic() + 240
    while len(found := rows(folder)) < count:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.mark.slow
def test_results_come_back_from_nodes_that_do_not_see_the_folder_and_go_on(address, tmp_path):
    # the name of a folder that is another one for each process
    def experiment(total_steps: int) -> None:
        steps = ["--total-steps", str(total_steps), "--seeds", "1"]
        args = command(address, "/proc/self/cwd/runs", *steps)
        done = subprocess.run(args, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    folder = tmp_path / "runs/cpo-PointCircle/seed-000"
    experiment(480)
    before = rows(folder)
    assert [row["Train/Epoch"] for row in before] == ["1", "2"]
    for name in ("config.json", "checkpoints/2.npz", "curves.png", "console.txt"):
        assert (folder / name).exists()

    experiment(720)
    assert rows(folder)[:2] == before
    assert len(rows(folder)) == 3
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["3.npz"]
    assert not list((tmp_path / "runs").glob(".shared-*"))


def test_a_run_asks_for_no_more_than_a_node_has(address, tmp_path):
    args = [*command(address, tmp_path), "--cpus-per-run", "3"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "a run asks for 3 CPU; no node of the Ray cluster has more than 1" in done.stderr


@pytest.mark.slow
def test_runs_survive_the_death_of_a_worker_and_of_a_node(cluster, address, tmp_path):
    folders = [tmp_path / f"cpo-PointCircle/seed-00{seed}" for seed in range(2)]
    args = command(address, tmp_path, "--seeds", "2", "--total-steps", "24000")
    pipe = subprocess.PIPE
    with subprocess.Popen(args, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            before = [wait_for_rows(folders[0], 6)]
            os.kill(parent(int((folders[0] / ".lock").read_text())), signal.SIGKILL)
            before.append(wait_for_rows(folders[1], 6))
            cluster.stdin.write("lose a node\n")
            cluster.stdin.flush()
            printed, _ = driver.communicate(timeout=300)
        finally:
            driver.kill()
    assert driver.returncode == 0, printed
    assert "2 finished" in printed
    for folder, first in zip(folders, before, strict=True):
        # the rows since the last checkpoint are made again, at other times
        kept = EVERY * (len(first) // EVERY)
        assert rows(folder)[:kept] == first[:kept], "went on from a checkpoint, times and all"
        assert [int(row["Train/Epoch"]) for row in rows(folder)] == list(range(1, 101))
    assert (folders[0] / "console.txt").read_text().count("run folder:") >= 2


def test_no_cluster_is_a_sentence(tmp_path):
    done = subprocess.run(
        command("127.0.0.1:1", tmp_path), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr.strip().split("\n")[-1]


def test_a_packed_folder_keeps_its_newest_checkpoint_only(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, update in ((here, 9), (here, 10), (there, 5)):
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / "checkpoints" / f"{update}.npz").write_text(str(update))
    (here / "progress.csv").write_text("a\n")
    (here / ".lock").touch()
    unpack(packed(here), there)
    found = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    assert found == {"progress.csv", "checkpoints/10.npz"}
