"""The README as the package index shows it, where the files of the repository are not."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

HERE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+://)([^)\s]+)\)")
"""A link, or a picture, that leads to a file of the repository."""


def standing_alone(readme: str, source: str | None, version: str) -> str:
    """The text with links to the repository at `source`; without one, only their words."""

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if source is not None:
            kind = "raw" if picture else "blob"
            return f"{picture}[{words}]({source}/{kind}/v{version}/{path})"
        return "" if picture else words

    return HERE.sub(link, readme)


class ReadmeHook(MetadataHookInterface):
    """What hatchling calls for the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the readme."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        text = standing_alone(text, source, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
