"""The README as an index of packages shows it: its links lead to the repository, at the tag of the version.

hatchling calls it when it makes the metadata of a wheel; in the repository the links stay relative.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!https?://|#|mailto:)(?P<target>[^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    """Sets `readme`, which `pyproject.toml` names as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        version, repository = str(metadata["version"]), str(metadata["urls"]["Homepage"])
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, f"v{version}")}


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown with the targets of its links and images below the repository, as of a tag."""

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        kind = "raw" if found["image"] else "blob" if PurePosixPath(target.partition("#")[0]).suffix else "tree"
        return f"{found['image']}[{found['text']}]({repository}/{kind}/{tag}/{target})"

    return _LINK.sub(link, text)
