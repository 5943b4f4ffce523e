"""Put the generated tables of results/ where documents quote them: `make results` does both."""

import re
from pathlib import Path

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
QUOTES = {
    "claims": ("claims.md", "results.md"),
    "summary": ("summary.md", "results.md"),
    "policies": ("policies.md", "results.md"),
    "table": ("benchmark.md", "benchmark.md"),
}
"""By the name in `<!-- name -->` and `<!-- end of name -->`: which table, in which document."""


def main() -> None:
    """Replace every quoted table by the newest."""
    for name, (table, document) in QUOTES.items():
        path = DOCS / document
        text = path.read_text(encoding="utf-8")
        made = (RESULTS / table).read_text(encoding="utf-8").rstrip("\n")
        between = re.compile(rf"(<!-- {name} -->\n).*?\n?(<!-- end of {name} -->)", re.DOTALL)
        text, times = between.subn(lambda found, made=made: f"{found[1]}{made}\n{found[2]}", text)
        if times != 1:
            raise SystemExit(f"{path} quotes {name} {times} times; expected: once")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
