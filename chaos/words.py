"""Command lines, config files and calls from Python at random."""

from collections import Counter

from tests import command_lines, mutated_configs, python_calls

from chaos.command import ended, noting
from chaos.trial import Family, Trial, Verdict, require


def a_line(trial: Trial) -> Verdict:
    """One command line, up to where its work would begin."""
    words = command_lines.line(trial.random)
    return _attempted(words, ascii(words)[:300])


def a_config(trial: Trial) -> Verdict:
    """`train --config` with a file that was changed at random."""
    path = trial.place / "config.json"
    path.write_text(mutated_configs.mutated(trial.random), encoding="utf-8", errors="surrogatepass")
    return _attempted(command_lines.config_line(path), f"config {path}")


def _attempted(words: list[str], what: str) -> Verdict:
    with noting(what):
        found: list[command_lines.Outcome] = []
        end = ended(lambda: found.append(command_lines.attempt(words)))
        require(end.traceback is None, f"traceback:\n{end.traceback}")
        (outcome,) = found
        require("Traceback (most recent" not in outcome.said, f"a traceback:\n{outcome.said}")
        if outcome.began is not None or outcome.status == 0:
            return Verdict(what, "understood")
        said = outcome.said.strip()
        require(len(said.split()) > 2, f"status {outcome.status}, and all it said is {said!r}")
    return Verdict(what, "refused after parsing" if outcome.parsed else "refused in parsing")


def a_call(trial: Trial) -> Verdict:
    """A call from Python."""
    call = python_calls.call(trial.random)
    with noting(call.text[:300]):
        sentences: list[str | None] = []
        end = ended(lambda: sentences.append(python_calls.attempt(call)))
        require(end.traceback is None, f"not a sentence of ours:\n{end.traceback}")
        (sentence,) = sentences
        if sentence is None:
            return Verdict(call.text, "returned")
        require(len(sentence.split()) > 2, f"all it said is {sentence!r}")
    return Verdict(call.text, "refused")


def _half_are_parsed(outcomes: Counter[str]) -> str | None:
    total = sum(outcomes.values())
    unparsed = outcomes["refused in parsing"]
    return (
        f"only {total - unparsed} of {total} lines passed parsing" if unparsed > total / 2 else None
    )


FAMILIES = (
    Family(
        name="command lines",
        promise="understood, or refused in a sentence; at least half pass parsing",
        count=10_500,
        try_one=a_line,
        judge=_half_are_parsed,
    ),
    Family(
        name="config files",
        promise="taken, or refused in a sentence",
        count=1_100,
        try_one=a_config,
    ),
    Family(
        name="calls from Python",
        promise="return, or are refused in a sentence",
        count=550,
        try_one=a_call,
    ),
)
