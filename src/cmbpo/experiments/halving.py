"""Successive halving: at a quarter and at half of the steps, the worse half of the arms stops.

A run is stopped and goes on from its checkpoint as any other, so that an arm that is not stopped
learns what it would have learned without.
"""

import math
from collections.abc import Sequence

from cmbpo.experiments import standing
from cmbpo.experiments.plan import Job

EARLIEST = 2
"""A rung is at least so many times the steps before the first update: sooner nothing is learned."""


def rungs(jobs: Sequence[Job]) -> list[int]:
    """Halvings of all the steps, from the earliest rung on: 2 for a quarter, then 1 for a half."""
    tasks: dict[str, list[Job]] = {}
    for job in jobs:
        tasks.setdefault(job.settings.env_id, []).append(job)
    for task, here in tasks.items():
        totals = sorted({job.settings.total_steps for job in here})
        if len(totals) > 1:
            raise ValueError(
                f"--stop-losers compares runs at the same steps, and those on {task} have"
                f" {' and '.join(f'{total:,}' for total in totals)}; give --total-steps"
            )
    most = max(len({job.family for job in here}) for here in tasks.values())
    if most < 2:
        raise ValueError("--stop-losers is given with one arm; allowed: two or more")
    halvings = range(most.bit_length() - 1, 0, -1)
    found = [k for k in halvings if all(at(job, k) >= _earliest(job) for job in jobs)]
    if not found:
        needed = 2 * max(map(_earliest, jobs))
        raise ValueError(
            f"--stop-losers with total_steps {jobs[0].settings.total_steps:,}; allowed here: from"
            f" {needed:,}, {2 * EARLIEST} times the steps before the first update"
        )
    return found


def _earliest(job: Job) -> int:
    return EARLIEST * job.settings.initial_steps


def at(job: Job, halvings: int) -> int:
    """The steps of a run at a rung; 0 at the end, which is none."""
    return job.settings.total_steps // 2**halvings if halvings else 0


def losers(jobs: Sequence[Job], halvings: int) -> dict[str, str]:
    """The families that stop at a rung, and why: on each task the worse half, rounded down.

    None does where the return of an arm is not known yet, because no episode has ended.
    """
    lost: dict[str, str] = {}
    for task in dict.fromkeys(job.settings.env_id for job in jobs):
        here = [job for job in jobs if job.settings.env_id == task]
        steps = at(here[0], halvings)
        ranked = standing.arms(here, steps)
        if any(arm.seeds and math.isnan(arm.ret) for arm in ranked):
            continue
        kept = len(ranked) - len(ranked) // 2
        for place, arm in enumerate(ranked[kept:], start=kept + 1):
            taken = f"{arm.steps or steps:,} of {here[0].settings.total_steps:,} steps"
            lost[arm.family] = f"stopped at {taken}, number {place} of {len(ranked)} there"
    return lost
