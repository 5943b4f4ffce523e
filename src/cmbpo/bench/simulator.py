"""Steps per second of the simulator, beside bare `mujoco.rollout` and Gymnasium's own loop."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import gymnasium
import mujoco
import mujoco.rollout
import numpy as np

import cmbpo.tasks
from cmbpo.bench import table
from cmbpo.envs.simulator import Simulator
from cmbpo.tasks.ant_safe import AntSafe
from cmbpo.tasks.simulated import SimulatedTask


def main(
    json: Path | None = None,
    *,
    envs: Sequence[str] = (),
    num_envs: int = 32,
    threads: int = 2,
    steps: int = 50,
    rounds: int = 21,
) -> None:
    """Measure tasks, all unless some are named, and print the table."""
    tasks = [cmbpo.tasks.get(name) for name in envs or cmbpo.tasks.names()]
    rows = [
        measure(task, num_envs=num_envs, threads=threads, steps=steps, rounds=rounds)
        for task in tasks
    ]
    notes = (
        f"Steps per second of {num_envs} copies in {threads} threads, median of {rounds} rounds in"
        f" which each contender makes {steps} steps in turn. Bare rollout: mujoco.rollout of the"
        " same model from the same states, nothing observed. Gymnasium: its SyncVectorEnv of the"
        " same environment. Ant alone: bare rollout of AntSafe's ant without its walls. Overhead:"
        " time of the simulator over theirs, less 1, median over rounds."
    )
    table.show("Simulator", rows, notes=notes, json_file=json)


def measure(
    task: SimulatedTask, *, num_envs: int, threads: int, steps: int, rounds: int
) -> table.Row:
    """Rates of all contenders on one task, with the same actions from the same starts."""
    random = np.random.default_rng(0)
    act = random.uniform(-1.0, 1.0, (steps, num_envs, len(task.act_names)))
    contenders = {
        "simulator": _simulator(task, act, threads),
        "bare rollout": _rollout(task, task.model, act, threads),
        "gymnasium": _vector_env(task, act),
    }
    if isinstance(task, AntSafe):
        contenders["ant alone"] = _rollout(task, task.ant_alone, act, threads)
    seconds = table.interleaved(contenders, rounds=rounds)
    row: dict[str, str | int | float | None] = {"task": task.name}
    row |= {name: num_envs * steps / median(times) for name, times in seconds.items()}

    def overhead(name: str) -> float | None:
        if name not in seconds:
            return None
        pairs = zip(seconds["simulator"], seconds[name], strict=True)
        return 100.0 * (median(ours / bare for ours, bare in pairs) - 1.0)

    row["ant alone"] = row.pop("ant alone", None)
    row["overhead %"] = overhead("bare rollout")
    row["over ant %"] = overhead("ant alone")
    return row


def _simulator(task: SimulatedTask, act: np.ndarray, threads: int) -> Callable[[], None]:
    simulator = Simulator(task, act.shape[1], seed=0, threads=threads)
    start = simulator.state()

    def run() -> None:
        simulator.restore(start)
        for a in act:
            simulator.step(a)

    return run


def _rollout(
    task: SimulatedTask, model: mujoco.MjModel, act: np.ndarray, threads: int
) -> Callable[[], None]:
    """One call of `mujoco.rollout` a step, with nothing observed, rewarded or reset.

    Each from the states that the simulator was in: a robot that fell is not left in its contacts.
    """
    num_envs, nq = act.shape[1], task.model.nq
    simulator = Simulator(task, num_envs, seed=0, threads=1)
    given = []
    for a in act:
        row = simulator.state()["physics"]
        qpos, qvel = row[:, 1 : 1 + model.nq], row[:, 1 + nq : 1 + nq + model.nv]
        control = np.repeat(task.control(row, a)[:, None, :], task.frame_skip, axis=1)
        given.append((np.concatenate([row[:, :1], qpos, qvel], axis=1), control))
        simulator.step(a)
    data = [mujoco.MjData(model) for _ in range(threads)]
    pool = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)

    def run() -> None:
        for state, control in given:
            pool.rollout(model, data, state, control)

    return run


def _vector_env(task: SimulatedTask, act: np.ndarray) -> Callable[[], None]:
    env = gymnasium.make_vec(task.env_id, num_envs=act.shape[1], vectorization_mode="sync")

    def run() -> None:
        env.reset(seed=0)
        for a in act:
            env.step(a)

    return run


if __name__ == "__main__":
    main()
