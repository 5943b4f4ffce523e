"""A table as text, and as HTML that a phone can show."""

import re
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class Table:
    """A table: the first `words` columns hold words, the others numbers."""

    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    words: int = 1
    groups: list[tuple[str, int]] = field(default_factory=list)
    """Headings above the head, each with the columns it spans."""
    parted: bool = False
    """Whether the first column is shown as headings over the rows that share it."""
    stacked: bool = False
    """Whether a narrow screen shows a row's cells one below the other."""


def draw(table: Table) -> str:
    """The table in a box of its own, which scrolls sideways where the table is wider."""
    skip = int(table.parted)
    kind = " class='stack'" if table.stacked else ""
    return (
        f"<div class='scroll'><table{kind}><thead>{_groups(table, skip)}<tr>"
        f"{''.join(_cell(table, i, x, 'th') for i, x in enumerate(table.head) if i >= skip)}"
        f"</tr></thead><tbody>{_body(table, skip)}</tbody></table></div>"
    )


def _groups(table: Table, skip: int) -> str:
    if not table.groups:
        return ""
    spans = [span for _, span in table.groups]
    spans[0] -= skip
    cells = [
        f"<th colspan='{span}'>{escape(name)}</th>"
        for (name, _), span in zip(table.groups, spans, strict=True)
    ]
    return f"<tr class='groups'>{''.join(cells)}</tr>"


def _body(table: Table, skip: int) -> str:
    rows, part = [], None
    for row in table.rows:
        if skip and row[0] != part:
            part = row[0]
            span = len(table.head) - skip
            rows.append(f"<tr class='part'><th colspan='{span}'><b>{escape(part)}</b></th></tr>")
        cells = [_cell(table, i, x, "td") for i, x in enumerate(row) if i >= skip]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return "".join(rows)


def _cell(table: Table, column: int, words: str, tag: str) -> str:
    kinds = ["name"] if column == int(table.parted) else []
    label = ""
    if tag == "td" and table.stacked:
        label = f" data-label='{escape(table.head[column], quote=True)}'"
    if column >= table.words:
        kinds.append("number")
        shown = escape(re.sub(r"(?<!\w)-(?=\d)", "−", words))
        # an interval or a remark may go on a line of its own
        shown = re.sub(r" ((?:\[|\().*)$", r" <span>\1</span>", shown)
    else:
        if tag == "td" and len(words) > 40:
            kinds.append("long")
        shown = " ".join(_breakable(word) for word in words.split(" "))
    kind = f" class='{' '.join(kinds)}'" if kinds else ""
    return f"<{tag}{kind}{label}>{shown}</{tag}>"


def _breakable(word: str) -> str:
    """A path or a dotted name may break at its joints, not anywhere."""
    shown = escape(word)
    return re.sub(r"([./_])", r"\1<wbr>", shown) if len(word) > 16 else shown
