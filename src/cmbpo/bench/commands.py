"""What `cmbpo bench` can be asked to measure; without JAX, so that its help is instant."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class BenchSimulator:
    """Steps per second of each task, beside bare MuJoCo and Gymnasium's own loop."""

    envs: tuple[str, ...] = ()
    """Tasks, as in --envs HopperVelocity AntSafe. None given: all."""
    json: Path | None = None
    """File for the measurements as data."""


@dataclass(frozen=True)
class BenchAlgorithms:
    """Environment steps per CPU-second of the model-free algorithms, learning included."""

    envs: tuple[str, ...] = ()
    """Tasks, as in --envs HalfCheetahSafe AntCircle. None given: all."""
    algos: tuple[str, ...] = ()
    """Algorithms, as in --algos cpo trpo. None given: all that are model-free."""
    updates: int = 5
    """Updates of each that are measured."""
    cores: int = 2
    """CPU cores to use."""
    json: Path | None = None
    """File for the measurements as data."""


@dataclass(frozen=True)
class BenchUpdate:
    """Time of each phase of a CMBPO update, and how far it is above what the machine allows."""

    env_id: str = "HalfCheetahSafe-v0"
    """Task."""
    preset: str = "default"
    """Settings: default, paper or released (CMBPO only)."""
    updates: int = 8
    """Updates that are measured."""
    archive_rows: int | None = None
    """Real steps in the archive before the first update. None: what the preset says."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where the networks run."""
    json: Path | None = None
    """File for the measurements as data."""


BenchCommand = (
    Annotated[BenchSimulator, tyro.conf.subcommand("simulator")]
    | Annotated[BenchAlgorithms, tyro.conf.subcommand("algorithms")]
    | Annotated[BenchUpdate, tyro.conf.subcommand("update")]
)
