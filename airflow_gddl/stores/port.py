"""The few operations that looking at landing folders and keeping hints need, one meaning on disks and in S3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ListedFile:
    """What a listing says of a file.

    Attributes:
        name: relative to the folder that was listed, with `/`.
        tag: changes whenever the content may have changed.
        modified: seconds since the epoch.
    """

    name: str
    size: int
    tag: str
    modified: float


class Store(Protocol):
    """Paths are absolute, of the one sort (local or `s3://`) that the store was opened for.

    Raises (every method):
        RetriableError: `LANDING_UNREACHABLE`, `S3_UNREACHABLE`: the store did not answer.
        FatalError: `STORAGE_DENIED`: no permission for this folder; `S3_…`: none of the bucket can be reached
            (`s3_errors.CODES`).
    """

    @property
    def listing_spans_folders(self) -> bool:
        """Whether one listing of a folder with many subfolders costs about as much as one of a single subfolder."""
        ...

    def list(self, folder: str, after: str = "") -> Iterator[ListedFile]:
        """Files below a folder, those whose relative name is greater than `after`; a missing folder is empty.

        In the order of their names where `listing_spans_folders`.
        """
        ...

    def read(self, path: str) -> bytes:
        """
        Raises:
            FileNotFoundError: nothing there.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Put or replace: a reader sees the old content or the new."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Put if absent; False when it exists, with whatever content.

        An answer that got lost and was asked for again also reads False: who must know compares the content.
        """
        ...

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """The content and its tag, for `swap`.

        Raises:
            FileNotFoundError: nothing there.
        """
        ...

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        """Put, if the object still is the one with this tag (null: if there is none); False when it is not."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """What isn't there counts as deleted."""
        ...
