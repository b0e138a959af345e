"""What is known of landed files, before and after they are ingested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract.file_names import FileFormat, FileKind

FileState = Literal["committed", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class LandedFile:
    """A data file as a listing and its name state it.

    Attributes:
        path: absolute path or URL, the file's identity in the ledger.
        order: sorts files of one kind in the order their writer made them; loads and changes are never compared.
        etag: changes whenever the file may have changed (the store's ETag; locally inode, time and size).
        modified: last modification, ISO 8601 UTC with microseconds.
    """

    path: str
    kind: FileKind
    format: FileFormat
    order: tuple[str, ...]
    size: int
    etag: str
    modified: str


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """A file of a batch plan: what was seen when the batch was planned.

    Attributes:
        fingerprint: distinguishes content: the store's ETag where it is a digest, else BLAKE2b of the bytes.
        generation: the generation its rows belong to.
        corrects: an earlier version of this change file was ingested.
    """

    path: str
    kind: FileKind
    format: FileFormat
    size: int
    etag: str
    modified: str
    fingerprint: str
    generation: int
    corrects: bool = False

    def entry(self, batch: int) -> FileEntry:
        """The ledger's row of the file as a batch took it; what was read is not in it yet."""
        return FileEntry(
            path=self.path,
            kind=self.kind,
            size=self.size,
            etag=self.etag,
            modified=self.modified,
            fingerprint=self.fingerprint,
            generation=self.generation,
            batch=batch,
        )


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A row of the ledger: one version of one file.

    Attributes:
        rows: rows read; null when the file could not be read.
        min_sequence, max_sequence: JSON form of the sequence (a list for several columns); null without changes.
        min_commit_ts, max_commit_ts: ISO 8601 UTC with microseconds; null when the file has none.
        schema: index into `TableState.schemas`; null when unreadable.
        state: `unreadable` files are tried again when they change.
        reopens: an unreadable load that would have opened a generation; the version that can be read does.
    """

    path: str
    kind: FileKind
    size: int
    etag: str
    modified: str
    fingerprint: str
    generation: int
    batch: int
    state: FileState = "committed"
    rows: int | None = None
    quarantined: int = 0
    min_sequence: str | None = None
    max_sequence: str | None = None
    min_commit_ts: str | None = None
    max_commit_ts: str | None = None
    schema: int | None = None
    reopens: bool = False
