"""What cannot fit is refused before it is allocated, and what is usual never."""

import resource
from typing import Any

import pytest

from cmbpo import tasks
from cmbpo.settings.overrides import changed
from cmbpo.settings.presets import preset
from cmbpo.settings.registry import ALGORITHMS, TASKS
from cmbpo.training import loop, memory

GB = 10**9


def peak() -> int:
    """The most memory that this process has ever held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy.hidden": (65536, 65536)}, "policy.hidden is (65536, 65536), which takes 51.5 GB"),
        ({"critic.hidden": (65536, 9000)}, "critic.hidden is (65536, 9000), which takes 14.2 GB"),
        ({"ensemble.hidden": (20000, 20000)}, "ensemble.hidden is (20000, 20000), which takes "),
        ({"batch_size": 10**8}, "batch_size is 100000000, which takes "),
        ({"rollout.max_horizon": 10**8}, "rollout.max_horizon is 100000000, which takes "),
    ],
)
def test_what_no_memory_is_for_is_named_before_any_is_taken(
    changes: dict[str, Any], said: str, monkeypatch
):
    monkeypatch.setattr(memory, "available", lambda: 4 * GB)
    settings = changed(preset("cmbpo", "PointCircle"), changes)
    before = peak()
    with pytest.raises(ValueError, match="allowed: what fits into the 4") as refused:
        loop.make_trainer(settings, tasks.get("PointCircle"))
    assert str(refused.value).startswith(said)
    assert peak() < before + GB // 4


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("start", ["default", "paper"])
def test_every_preset_needs_less_than_a_gigabyte_or_four_where_all_is_kept(
    algo: str, task: str, start: str
):
    """A million transitions of the humanoid, with 376 numbers each, are 3 GB."""
    most = 4 * GB if ALGORITHMS[algo].data == "replay" else GB
    assert sum(memory.least(preset(algo, task, start), tasks.get(task)).values()) < most


def test_the_replay_buffer_is_named_where_it_is_too_large(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 4 * GB)
    settings = changed(preset("sac-lag", "PointCircle"), {"replay.size": 10**8})
    with pytest.raises(
        ValueError, match=r"replay.size is 100000000, which takes .*fits into the 4"
    ):
        loop.make_trainer(settings, tasks.get("PointCircle"))


def test_there_is_some_memory_here():
    assert GB // 4 < memory.available() < 10**15
