"""Steps per second of the simulator, beside bare `mujoco.rollout` and Gymnasium's own loop."""

from collections.abc import Callable
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
    num_envs: int = 32,
    threads: int = 2,
    steps: int = 50,
    rounds: int = 21,
) -> None:
    """Measure all tasks and print the table."""
    rows = [
        measure(
            cmbpo.tasks.get(name), num_envs=num_envs, threads=threads, steps=steps, rounds=rounds
        )
        for name in cmbpo.tasks.names()
    ]
    notes = (
        f"Steps per second of {num_envs} copies in {threads} threads, median of {rounds} rounds in"
        f" which each contender makes {steps} steps in turn. Bare rollout: mujoco.rollout of the"
        " same model, nothing observed. Gymnasium: its SyncVectorEnv of the same environment. Ant"
        " alone: bare rollout of AntSafe's ant without its walls. Overhead: time of the simulator"
        " over theirs, less 1, median over rounds."
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
    """One call of `mujoco.rollout` a step, with nothing observed, rewarded or reset."""
    num_envs = act.shape[1]
    whole = Simulator(task, num_envs, seed=0, threads=1).state()["physics"]
    qpos, qvel = whole[:, 1 : 1 + model.nq], whole[:, 1 + task.model.nq :][:, : model.nv]
    start = np.concatenate([np.zeros((num_envs, 1)), qpos, qvel], axis=1)
    control = np.stack([task.control(whole, a) for a in act])
    data = [mujoco.MjData(model) for _ in range(threads)]
    pool = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)

    def run() -> None:
        state = start
        for u in control:
            held = np.repeat(u[:, None, :], task.frame_skip, axis=1)
            path, _ = pool.rollout(model, data, state, held)
            state = path[:, -1]

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
