"""What was ingested, per table: commits and snapshots in a folder of the lake, and how they are written.

Beside them: the newest load of a table from its source database, what is done and what is left (`gddl load`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeVar

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import SHARDS, join
from airflow_gddl.stores import Storage, read_if_there
from spark_jobs.plan.discover import BY_NAME, FileAging, FileTimes
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, TableState
from spark_jobs.plan.sharding import beside_others

FOLDER = "initial-load"
"""In the table's state folder: claims of loads, and the document."""
_DOCUMENT = "progress.json"


@dataclass(frozen=True, kw_only=True)
class LoadedRange:
    """A range of keys, which is one file.

    Attributes:
        after, to: keys as `_key_text` writes them: exclusive and inclusive; null: open.
        rows: that the file has; null: it is not written yet.
    """

    after: str | None
    to: str | None
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoadProgress:
    """The newest load of a table from its source: what is done, and what is left.

    Attributes:
        began, ended: ISO 8601 UTC; null: it has not ended.
        keys: key columns of the source, by which its ranges are read; empty: the table is read as a whole.
        ranges: in order; the file of each has its number, from 1.
        is_divided: whether all ranges are known.
        before: files of the load before this one.
        position: of the source's log when the load began; empty where the database shows none.
        log: the log that jobs read, and the table in it; empty: they read none.
        seen: of a table that is read by one query; null: its rows are known by their keys, or not yet read.
    """

    began: str
    ended: str | None = None
    keys: tuple[str, ...] = ()
    ranges: tuple[LoadedRange, ...] = ()
    is_divided: bool = False
    before: int = 0
    position: str = ""
    log: str = ""
    seen: LoadedTransactions | None = None

    @property
    def rows(self) -> int:
        return sum(one.rows or 0 for one in self.ranges)


def read_progress(storage: Storage, state: str) -> LoadProgress | None:
    """The newest load of the table whose state folder is `state`; null: it had none.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    return read_small(storage, join(state, FOLDER, _DOCUMENT), LoadProgress, "delete it, and load the table again")


def write_progress(storage: Storage, state: str, progress: LoadProgress) -> None:
    storage.write(join(state, FOLDER, _DOCUMENT), codec.to_json(progress).encode())


T = TypeVar("T")
_DEFAULTS = {f.name: f.default for f in fields(FileEntry)}
_FORMER = frozenset({"TableState.normal_text", "TableState.instants", "AppliedSettings.layout"})
"""Fields that ledgers from before 0.1.0 have."""
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
        recent: name of the segment read at each run; null: empty.
        recent_rows: rows in it.
        archives: older segments, oldest first; a later row of a path replaces an earlier one, `recent` all of them.
        archived_before: change files of an earlier time (`file_times.FileTimes`) may be in an archive; null: none is.
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
    """A commit as stored; `body` is parsed on first use."""

    path: str
    head: Head
    body: tuple[str, str, str]

    @property
    def commit(self) -> BatchCommit:
        with damaged_is_fatal(self.path):
            plan = codec.from_json(BatchPlan, self.body[0])
        return BatchCommit(number=self.head.number, plan=plan, files=self.files, state=self.head.state)

    @property
    def files(self) -> tuple[FileEntry, ...]:
        return decode_files(self.body[1], self.path)

    @property
    def tail(self) -> tuple[FileEntry, ...]:
        """Rows of the commits after the snapshot and before this one."""
        return decode_files(self.body[2], self.path)


@dataclass(frozen=True, kw_only=True)
class ListedVersion:
    """Findings between two batches.

    Attributes:
        listed_in_full_at: ISO 8601 UTC; null before any.
        touched: path to [fingerprint, etag], for files that got another etag and kept the content of their row.
        dismissed: path to fingerprint of load files that could not be read and that a user no longer expects.
        rows: of the replica, where an erasure has removed some since the batch of number `rows_at`.
    """

    listed_in_full_at: str | None = None
    touched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dismissed: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    rows_at: int = 0


def encode_commit(head: Head, commit: BatchCommit, tail: Sequence[FileEntry]) -> bytes:
    documents = codec.to_document(head), codec.to_document(commit.plan)
    return seal([*documents, encode_files(commit.files), encode_files(tail)])


def decode_commit(path: str, data: bytes) -> CommitFile:
    """
    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    head, plan, files, tail = unseal(path, data, lines=4)
    with damaged_is_fatal(path):
        return CommitFile(path=path, head=codec.from_json(Head, head, ignorable=_FORMER), body=(plan, files, tail))


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
    found = text.count(b"\n") + 1
    if first != f'{{"blake2b":"{digest(text)}"}}'.encode() or found != lines:
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
        raise FatalError("LEDGER_DAMAGED", f"unreadable: {error}", where=path, remedy=remedy) from error


def damaged(path: str, what: str) -> FatalError:
    remedy = "restore the file from a version or backup; deleting the table's ledger folder ingests all files again"
    return FatalError("LEDGER_DAMAGED", what, where=path, remedy=remedy)


def _newer(path: str, what: str) -> FatalError:
    remedy = "install that version here, too; an earlier one may read the ledger wrongly"
    return FatalError("LEDGER_NEWER", f"a newer airflow-gddl wrote it: {what}", where=path, remedy=remedy)


@contextmanager
def damaged_is_fatal(path: str) -> Iterator[None]:
    """Translates errors of parsing `path` to `LEDGER_DAMAGED`."""
    try:
        yield
    except codec.NewerDocumentError as error:
        raise _newer(path, error.what) from error
    except (FatalError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, FatalError) and error.code == "LEDGER_NEWER":
            raise
        raise damaged(path, f"unreadable: {error}") from error


NOTE = "move.json"


@dataclass(frozen=True, kw_only=True)
class MoveNote:
    """From one target to another, both `schema.name`; `at`: ISO 8601 UTC."""

    old: str
    new: str
    at: str


def read_note(storage: Storage, state: str) -> MoveNote | None:
    """The note in a ledger's folder.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    remedy = 'rewrite it with the old and new name of the table: {"old": ..., "new": ..., "at": ...}'
    return read_small(storage, join(state, NOTE), MoveNote, remedy)


def write_note(storage: Storage, state: str, note: MoveNote) -> None:
    storage.write(join(state, NOTE), codec.to_json(note).encode())


def _folder(table: str) -> str:
    return f"/{table.replace('.', '/', 1)}"


def require_not_moved(storage: Storage, state: str, names: Collection[str]) -> None:
    """
    Args:
        state: a ledger's folder.
        names: what is in it.

    Raises:
        FatalError: `TABLE_MOVED`.
    """
    note = read_note(storage, state) if NOTE in names else None
    if note is None:
        return
    new = f"{state.removesuffix(_folder(note.old)).removesuffix(_folder(note.new))}{_folder(note.new)}"
    if read_note(storage, new) is not None:
        remedy = f"finish it with gddl move --table {note.old} --to {note.new}"
        raise FatalError("TABLE_MOVED", f"the move of {note.old} to {note.new} is not finished", remedy=remedy)
    remedy = f"set the row's target to {note.new}, or move it back with gddl move --table {note.new} --to {note.old}; "
    remedy += f"for another table of this name, delete {join(state, NOTE)}"
    raise FatalError("TABLE_MOVED", f"{note.old} is {note.new} since {note.at}", remedy=remedy)


RECENT, ARCHIVE = "recent", "archive"
_LARGEST_MERGE = 100_000

Rows = dict[str, FileEntry]


@dataclass(frozen=True)
class Segments:
    """Reads and writes segments below `root`."""

    storage: Storage
    root: str

    def recent(self, snapshot: LedgerSnapshot) -> Rows:
        return {} if snapshot.recent is None else self._read(snapshot.recent)

    def archived(self, snapshot: LedgerSnapshot) -> Rows:
        """All archives; memory and time grow with every file the table ever had."""
        rows: Rows = {}
        for archive in snapshot.archives:
            rows.update(self._read(archive.name))
        return rows

    def newest_first(self, snapshot: LedgerSnapshot) -> Iterator[Rows]:
        """Each archive, read when it is asked for; of a path the first row counts."""
        return (self._read(archive.name) for archive in reversed(snapshot.archives))

    def compact(
        self, snapshot: LedgerSnapshot, number: int, rows: Rows, aging: FileAging, keep_since: str | None
    ) -> LedgerSnapshot:
        """Write `rows`, all of batches up to `number`, as the successor of `snapshot`.

        Args:
            rows: newest row per path of `snapshot.recent` and of later commits; may replace archived rows.
            aging: of the rule that the archives of `snapshot` were made by.
            keep_since: change files of an earlier time go to an archive; null: none does.
        """
        horizon = max(filter(None, (keep_since, snapshot.archived_before)), default=None)
        old = {path: row for path, row in rows.items() if aging.is_before(row, horizon)}
        recent = {path: row for path, row in rows.items() if path not in old}
        return LedgerSnapshot(
            number=number,
            recent=self._write(RECENT, number, recent) if recent else None,
            recent_rows=len(recent),
            archives=self._archive(snapshot.archives, number, old),
            archived_before=horizon if old else snapshot.archived_before,
            archived_by=aging.times.rule if old else snapshot.archived_by,
        )

    def _archive(self, archives: tuple[Archive, ...], number: int, rows: Rows) -> tuple[Archive, ...]:
        """Archives merge with younger ones about their size, so that there are few and rows are rarely rewritten."""
        if not rows:
            return archives
        kept = list(archives)
        while kept and kept[-1].rows <= 2 * len(rows) and kept[-1].rows + len(rows) <= _LARGEST_MERGE:
            rows = {**self._read(kept.pop().name), **rows}
        return (*kept, Archive(name=self._write(ARCHIVE, number, rows), rows=len(rows)))

    def _write(self, folder: str, number: int, rows: Mapping[str, FileEntry]) -> str:
        text = to_bytes(encode_files(rows.values()))
        name = segment_name(folder, number, text)
        self.storage.write(join(self.root, name), text)
        return name

    def _read(self, name: str) -> Rows:
        path = join(self.root, name)
        try:
            data = self.storage.read(path)
        except FileNotFoundError as error:
            # For a reader without the claim: two snapshots were made since it opened. Lost for good shows in the retry.
            what = "a segment of the ledger is missing: superseded or deleted"
            raise RetriableError("LEDGER_CONFLICT", what, where=path, remedy="open the ledger again") from error
        return {row.path: row for row in decode_segment(path, data)}


def names_of(snapshot: LedgerSnapshot) -> set[str]:
    """Segments that a snapshot needs."""
    recent = {snapshot.recent} if snapshot.recent is not None else set()
    return recent | {archive.name for archive in snapshot.archives}


COMMITS_PER_SNAPSHOT = 20
_ROWS_BEHIND_SNAPSHOT = 500
_COMMIT = re.compile(r"commits/(\d{20})\.json")
_PLAN, _SEEN = "plan.json", "seen.json"


class Ledger:
    """One table's ledger as of its opening, updated by its own commits.

    One writer at a time holds the claim; if two write nevertheless, one gets `LEDGER_CONFLICT`.

    Raises (every method that reads):
        FatalError: `LEDGER_DAMAGED`, naming the file.
        RetriableError: `LEDGER_CONFLICT`, when another writer has deleted what this one was about to read.
    """

    def __init__(self, storage: Storage, root: str, names: set[str]) -> None:
        self._storage, self._root, self._names = storage, root, names
        self._segments = Segments(storage, root)
        self._aging = FileAging()
        self._rows: Rows | None = None
        self._newest: CommitFile | None = None
        self._seen = ListedVersion()
        self._others: Sequence[TableState] = ()
        self._state = TableState()

    @classmethod
    def open(cls, storage: Storage, root: str, others: Sequence[TableState] = ()) -> Ledger:
        """Read the state; rows are read when asked for. A root that doesn't exist is an empty ledger.

        Args:
            others: states of the other shards of the table, which share its Delta tables.

        Raises:
            FatalError: `TABLE_MOVED`.
        """
        folder = root.rstrip("/")
        ledger = cls(storage, folder, {found.name for found in storage.list(folder)})
        require_not_moved(storage, folder, ledger._names)
        ledger._newest = ledger._read_newest()
        ledger._seen = ledger._read_seen()
        ledger._others = others
        ledger._state = ledger._merged_state()
        return ledger

    @property
    def has_shards(self) -> bool:
        """Whether the table was loaded from several sources, each with a ledger of its own below this one."""
        return bool(self.shards)

    @property
    def shards(self) -> frozenset[str]:
        """Sources with a ledger of their own below this one."""
        return frozenset(name.split("/")[1] for name in self._names if name.startswith(f"{SHARDS}/"))

    @property
    def state(self) -> TableState:
        """As of the newest commit, or of a later full listing or erasure."""
        return self._state

    @property
    def unlocked(self) -> int:
        """`TableState.unlocked` of all sources of the table."""
        return self._state.unlocked + sum(other.unlocked for other in self._others)

    @property
    def awaits_replay(self) -> bool:
        """Whether a column became text since values of this source that did not fit were last replayed."""
        return self._state.keys is not None and self.unlocked > self._state.replayed

    def _merged_state(self) -> TableState:
        state = TableState() if self._newest is None else self._newest.head.state
        listed = max(filter(None, (state.listed_in_full_at, self._seen.listed_in_full_at)), default=None)
        erased = self._seen.rows is not None and self._seen.rows_at == state.batch
        rows = self._seen.rows if erased and self._seen.rows is not None else state.rows
        if (listed, rows) != (state.listed_in_full_at, state.rows):
            state = replace(state, listed_in_full_at=listed, rows=rows)
        return beside_others(state, self._others)

    @property
    def archived_before(self) -> str | None:
        """Change files of an earlier time may be absent from `entries`; null: all are there."""
        return self._snapshot.archived_before

    def is_archived_by(self, times: FileTimes) -> bool:
        """Whether `archived_before` has such times; if not, only `all_entries` is complete."""
        return self._snapshot.archived_before is None or self._snapshot.archived_by == times.rule

    @property
    def files_known(self) -> int:
        """Number of rows, including archives; a rewritten file may count twice."""
        snapshot = self._snapshot
        return snapshot.recent_rows + sum(archive.rows for archive in snapshot.archives) + len(self._tail())

    def entries(self) -> Mapping[str, FileEntry]:
        """Newest row by path of all load files and of change files not yet archived."""
        if self._rows is None:
            rows = self._segments.recent(self._snapshot)
            if self._newest is not None:
                rows.update({row.path: row for row in (*self._newest.tail, *self._newest.files)})
            self._rows = rows
        return {**self._rows, **self._moved(self._rows)}

    @property
    def unread_loads(self) -> frozenset[str]:
        """Load files of the newest full load that could not be read and are not dismissed: all else waits for them."""
        current, dismissed = self.state.generation, self._seen.dismissed
        return frozenset(
            path for path, row in self.entries().items()
            if row.kind == "load" and row.state == "unreadable" and row.generation >= current
            and dismissed.get(path) != row.fingerprint
        )  # fmt: skip

    def all_entries(self) -> Mapping[str, FileEntry]:
        """Newest row by path of every file; reads the archives."""
        rows = {**self._segments.archived(self._snapshot), **self.entries()}
        return {**rows, **self._moved(rows)}

    def archives(self) -> Iterator[Mapping[str, FileEntry]]:
        """Rows of each archive, newest first, read when it is asked for; of a path the first row counts."""
        for rows in self._segments.newest_first(self._snapshot):
            rows.update(self._moved(rows))
            yield rows

    def last_commit(self) -> BatchCommit | None:
        """The newest commit; older ones are kept only as rows."""
        return None if self._newest is None else self._newest.commit

    def plan(self) -> BatchPlan | None:
        """The plan of a started, uncommitted batch."""
        if _PLAN not in self._names:
            return None
        path = join(self._root, _PLAN)
        data = read_if_there(self._storage, path)
        if data is None:
            return None
        with damaged_is_fatal(path):
            plan = codec.from_json(BatchPlan, data.decode(errors="surrogateescape"))
        if plan.number > self.state.batch + 1 and plan.mode != "refresh":
            raise damaged(path, f"it plans batch {plan.number}, the last commit found is {self.state.batch}")
        return plan if plan.number > self.state.batch else None

    def write_plan(self, plan: BatchPlan) -> None:
        """Store the plan before the batch writes. Check the claim first: a plan replaces the previous one."""
        self._expect_next(plan)
        self._storage.write(join(self._root, _PLAN), to_bytes(codec.to_document(plan)))
        self._names.add(_PLAN)

    def drop_plan(self) -> None:
        self._storage.delete(join(self._root, _PLAN))
        self._names.discard(_PLAN)

    def needed(self) -> frozenset[str]:
        """Names, below the ledger's root, of the commit and the segments it references."""
        commit = set() if self._newest is None else {f"commits/{self._newest.head.number:020d}.json"}
        return frozenset(commit | names_of(self._snapshot))

    def keep(self, lookback: timedelta, landing: str = "", times: FileTimes = BY_NAME) -> None:
        """Let snapshots archive change files of a time further behind the cursor; until set, none."""
        self._aging = FileAging(lookback, times, landing)

    def note_listing(self, listed_in_full_at: str | None, touched: Mapping[str, tuple[str, str]]) -> None:
        """Store, without a batch, the time of a full listing and files with a new etag but the same content.

        Args:
            touched: path to (fingerprint, etag now).
        """
        seen = self._stored_seen()
        listed = max(filter(None, (listed_in_full_at, seen.listed_in_full_at)), default=None)
        self._write_seen(replace(seen, listed_in_full_at=listed, touched={**seen.touched, **touched}))

    def note_dismissed(self, paths: frozenset[str]) -> None:
        """Store, without a batch, that no user expects these load files any more, unless they change."""
        gone = {path: row.fingerprint for path, row in self.entries().items() if path in paths & self.unread_loads}
        if gone:
            seen = self._stored_seen()
            self._write_seen(replace(seen, dismissed={**seen.dismissed, **gone}))

    def note_rows(self, rows: int) -> None:
        """Store, without a batch, the replica's current number of rows."""
        self._write_seen(replace(self._stored_seen(), rows=rows, rows_at=self.state.batch))

    def commit(self, commit: BatchCommit) -> None:
        """Commit the batch, as its last write.

        Raises:
            RetriableError: `LEDGER_CONFLICT` when another run has committed this number.
        """
        self._expect_next(commit.plan)
        if commit.state.batch != commit.number:
            raise ValueError(f"the state of commit {commit.number} says batch {commit.state.batch}")
        before, tail = self._snapshot, self._tail()
        snapshot = self._compacted() if self._is_due(len(tail)) else before
        head = Head(number=commit.number, state=commit.state, snapshot=snapshot)
        self._put(head, encode_commit(head, commit, tail if snapshot == before else ()))
        if self._rows is not None and snapshot == before:
            self._rows.update({row.path: row for row in commit.files})
        else:
            self._rows = None
        with suppress(GddlError):  # the batch is committed: leftovers are harmless, an error would mislead
            self.drop_plan()
            if snapshot != before:
                self._clean_up(before, snapshot)

    @property
    def _snapshot(self) -> LedgerSnapshot:
        return LedgerSnapshot() if self._newest is None else self._newest.head.snapshot

    def _tail(self) -> tuple[FileEntry, ...]:
        return () if self._newest is None else (*self._newest.tail, *self._newest.files)

    def _is_due(self, tail_rows: int) -> bool:
        commits = self.state.batch - self._snapshot.number
        return commits >= COMMITS_PER_SNAPSHOT or tail_rows > max(
            _ROWS_BEHIND_SNAPSHOT, self._snapshot.recent_rows // 4
        )

    def _compacted(self) -> LedgerSnapshot:
        before, aging = self._snapshot, self._aging
        if self.is_archived_by(aging.times):
            rows = dict(self.entries())
            strays = self._seen.touched.keys() - rows.keys()
            if strays:
                archived = self._segments.archived(before)
                rows.update(self._moved({path: archived[path] for path in strays & archived.keys()}))
        else:  # archives of another rule have other times: they are merged and rewritten
            rows = dict(self.all_entries())
            before = replace(before, archives=(), archived_before=None)
        snapshot = self._segments.compact(before, self.state.batch, rows, aging, aging.horizon(self.state.cursor))
        self._names |= names_of(snapshot)
        return snapshot

    def _put(self, head: Head, data: bytes) -> None:
        name = f"commits/{head.number:020d}.json"
        path = join(self._root, name)
        if not self._storage.create_once(path, data):
            raise self._conflict(f"another run has committed batch {head.number}")
        self._names.add(name)
        self._newest = decode_commit(path, data)
        self._state = self._merged_state()

    def _clean_up(self, before: LedgerSnapshot, after: LedgerSnapshot) -> None:
        needed = names_of(before) | names_of(after)
        for name in sorted(self._names):
            commit = _COMMIT.fullmatch(name)
            segment = name.startswith((f"{RECENT}/", f"{ARCHIVE}/"))
            if (commit and int(commit[1]) < after.number) or (segment and name not in needed):
                self._storage.delete(join(self._root, name))
                self._names.discard(name)
        if self._seen.touched:
            self._write_seen(replace(self._seen, touched={}))

    def _moved(self, rows: Rows) -> Rows:
        """Rows of files that got a new etag and kept their content. `modified` is kept: it identifies a reload."""
        return {
            path: replace(rows[path], etag=etag)
            for path, (fingerprint, etag) in self._seen.touched.items()
            if path in rows and rows[path].fingerprint == fingerprint
        }

    def _read_newest(self) -> CommitFile | None:
        newest = max((name for name in self._names if _COMMIT.fullmatch(name)), default=None)
        if newest is None:
            return None
        path = join(self._root, newest)
        data = read_if_there(self._storage, path)
        if data is None:
            raise self._conflict(f"{newest} was deleted while this ledger was opened")
        found = decode_commit(path, data)
        if f"commits/{found.head.number:020d}.json" != newest:
            raise damaged(path, f"it holds batch {found.head.number}")
        return found

    def _read_seen(self) -> ListedVersion:
        return self._stored_seen() if _SEEN in self._names else ListedVersion()

    def _stored_seen(self) -> ListedVersion:
        """As it is now: a run without the claim may have listed, or one with it erased rows, since the opening."""
        path = join(self._root, _SEEN)
        data = read_if_there(self._storage, path)
        if data is None:
            return ListedVersion()
        with damaged_is_fatal(path):
            return codec.from_json(ListedVersion, unseal(path, data, lines=1)[0])

    def _write_seen(self, seen: ListedVersion) -> None:
        self._seen = seen
        self._state = self._merged_state()
        self._storage.write(join(self._root, _SEEN), seal([codec.to_document(seen)]))
        self._names.add(_SEEN)

    def _expect_next(self, plan: BatchPlan) -> None:
        """A rebuild passes over the numbers of batches that the tables have and the ledger has lost."""
        after = plan.number - self.state.batch
        if after < 1 or (after > 1 and plan.mode != "refresh"):
            raise self._conflict(f"batch {plan.number} doesn't follow batch {self.state.batch}")

    def _conflict(self, what: str) -> RetriableError:
        return RetriableError("LEDGER_CONFLICT", what, where=self._root, remedy="run again; it reopens the ledger")
