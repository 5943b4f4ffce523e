"""One copy of the user's environment in a process of its own, which may die or hang alone."""

import multiprocessing
import os
import pickle
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from jaxtyping import Float

from cmbpo.envs.adapter import EnvAdapter, adapted
from cmbpo.envs.alarm import TICKS
from cmbpo.envs.copies import inline
from cmbpo.envs.failures import EnvironmentFailure, Hung, place, words
from cmbpo.interruption import HANGUP
from cmbpo.settings.schema import EnvSettings
from cmbpo.tasks.simulated import unsaid

DONE, FAILED, HUNG = b"d", b"f", b"h"
RESET, STEP, CLOSE = b"r", b"s", b"c"
HINTS = {"SIGKILL": " (is memory short?)", "SIGSEGV": " (a crash in compiled code)"}


class Lost(Exception):  # noqa: N818
    """A copy's process died or hung: which way, in words that follow its name."""


class ProcessCopy:
    """The copy of this number; all of them work at once between questions and answers."""

    def __init__(self, made: bytes, number: int, settings: EnvSettings):
        """Start the process that makes it."""
        self._timeout = settings.timeout
        # JAX has threads, which a fork would lose in the middle of what they do.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["cmbpo.envs.copies.processes"])
        self._pipe, there = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(there, made, number, settings.cost_key, settings.timeout),
            name=f"copy {number}",
            daemon=True,
        )
        self._process.start()
        there.close()
        # The end of the process too: a process that it started may hold the pipe open.
        self._ready = select.poll()
        for source in (self._pipe.fileno(), self._process.sentinel):
            self._ready.register(source, select.POLLIN)

    def reset(self, seed: int) -> None:
        """Ask it to start an episode."""
        self._ask(RESET + seed.to_bytes(8, "little"))

    def step(self, act: Float[np.ndarray, " act"]) -> None:
        """Ask it to advance by one step."""
        self._ask(STEP + act.tobytes())

    def close(self) -> None:
        """Ask it to close its environment and to end."""
        self._ask(CLOSE)

    def _ask(self, question: bytes) -> None:
        # Where nobody listens any more, the answer that does not come will tell.
        with suppress(OSError):
            self._pipe.send_bytes(question)

    def answer(self) -> Float[np.ndarray, " numbers"]:
        """What came of the last question; `Lost` if nothing will."""
        if not self._comes():
            self.end()
            raise Lost(f"has not answered within {self._timeout:g} s (--env.timeout).")
        try:
            reply = self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise Lost(self._death()) from None
        kind, said = reply[:1], reply[1:]
        if kind == DONE:
            return np.frombuffer(said)
        self.end(patience=1.0)
        if kind == HUNG:
            raise Lost(f"hangs: {said.decode()}")
        raise EnvironmentFailure(said.decode())

    def _comes(self) -> bool:
        """Wait for an answer or the end, a little longer than the process waits for itself."""
        if self._timeout is None:
            return bool(self._ready.poll())
        tick = (1.2 * self._timeout + 1.0) / TICKS
        # Counted: while all processes are stopped, as with Ctrl-Z, no time passes for them.
        return any(self._ready.poll(1000.0 * tick) for _ in range(TICKS))

    def _death(self) -> str:
        self._process.join(1.0)
        status = self._process.exitcode
        self.end()
        if status is None:
            return "closed its pipe, and was ended."
        if status >= 0:
            return f"ended with status {status}."
        names = {number.value: number.name for number in signal.Signals}
        name = names.get(-status, f"signal {-status}")
        return f"was ended by {name}{HINTS.get(name, '')}."

    def end(self, patience: float = 0.0) -> None:
        """Leave no process behind, whatever it is at."""
        self._process.join(patience)
        self._process.kill()
        self._process.join()
        self._pipe.close()


def sendable(make: Callable[..., gymnasium.Env]) -> bytes:
    """What makes copies, as it is sent to their processes."""
    try:
        return cloudpickle.dumps(make)
    except Exception as error:  # whatever the environment holds decides what is raised
        raise EnvironmentFailure(
            f"what makes the environment cannot be sent to another process ({words(error)});"
            " allowed then: --env.copies inline"
        ) from error


def _serve(
    pipe: Connection, made: bytes, number: int, cost_key: tuple[str, ...], timeout: float | None
) -> None:
    """What runs in the process: answer after answer, until it is told to close or fails."""
    # An interruption reaches every process; what to do about it is for the main one to say.
    for ignored in filter(None, (signal.SIGINT, HANGUP)):
        signal.signal(ignored, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with unsaid():
            env = adapted(_unpacked(made), cost_key, copy=number, timeout=timeout)
        reply = inline.width(env)
        while True:
            pipe.send_bytes(DONE + reply.tobytes())
            question = pipe.recv_bytes()
            if question[:1] == CLOSE:
                break
            reply = _answer(env, question)
        inline.close(env)
    except Hung as hung:
        _tell(pipe, HUNG + hung.what.encode())
    except EnvironmentFailure as failure:
        _tell(pipe, FAILED + str(failure).encode())
    except KeyboardInterrupt as error:
        # No signal raises it here: it is the environment's own.
        _tell(pipe, FAILED + f"Copy {number} raised {words(error)},{place(error)}.".encode())
    except (EOFError, OSError):
        return


def _tell(pipe: Connection, reply: bytes) -> None:
    with suppress(OSError):
        pipe.send_bytes(reply)


def _unpacked(made: bytes) -> Callable[..., gymnasium.Env]:
    def make(**options: Any) -> gymnasium.Env:
        return pickle.loads(made)(**options)

    return make


def _answer(env: EnvAdapter, question: bytes) -> Float[np.ndarray, " numbers"]:
    if question[:1] == RESET:
        return inline.begin(env, int.from_bytes(question[1:], "little"))
    return inline.advance(env, np.frombuffer(question[1:]))


def _end_with_parent() -> None:
    """End this process when the one that asks is gone, even in the middle of a step."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
