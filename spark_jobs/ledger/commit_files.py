"""Files of a ledger: commits, segments and small documents, written and read with their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import LEDGER_DAMAGED, LEDGER_NEWER
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores import Storage, read_if_there
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, TableState

T = TypeVar("T")


_DEFAULTS = {f.name: f.default for f in fields(FileEntry)}


_NEEDED = {name for name, default in _DEFAULTS.items() if default is MISSING}


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A segment of ledger rows that only full listings read. `name` is relative to the ledger's root."""

    name: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class LedgerSnapshot:
    """Where the rows of all batches up to `number` are.

    Attributes:
        recent: name of the segment read at each run; None: empty.
        recent_rows: rows in it.
        archives: older segments, oldest first; a later row of a path replaces an earlier one, `recent` all of them.
        archived_before: change files of an earlier time (`file_times.FileTimes`) may be in an archive; None:
            none is.
        archived_by: the rule of these times.
    """

    number: int = 0
    recent: str | None = None
    recent_rows: int = 0
    archives: tuple[Archive, ...] = ()
    archived_before: str | None = None
    archived_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line of a commit: all that an idle run needs."""

    number: int
    state: TableState
    snapshot: LedgerSnapshot


@dataclass(frozen=True, kw_only=True)
class CommitFile:
    """A commit as stored; each line of `body` is parsed on first use."""

    path: str
    head: Head
    body: tuple[str, str, str]

    @cached_property
    def commit(self) -> BatchCommit:
        with damaged_is_fatal(self.path):
            plan = codec.from_json(BatchPlan, self.body[0])
        return BatchCommit(number=self.head.number, plan=plan, files=self.files, state=self.head.state)

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        return decode_files(self.body[1], self.path)

    @cached_property
    def tail(self) -> tuple[FileEntry, ...]:
        """Rows of the commits after the snapshot and before this one."""
        return decode_files(self.body[2], self.path)


@dataclass(frozen=True, kw_only=True)
class ListedVersion:
    """Findings between two batches.

    Attributes:
        listed_in_full_at: ISO 8601 UTC; null before any.
        touched: path to [fingerprint, etag], for files that got another etag and kept the content of their row.
        dismissed: path to fingerprint of files that could not be read and that a user no longer expects.
        rows: of the replica, where an erasure has removed some since the batch of number `rows_at`.
    """

    listed_in_full_at: str | None = None
    touched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dismissed: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    rows_at: int = 0


def encode_commit(path: str, head: Head, commit: BatchCommit, tail: Sequence[FileEntry]) -> tuple[bytes, CommitFile]:
    """A commit as it is to be stored at `path`: its bytes, and as `decode_commit` reads them."""
    body = codec.to_document(commit.plan), encode_files(commit.files), encode_files(tail)
    return seal([codec.to_document(head), *body]), CommitFile(path=path, head=head, body=body)


def decode_commit(path: str, data: bytes) -> CommitFile:
    """
    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    head, plan, files, tail = unseal(path, data, lines=4)
    with damaged_is_fatal(path):
        return CommitFile(path=path, head=codec.from_json(Head, head), body=(plan, files, tail))


def seal(lines: Sequence[str]) -> bytes:
    """A document whose first line is the digest of the others."""
    text = to_bytes("\n".join(lines))
    return f'{{"blake2b":"{digest(text)}"}}\n'.encode() + text


def unseal(path: str, data: bytes, *, lines: int) -> list[str]:
    """The lines given to `seal`.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    first, _, text = data.partition(b"\n")
    line_count = text.count(b"\n") + 1
    if first != f'{{"blake2b":"{digest(text)}"}}'.encode() or line_count != lines:
        raise damaged(path, "the digest in its first line doesn't match its content")
    return text.decode(errors="surrogateescape").split("\n")


def segment_name(folder: str, number: int, text: bytes) -> str:
    """Of a snapshot's or archive's file: two writers never overwrite each other's, and damage shows."""
    return f"{folder}/{number:020d}-{digest(text)}.json"


def decode_segment(path: str, data: bytes) -> tuple[FileEntry, ...]:
    """
    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    if not path.endswith(f"-{digest(data)}.json"):
        raise damaged(path, "the digest in its name doesn't match its content")
    return decode_files(data.decode(errors="surrogateescape"), path)


def encode_files(files: Iterable[FileEntry]) -> str:
    """Not through the codec, for speed: a table can have 100,000 rows, all flat.

    As there, columns that have their defaults in all rows are left out.
    """
    listed = list(files)
    given = [name for name in _DEFAULTS if name in _NEEDED or any(getattr(f, name) != _DEFAULTS[name] for f in listed)]
    rows = list(map(attrgetter(*given), listed))
    return json.dumps({"columns": given, "rows": rows}, ensure_ascii=False, separators=(",", ":"))


def decode_files(text: str, path: str) -> tuple[FileEntry, ...]:
    """The inverse; the document's digest guarantees the types."""
    with damaged_is_fatal(path):
        data = json.loads(text)
        columns = data["columns"]
        if unknown := set(columns) - set(_DEFAULTS):
            raise _newer(path, f"its files have {min(unknown)!r}")
        if not set(columns) >= _NEEDED:
            raise ValueError(f"its columns are {columns}")
        return tuple(_entry(columns, row) for row in data["rows"])


def _entry(columns: Sequence[str], row: Sequence[Any]) -> FileEntry:
    """Bypasses the constructor, which in a frozen class takes three times as long as the rest of reading a row."""
    entry = object.__new__(FileEntry)
    entry.__dict__.update(zip(columns, row, strict=True))
    return entry


def to_bytes(text: str) -> bytes:
    """UTF-8; invalid file names are kept by surrogate escapes."""
    return text.encode(errors="surrogateescape")


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_small(storage: Storage, path: str, cls: type[T], remedy: str) -> T | None:
    """A document of one object, without a digest; null when there is none.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    data = read_if_there(storage, path)
    try:
        return None if data is None else codec.from_json(cls, data.decode())
    except codec.NewerDocumentError as error:
        raise _newer(path, error.what) from error
    except (FatalError, ValueError) as error:
        raise FatalError(LEDGER_DAMAGED, f"unreadable: {error}", where=path, remedy=remedy) from error


def damaged(path: str, what: str) -> FatalError:
    folder = path.rsplit("/", 2)[0]  # of commits or segments, each kind in a folder of its own
    table = ".".join(folder.rpartition("/ledger/")[2].split("/")[:2])
    remedy = f"restore the file from a version or backup; or delete {folder}, then `gddl rebuild --table {table}`, "
    remedy += "which reads the landed files again and keeps what the change table has"
    return FatalError(LEDGER_DAMAGED, what, where=path, remedy=remedy)


def _newer(path: str, what: str) -> FatalError:
    remedy = "install that version here, too; an earlier one may read the ledger wrongly"
    return FatalError(LEDGER_NEWER, f"a newer airflow-gddl wrote it: {what}", where=path, remedy=remedy)


@contextmanager
def damaged_is_fatal(path: str) -> Iterator[None]:
    """Translates errors of parsing `path` to `LEDGER_DAMAGED`."""
    try:
        yield
    except codec.NewerDocumentError as error:
        raise _newer(path, error.what) from error
    except (FatalError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, FatalError) and error.code == LEDGER_NEWER:
            raise
        raise damaged(path, f"unreadable: {error}") from error
