"""What was ingested, per table: commits and snapshots in a folder of the lake, and how they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import LEDGER_CONFLICT
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.file_names import FileKind
from airflow_gddl.contract.layout import SHARDS, join
from airflow_gddl.stores import Storage, StoredObject, read_if_there
from spark_jobs.ledger.commit_files import (
    Archive,
    CommitFile,
    Head,
    LedgerSnapshot,
    ListedVersion,
    damaged,
    damaged_is_fatal,
    decode_commit,
    decode_segment,
    encode_commit,
    encode_files,
    seal,
    segment_name,
    to_bytes,
    unseal,
)
from spark_jobs.plan.file_times import BY_NAME, FileAging, FileTimes
from spark_jobs.plan.planned_batch import BatchCommit, BatchPlan, FileEntry, TableState
from spark_jobs.plan.sharding import beside_others

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
            keep_since: change files of an earlier time go to an archive; None: none does.
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
            raise RetriableError(LEDGER_CONFLICT, what, where=path, remedy="open the ledger again") from error
        return {row.path: row for row in decode_segment(path, data)}


def names_of(snapshot: LedgerSnapshot) -> set[str]:
    """Segments that a snapshot needs."""
    recent = {snapshot.recent} if snapshot.recent is not None else set()
    return recent | {archive.name for archive in snapshot.archives}


COMMITS_PER_SNAPSHOT = 20
_ROWS_BEHIND_SNAPSHOT = 500
_COMMIT = re.compile(r"commits/(\d{20})\.json")
_PLAN, _SEEN, _LOGS = "plan.json", "seen.json", "logs.json"


def _newest_commit(names: Iterable[str]) -> str | None:
    return max((name for name in names if _COMMIT.fullmatch(name)), default=None)


class Ledger:
    """One table's ledger as of its opening, updated by its own commits.

    `state` is as of the newest commit, or of a later full listing or erasure.

    One writer at a time holds the claim; if two write nevertheless, one gets `LEDGER_CONFLICT`.

    Raises (every method that reads):
        FatalError: `LEDGER_DAMAGED`, naming the file.
        RetriableError: `LEDGER_CONFLICT`, when another writer has deleted what this one was about to read.
    """

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage, self._root = storage, root
        self._names: set[str] = set()
        self._listed: Mapping[str, StoredObject] = {}
        self._segments = Segments(storage, root)
        self._aging = FileAging()
        self._rows: Rows | None = None
        self._newest: CommitFile | None = None
        self._seen = ListedVersion()
        self._others: Sequence[TableState] = ()
        self._logs_of = ""
        self.state = TableState()

    @classmethod
    def open(cls, storage: Storage, root: str, others: Sequence[TableState] = ()) -> Ledger:
        """Read the state; rows are read when asked for. A root that doesn't exist is an empty ledger.

        Args:
            others: states of the other shards of the table, which share its Delta tables.
        """
        ledger = cls(storage, root.rstrip("/"))
        ledger._others = others
        ledger.look_again()
        return ledger

    @property
    def listing(self) -> Mapping[str, StoredObject | None]:
        """Names below the ledger's root, and each as it was listed last; None: it was not."""
        return {name: self._listed.get(name) for name in self._names}

    def look_again(self, listed: Iterable[str] | None = None) -> None:
        """Read what others have written since.

        Args:
            listed: names below the ledger's root, as listed just now; None: they are listed.
        """
        if listed is None:
            listed = self._listed = {file.name: file for file in self._storage.list(self._root)}
        names = set(listed)
        newest = _newest_commit(names)
        if newest != _newest_commit(self._names):
            self._newest, self._rows = self._read_commit(newest), None
        self._names = names
        self._seen = self._stored_seen() if _SEEN in self._names else ListedVersion()
        self.state = self._merged_state()

    @property
    def has_shards(self) -> bool:
        """Whether the table was loaded from several sources, each with a ledger of its own below this one."""
        return bool(self.shards)

    @property
    def shards(self) -> frozenset[str]:
        """Sources with a ledger of their own below this one."""
        return frozenset(name.split("/")[1] for name in self._names if name.startswith(f"{SHARDS}/"))

    @property
    def unlocked(self) -> int:
        """`TableState.unlocked` of all sources of the table."""
        return self.state.unlocked + sum(other.unlocked for other in self._others)

    @property
    def awaits_replay(self) -> bool:
        """Whether a column became text since values of this source that did not fit were last replayed."""
        return self.state.keys is not None and self.unlocked > self.state.replayed

    def _merged_state(self) -> TableState:
        state = TableState() if self._newest is None else self._newest.head.state
        listed = max(filter(None, (state.listed_in_full_at, self._seen.listed_in_full_at)), default=None)
        seen = self._seen
        rows = seen.rows if seen.rows is not None and seen.rows_at == state.batch else state.rows
        if (listed, rows) != (state.listed_in_full_at, state.rows):
            state = replace(state, listed_in_full_at=listed, rows=rows)
        return beside_others(state, self._others) if self._others else state

    @property
    def archived_before(self) -> str | None:
        """Change files of an earlier time may be absent from `entries`; None: all are there."""
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
        return frozenset(row.path for row in self.unread() if row.kind == "load")

    def unread(self) -> tuple[FileEntry, ...]:
        """Files of the newest full load, and after it, that could not be read and are not dismissed."""
        current, dismissed = self.state.generation, self._seen.dismissed
        return tuple(
            row for path, row in self.entries().items()
            if row.state == "unreadable" and row.generation >= current and dismissed.get(path) != row.fingerprint
        )  # fmt: skip

    def given_up(self, kind: FileKind) -> tuple[str, ...]:
        """Files of a kind that could not be read and that a user has dismissed, sorted; what they hold is missing until
        another version comes, or a newer full load."""
        dismissed = self._seen.dismissed
        if not dismissed:
            return ()
        rows = self.entries()
        return tuple(
            path for path, fingerprint in sorted(dismissed.items())
            if (row := rows.get(path)) is not None and row.state == "unreadable" and row.fingerprint == fingerprint
            and row.kind == kind and row.generation >= self.state.generation
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
        """Store, without a batch, that no user expects these unreadable files any more, unless they change."""
        known = self.entries().items()
        fingerprints = {p: row.fingerprint for p, row in known if p in paths and row.state == "unreadable"}
        if fingerprints:
            seen = self._stored_seen()
            self._write_seen(replace(seen, dismissed={**seen.dismissed, **fingerprints}))

    def note_rows(self, rows: int) -> None:
        """Store, without a batch, the replica's current number of rows."""
        self._write_seen(replace(self._stored_seen(), rows=rows, rows_at=self.state.batch))

    def delta_logs(self) -> Mapping[str, Any]:
        """What the last batch knew of the Delta logs of its tables, by the table's name; None: there was no table.

        A copy that saves reading them: whoever uses it compares it with the log. Empty where something else than a
        batch, such as a rebuild, was committed since.
        """
        data = read_if_there(self._storage, join(self._root, _LOGS)) if _LOGS in self._names else None
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            stored, last = json.loads(data or b"{}"), self.last_commit()
            if last is not None and stored.get("planned_at") == last.plan.planned_at:
                return dict(stored["logs"])
        return {}

    def write_delta_logs(self, plan: BatchPlan, logs: Mapping[str, Any]) -> None:
        """Store what `delta_logs` returns once the plan's batch is committed; without any, forget what is stored."""
        if logs:
            stored = json.dumps({"planned_at": plan.planned_at, "logs": logs}, separators=(",", ":"))
            self._storage.write(join(self._root, _LOGS), stored.encode())
            self._names.add(_LOGS)
            self._logs_of = plan.planned_at
        else:
            self.forget_delta_logs()

    def forget_delta_logs(self) -> None:
        """They have bounds of values."""
        if _LOGS in self._names:
            self._storage.delete(join(self._root, _LOGS))
            self._names.discard(_LOGS)

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
        self._put(head, commit, tail if snapshot == before else ())
        if self._rows is not None and snapshot == before:
            self._rows.update({row.path: row for row in commit.files})
        else:
            self._rows = None
        with suppress(GddlError):  # the batch is committed: leftovers are harmless, an error would mislead
            self.drop_plan()
            if self._logs_of != commit.plan.planned_at:
                self.forget_delta_logs()
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

    def _put(self, head: Head, commit: BatchCommit, tail: Sequence[FileEntry]) -> None:
        name = f"commits/{head.number:020d}.json"
        path = join(self._root, name)
        data, newest = encode_commit(path, head, commit, tail)
        if not self._storage.create_once(path, data):
            raise self._conflict(f"another run has committed batch {head.number}")
        self._names.add(name)
        self._newest = newest
        self.state = self._merged_state()

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

    def _read_commit(self, newest: str | None) -> CommitFile | None:
        if newest is None:
            return None
        path = join(self._root, newest)
        data = read_if_there(self._storage, path)
        if data is None:
            raise self._conflict(f"{newest} was deleted while this ledger was opened")
        commit = decode_commit(path, data)
        if f"commits/{commit.head.number:020d}.json" != newest:
            raise damaged(path, f"it holds batch {commit.head.number}")
        return commit

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
        self.state = self._merged_state()
        self._storage.write(join(self._root, _SEEN), seal([codec.to_document(seen)]))
        self._names.add(_SEEN)

    def _expect_next(self, plan: BatchPlan) -> None:
        """A rebuild passes over the numbers of batches that the tables have and the ledger has lost."""
        after = plan.number - self.state.batch
        if after < 1 or (after > 1 and plan.mode != "refresh"):
            raise self._conflict(f"batch {plan.number} doesn't follow batch {self.state.batch}")

    def _conflict(self, what: str) -> RetriableError:
        return RetriableError(LEDGER_CONFLICT, what, where=self._root, remedy="run again; it reopens the ledger")
