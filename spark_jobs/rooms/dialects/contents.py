"""What a file of an object store is known by, where its tag may say nothing of its bytes.

S3's tag of an object is the MD5 of its bytes, unless it was uploaded in parts or is encrypted with a key of KMS or of
the client: then a copy of the same bytes has another one (docs/decisions/delta-and-ledger.md).
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from typing import BinaryIO

from airflow_gddl.contract.file_names import FileFormat
from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import LAST_BYTES, READ_AHEAD
from spark_jobs.plan.planned_batch import FileEntry, LandedFile, PlannedFile
from spark_jobs.rooms.dialects.protocol import InputOpener

_TAG, _MARK, _BYTES = "md5:", "+", "blake2b:"
_TAIL = 8
"""Bytes after the footer of a parquet file: its length and `PAR1`."""


def content_of(stream: BinaryIO, file: PlannedFile) -> str:
    """What is known of the bytes of a file while it is read: no request, but one for the footer of a large file.

    Returns:
        a fingerprint; empty where that of its plan is already one of all of its bytes.
    """
    tag = file.fingerprint
    if not tag.startswith(_TAG):
        return ""
    seen = _seen(stream, file.size, file.format)
    if not seen.startswith(_BYTES):
        return f"{tag}{_MARK}{seen}"
    stream.seek(0)
    md5 = hashlib.md5(stream.read(), usedforsecurity=False)
    return "" if md5.hexdigest() == tag.removeprefix(_TAG) else seen


@dataclass(frozen=True)
class ReadOnce:
    """Reads each file whole when it is opened first, and keeps what it has read."""

    storage: InputOpener
    contents: dict[str, bytes] = field(default_factory=dict)

    def open_input(self, path: str) -> BinaryIO:
        if path not in self.contents:
            with self.storage.open_input(path) as stream:
                self.contents[path] = stream.read()
        return io.BytesIO(self.contents[path])


def has_content(storage: Storage, file: LandedFile, known: FileEntry) -> bool | None:
    """Whether a file with another tag than its ledger row has the bytes that the row is of; None: nothing tells.

    Raises:
        FileNotFoundError: it has vanished.
    """
    tag, _, seen = known.fingerprint.partition(_MARK)
    if not tag or file.size != known.size:
        return False
    if not tag.startswith(_TAG):
        return tag in storage.fingerprints_of_bytes(file.path)
    if seen:
        with storage.open_input(file.path) as stream:
            if _seen(stream, file.size, file.format) != seen:
                return False
    if "-" in tag:  # of parts
        return None
    if tag in storage.fingerprints_of_bytes(file.path):
        return True
    return None if seen else False  # what was seen whole has a tag of its bytes, or a fingerprint without one


def _seen(stream: BinaryIO, size: int, form: FileFormat) -> str:
    """All of a small file; of a larger one the footer, which has the range and size of each column, or its start."""
    stream.seek(0)
    if size <= READ_AHEAD:
        return f"{_BYTES}{_digest(stream.read())}"
    start = stream.read(READ_AHEAD)
    if form != "parquet" or start[:4] != b"PAR1":
        return f"start:{_digest(start)}"
    stream.seek(-LAST_BYTES, io.SEEK_END)
    end = stream.read()
    length = int.from_bytes(end[-_TAIL:-4], "little") + _TAIL
    if len(end) < length < size:
        stream.seek(-length, io.SEEK_END)
        end = stream.read()
    return f"footer:{_digest(end[-length:])}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()
