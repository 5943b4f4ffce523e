"""The table of what was tried and what was clean."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from chaos.trial import Family, Verdict


@dataclass
class Line:
    """What became of a family so far."""

    family: Family
    wanted: int
    outcomes: Counter[str] = field(default_factory=Counter)
    tried: int = 0
    clean: int = 0

    def add(self, verdict: Verdict) -> None:
        """One more trial."""
        self.tried += 1
        self.clean += verdict.clean
        self.outcomes[verdict.outcome] += 1

    @property
    def complaint(self) -> str | None:
        """What is wrong with all of them taken together, if anything."""
        return self.family.judge(self.outcomes) if self.tried == self.wanted else None

    @property
    def whole(self) -> bool:
        """Whether all was tried, and all was clean."""
        return self.tried == self.clean == self.wanted and self.complaint is None


def markdown(lines: Sequence[Line]) -> str:
    """The table as it stands in docs/reliability.md."""
    rows = ["| what | tried | clean | how they ended |", "|---|---:|---:|---|"]
    for line in lines:
        ends = ", ".join(f"{count:,} {name}" for name, count in line.outcomes.most_common())
        rows.append(f"| {line.family.name} | {line.tried:,} | {line.clean:,} | {ends} |")
    return "\n".join(rows)
