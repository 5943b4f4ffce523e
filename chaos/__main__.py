"""`python -m chaos`: make the trials, print the table, and end with 1 if anything was not clean."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from chaos import crew, families
from chaos.table import Line, markdown
from chaos.trial import Verdict


def main() -> int:
    """The exit status."""
    asked = _asked()
    # a polite end ends the crew, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [f for f in families.ALL if not asked.only or any(w in f.name for w in asked.only)]
    counts = [asked.count or max(round(asked.share * family.count), 1) for family in chosen]
    workshop = Path(asked.folder or tempfile.mkdtemp(prefix="chaos-", dir=_room())).resolve()
    workshop.mkdir(parents=True, exist_ok=True)
    os.environ["CHAOS_WORKSHOP"] = str(workshop)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    print(f"seed {asked.seed}, {sum(counts):,} trials in {workshop}", flush=True)
    began = time.monotonic()
    lines = {family.name: Line(family, count) for family, count in zip(chosen, counts, strict=True)}
    if asked.trial is not None:
        verdict = crew.make(chosen[0], asked.trial, seed=asked.seed, workshop=workshop)
        print(verdict.tried, verdict.outcome, verdict.problem or "clean", sep="\n")
        return int(not verdict.clean)
    made = crew.trials(chosen, counts, seed=asked.seed, jobs=asked.jobs, workshop=workshop)
    for family, index, verdict in made:
        line = lines[family.name]
        line.add(verdict)
        if not verdict.clean:
            _complain(line, index, verdict, asked.seed)
        if line.tried == line.wanted:
            ends = ", ".join(f"{n:,} {name}" for name, n in line.outcomes.most_common())
            seconds = time.monotonic() - began
            print(
                f"{seconds:6.0f} s  {family.name}: {line.clean:,} of {line.tried:,} clean; {ends}"
            )
            if line.complaint:
                print(f"  not clean: {line.complaint}")
            sys.stdout.flush()
    seconds = time.monotonic() - began
    whole = all(line.whole for line in lines.values())
    print(f"\n{markdown(list(lines.values()))}\n\n{seconds / 60:.1f} minutes, {asked.jobs} at once")
    if whole and not asked.folder:
        crew.remove(workshop)
    print("all clean" if whole else f"not clean; what is left is in {workshop}")
    return int(not whole)


def _room() -> str | None:
    """In memory, if there is room: the disk's part is played by the trials."""
    memory = Path("/dev/shm")
    return str(memory) if memory.exists() and shutil.disk_usage(memory).free > 2**31 else None


def _complain(line: Line, index: int, verdict: Verdict, seed: str) -> None:
    repeat = f"--only {line.family.name!r} --trial {index} --seed {seed}"
    print(f"NOT CLEAN  {line.family.name} {index} ({repeat})")
    print(f"  tried: {verdict.tried}")
    print("  " + (verdict.problem or "").strip().replace("\n", "\n  "), flush=True)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", default="1", help="another one tries other things")
    parser.add_argument("--jobs", type=int, default=2, help="trials at once")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials, as in 0.1")
    parser.add_argument("--count", type=int, help="trials of each family instead")
    parser.add_argument("--only", action="append", help="families with these words in their name")
    parser.add_argument("--trial", type=int, help="repeat this one trial of the only family")
    parser.add_argument("--folder", help="where the trials are made; kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
