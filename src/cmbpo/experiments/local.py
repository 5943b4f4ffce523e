"""Runs as processes of this machine."""

from collections.abc import Mapping, Sequence

from cmbpo.experiments import machine
from cmbpo.experiments.plan import Job
from cmbpo.experiments.progress import Progress
from cmbpo.experiments.worker import Worker


class Local:
    """So many runs at once, each on its share of the cores and on one of the GPUs."""

    def __init__(
        self, at_once: int, *, gpus: Sequence[str], env: Mapping[str, str], command: list[str]
    ):
        """Nothing runs yet; `env` is added to the environment of each run."""
        self._gpus, self._env, self._command = gpus, env, command
        self._cores = max(len(machine.cores()) // at_once, 1)
        self._free = list(range(at_once))
        self._workers: dict[int, Worker] = {}

    def room(self) -> bool:
        """Whether another run may start."""
        return bool(self._free)

    def start(self, job: Job) -> None:
        """Start a run, or go on with it."""
        place = self._free[0]
        env = dict(self._env)
        if self._gpus:
            several = len(self._gpus) > 1
            env |= machine.gpu_environment(self._gpus[place % len(self._gpus)] if several else None)
        self._workers[place] = Worker(
            job, job.folder, cores=self._cores, command=self._command, env=env
        )
        del self._free[0]

    def progress(self) -> dict[str, Progress | None]:
        """How far each run is that runs now."""
        return {w.job.name: w.progress() for w in self._workers.values()}

    def ended(self) -> list[tuple[Job, str | None]]:
        """The runs that ended since the last call, with the reason where it was before time."""
        gone = [place for place, worker in self._workers.items() if worker.ended]
        self._free += gone
        workers = [self._workers.pop(place) for place in gone]
        return [(worker.job, worker.failure()) for worker in workers]

    def interrupt(self) -> None:
        """Ask each run for a checkpoint and its end."""
        for worker in self._workers.values():
            worker.interrupt()

    def kill(self) -> None:
        """End each run at once."""
        for worker in self._workers.values():
            worker.kill()
