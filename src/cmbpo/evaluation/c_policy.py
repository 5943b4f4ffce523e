"""A policy as one header of C: its weights and a function, for a computer without a system."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cmbpo.runs.errors import RunError

TITLE = "/* A policy that cmbpo export wrote: this header and the C library are all that it takes."

HEADER = """{title}
 *
{facts}
 */
#ifndef {NAME}_H
#define {NAME}_H

#include <math.h>

#define {NAME}_OBS {n_obs}
#define {NAME}_ACT {n_act}

{arrays}

static inline void {name}_layer(
    const float *weight, const float *bias, int n_in, int n_out, const float *x, float *y)
{{
    for (int i = 0; i < n_out; i++) {{
        y[i] = bias[i];
        for (int j = 0; j < n_in; j++) y[i] += weight[i * n_in + j] * x[j];
    }}
}}

/* The deterministic action, in the robot's units and within its bounds: 0. Where a number is not
 * finite: 1, and the action stays as it was. */
static inline int {name}_act(const float obs[{NAME}_OBS], float action[{NAME}_ACT])
{{
    float a[{widest}], b[{widest}];
    for (int i = 0; i < {NAME}_OBS; i++) {{
        float z = (obs[i] - {name}_mean[i]) / {name}_std[i];
        if (!isfinite(z)) return 1;
        a[i] = {seen};
    }}
{layers}
    for (int i = 0; i < {NAME}_ACT; i++)
        if (!isfinite({last}[i])) return 1;
    for (int i = 0; i < {NAME}_ACT; i++) {{
        float low = {name}_low[i], high = {name}_high[i];
        float share = 0.5f * ({bounded} + 1.0f);
        action[i] = fminf(fmaxf(low + share * (high - low), low), high);
    }}
    return 0;
}}

#endif
"""


def require_name(path: Path) -> None:
    """Refuse a file whose name cannot begin the names in it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", path.stem):
        raise RunError(
            f"the header is {path.name!r}; allowed: letters, digits and _ before .h, as in"
            " policy.h, since its functions are named after it"
        )


def header(name: str, parts: Mapping[str, np.ndarray], facts: Mapping[str, str]) -> bytes:
    """The file, in C99: `<name>_act` does what `numpy_policy` does, with no memory but the stack.

    What is known of the policy is a comment, whatever characters it holds.
    """
    squashed = bool(parts["squashed"])
    count = int(parts["layers"])
    weights = [parts[f"weight_{i}"] for i in range(count)]
    between = "fmaxf({0}[i], 0.0f)" if squashed else "tanhf({0}[i])"
    lines = []
    for i, weight in enumerate(weights):
        (n_out, n_in), (x, y) = weight.shape, "ab" if i % 2 == 0 else "ba"
        if i:
            lines.append(f"for (int i = 0; i < {n_in}; i++) {x}[i] = {between.format(x)};")
        lines.append(
            f"{name}_layer({name}_weight_{i}, {name}_bias_{i}, {n_in}, {n_out}, {x}, {y});"
        )
    last = "ab"[count % 2]
    kept = ("mean", "std", "low", "high")
    kept += tuple(f"{kind}_{i}" for i in range(count) for kind in ("weight", "bias"))
    text = HEADER.format(
        title=TITLE,
        facts="\n".join(f" * {_comment(n)}: {_comment(fact)}" for n, fact in facts.items()),
        name=name,
        NAME=name.upper(),
        n_obs=len(parts["mean"]),
        n_act=len(parts["low"]),
        arrays="\n".join(_array(f"{name}_{part}", parts[part]) for part in kept),
        widest=max(size for weight in weights for size in weight.shape),
        seen="copysignf(log1pf(fabsf(z)), z)" if parts["compresses"] else "z",
        layers="\n".join(f"    {line}" for line in lines),
        last=last,
        bounded=f"tanhf({last}[i])" if squashed else f"fminf(fmaxf({last}[i], -1.0f), 1.0f)",
    )
    return text.encode()


def is_ours(path: Path) -> bool:
    """Whether a file is a header that `header` made."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(TITLE)) == TITLE.encode()


def _comment(text: str) -> str:
    """In ASCII, on one line, and unable to end the comment or to begin one."""
    return re.sub(r"\*/|/\*", "?", ascii(text)[1:-1])


def _array(name: str, values: np.ndarray) -> str:
    # nine digits tell every number of single precision from its neighbours
    numbers = [f"{x:.8e}f" for x in values.ravel()]
    rows = [", ".join(numbers[i : i + 6]) for i in range(0, len(numbers), 6)]
    return f"static const float {name}[{values.size}] = {{\n    " + ",\n    ".join(rows) + "\n};"
