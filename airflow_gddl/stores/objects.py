"""A file or object in a listing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class StoredObject(NamedTuple):
    """A file or object, as a listing or `Storage.stat` finds it; listings make tens of thousands of them.

    Attributes:
        folder: the folder that was listed, in the form it was asked in, without a slash at its end.
        name: relative to the folder, with `/`; bytes of a name that is not UTF-8 are escaped. Empty: the folder itself,
            which must not be read.
        size: bytes.
        etag: changes whenever the content may have changed; without quotes.
        modified: seconds since the epoch.
        refused: why it must not be read; empty: it can be read.
    """

    folder: str
    name: str
    size: int
    etag: str
    modified: float
    refused: str = ""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}" if self.name else self.folder

    @property
    def is_unfinished(self) -> bool:
        """Whether a local store writes it beside its target, which it is about to replace, or was killed before."""
        return self.name.rpartition("/")[2].startswith(".")

    @property
    def modified_at(self) -> str:
        """ISO 8601 UTC with microseconds."""
        return datetime.fromtimestamp(self.modified, UTC).isoformat(timespec="microseconds")
