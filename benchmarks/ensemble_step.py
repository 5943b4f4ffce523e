"""One gradient step of the ensemble beside PyTorch's `baddbmm` version of the same step.

    python benchmarks/ensemble_step.py --torch /path/to/a/python/that/has/torch

Both run in processes of their own and take turns, so that whatever else the machine does meets
them alike; the best turns are compared.
"""

import argparse
import math
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise

MEMBERS, BATCH, WIDTHS = 7, 2048, (26, 512, 512, 42)
STEPS = 10


def jax_turn():
    """A function that makes `STEPS` steps with the package's own code."""
    import jax
    import jax.numpy as jnp

    from cmbpo.model.ensemble import Ensemble, loss
    from cmbpo.model.ensemble_fit import adam_step, for_each_member, optimiser

    key = jax.random.key(0)
    n_target = WIDTHS[-1] // 2
    ensemble = Ensemble(
        n_target - 1,
        WIDTHS[0] - n_target + 1,
        hidden=WIDTHS[1:-1],
        members=MEMBERS,
        elites=MEMBERS,
        key=key,
    )
    x = jax.random.normal(key, (MEMBERS, BATCH, WIDTHS[0]))
    y = jax.random.normal(key, (MEMBERS, BATCH, n_target))

    def train(net, opt_state, x, y):
        def step(_, carry):
            net, opt_state, _ = carry
            of_rows = partial(loss, x=x, y=y, weight_decay=1e-6)
            return adam_step(of_rows, net, opt_state, learning_rate=1e-3)

        return jax.lax.fori_loop(0, STEPS, step, (net, opt_state, jnp.zeros(())))

    turn = jax.jit(for_each_member(train), donate_argnums=(0, 1))
    state = [ensemble.members, optimiser(ensemble.members)]

    def run():
        *state[:], _ = jax.block_until_ready(turn(*state, x, y))

    return run


def torch_turn():
    """A function that makes `STEPS` steps with PyTorch."""
    import torch  # pyright: ignore[reportMissingImports]

    weights = [
        (torch.randn(MEMBERS, n_in, n_out) / (2.0 * math.sqrt(n_in))).requires_grad_()
        for n_in, n_out in pairwise(WIDTHS)
    ]
    biases = [torch.zeros(MEMBERS, 1, n_out, requires_grad=True) for n_out in WIDTHS[1:]]
    shares = (0.25, 0.5, 1.0)
    adam = torch.optim.Adam([*weights, *biases], lr=1e-3)
    x = torch.randn(MEMBERS, BATCH, WIDTHS[0])
    y = torch.randn(MEMBERS, BATCH, WIDTHS[-1] // 2)

    def step():
        adam.zero_grad(set_to_none=True)
        h = x
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            h = torch.nn.functional.silu(torch.baddbmm(bias, h, weight))
        mean, raw = torch.baddbmm(biases[-1], h, weights[-1]).chunk(2, dim=-1)
        squared_error = (mean - y) ** 2
        mse = squared_error.mean(dim=(1, 2))
        variance_error = ((raw.exp() - squared_error.detach()) ** 2).mean(dim=(1, 2))
        ratio = (mse / variance_error).detach()
        losses = mse + 0.05 * (ratio * variance_error + (raw**2).mean(dim=(1, 2)))
        penalty = sum(s * (w**2).sum() for s, w in zip(shares, weights, strict=True))
        (losses.sum() + 0.5e-6 * penalty).backward()
        adam.step()

    def run():
        for _ in range(STEPS):
            step()

    return run


def serve(run):
    """Answer every line on standard input with wall and processor milliseconds of one step."""
    run()
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        run()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(1e3 * wall / STEPS, 1e3 * processor / STEPS, flush=True)


class Worker:
    """A process that measures one of the two when asked."""

    def __init__(self, name: str, python: str):
        self.process = subprocess.Popen(
            [python, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def measure(self) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(x) for x in self._answer().split()]

    def end(self):
        self.process.communicate()


def compare(pythons: dict[str, str], rounds: int):
    """Let both take turns and print the best of each."""
    workers = {name: Worker(name, python) for name, python in pythons.items()}
    best = dict.fromkeys(workers, (math.inf, math.inf))
    for _ in range(rounds):
        for name, worker in workers.items():
            wall, processor = worker.measure()
            best[name] = min(best[name][0], wall), min(best[name][1], processor)
            # Idle threads of the one just measured may spin for a while.
            time.sleep(0.3)
    for worker in workers.values():
        worker.end()
    for name, (wall, processor) in best.items():
        print(f"{name:6} {wall:8.1f} ms wall {processor:8.1f} ms processor")
    if "torch" in best:
        print(f"jax / torch: {best['jax'][0] / best['torch'][0]:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a Python interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", choices=["jax", "torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve({"jax": jax_turn, "torch": torch_turn}[options.serve]())
    else:
        both = {"jax": sys.executable, "torch": options.torch}
        compare({name: python for name, python in both.items() if python}, options.rounds)
