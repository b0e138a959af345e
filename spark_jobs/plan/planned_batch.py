"""Which files make the next batch, and what it leaves in the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from airflow_gddl.contract.file_names import FileFormat, FileKind
from airflow_gddl.contract.layout import FEW_ROWS
from airflow_gddl.contract.result import Mode
from spark_jobs.plan.applied_settings import AppliedSettings
from spark_jobs.plan.baseline import Baseline
from spark_jobs.plan.source_snapshots import KnownSnapshots

FileState = Literal["committed", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class LandedFile:
    """A data file as a listing and its name state it.

    Attributes:
        path: absolute path or URL, the file's identity in the ledger.
        order: sorts files of one kind in the order their writer made them; loads and changes are never compared.
        etag: changes whenever the file may have changed (the store's ETag; locally inode, time and size).
        modified: last modification, ISO 8601 UTC with microseconds.
        begins: a load file that begins a full load of its own, since all that was ingested before is gone.
    """

    path: str
    kind: FileKind
    format: FileFormat
    order: tuple[str, ...]
    size: int
    etag: str
    modified: str
    begins: bool = False


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """A file of a batch plan: what was seen when the batch was planned.

    Attributes:
        fingerprint: equal ones are of equal bytes: S3's ETag where it may be a digest, else BLAKE2b of the bytes.
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
        fingerprint: identifies the bytes as far as they are known, see `dialects.contents`. Empty: what was read of the
            file may be a part of it.
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


@dataclass(frozen=True, kw_only=True)
class Truncate:
    """A truncate, as `_gddl` of a change.

    Attributes:
        sequence: JSON text.
        commit_ts: ISO 8601 UTC; None: unknown.
        applied_at: when its batch was planned, ISO 8601 UTC.
        schema: index of the column set of its file.
    """

    generation: int
    sequence: str
    commit_ts: str | None
    source_file: str
    position: int
    batch_id: str
    applied_at: str
    schema: int


@dataclass(frozen=True, kw_only=True)
class HeldTruncate:
    """A file with truncates that wait for a user's release, and all files after it.

    Attributes:
        fingerprint: of its content; another version of the file is read again.
        sequence, commit_ts: of its first truncate, see `Truncate`.
        since: ISO 8601 UTC.
    """

    path: str
    fingerprint: str
    sequence: str
    commit_ts: str | None
    since: str


BatchSource = Literal["files", "quarantine", "changes"]


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """A batch before it runs. Written first; a rerun finds it and does exactly the same.

    Attributes:
        number: counts from 1 per table.
        planned_at: ISO 8601 UTC with microseconds, later than that of every plan before; the batch's `applied_at` and
            the version of its Delta transactions, so that reruns write the same, once.
        generation: current generation once this batch is committed.
        sweep: after the merge, rows of older generations vanish.
        schemas: the ledger's schemas as the batch leaves them, where it adds to them; null otherwise.
        found: see `TableState.found`; as `schemas`.
        sequence_by, sequence_type: as the batch leaves them in the ledger, where it changes them; null otherwise.
        swapping: the check of a refresh is over, and tables may have been exchanged: it can only continue.
        source: `quarantine` replays its unresolved rows instead of reading files; `changes` rebuilds the tables from
            the change table.
        codes: of the rows that it replays; empty: all.
        snapshots: as the batch leaves them in the ledger, where it changes them; null otherwise.
        dropped: of a rebuild: id of an unfinished batch whose changes it removes; empty: none.
        archives: of a reload: changes that no file holds no longer count.
        confirmed: of a reload: also where rows, columns or changes of the tables go.
        released: a user has released the sweep, for any share of rows.
        shard: short name of the source whose files these are, where the table has several; else empty.
        interrupted: of a refresh: the started batch that it replaces, and that continues if the refresh is given up.
        unlocks: a column becomes text in this batch, so that it may hold values that are in quarantine.
        truncates: as the batch leaves them in the ledger, where it changes them; null otherwise.
        releases: a user has released the truncates of its files.
        holds: a batch without files that only notes this.
    """

    number: int
    mode: Mode
    planned_at: str
    generation: int
    files: tuple[PlannedFile, ...]
    sweep: bool = False
    schemas: tuple[dict[str, str], ...] | None = None
    found: tuple[str, ...] | None = None
    source: BatchSource = "files"
    codes: tuple[str, ...] = ()
    swapping: bool = False
    released: bool = False
    shard: str = ""
    sequence_by: tuple[str, ...] | None = None
    sequence_type: str | None = None
    snapshots: KnownSnapshots | None = None
    dropped: str = ""
    archives: bool = False
    confirmed: bool = False
    interrupted: BatchPlan | None = None
    unlocks: bool = False
    truncates: tuple[Truncate, ...] | None = None
    releases: bool = False
    holds: HeldTruncate | None = None

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def batch_id(self) -> str:
        """Sorts as the number does, among batches of one shard.

        A refresh replaces a dropped batch of the same number under another id.
        """
        number = f"{self.number:012d}" + ("r" if self.mode == "refresh" else "")
        return f"{self.shard}/{number}" if self.shard else number


def first_batch(planned_at: str, files: tuple[PlannedFile, ...] = ()) -> BatchPlan:
    """The plan of a table's first batch, in its first generation."""
    return BatchPlan(number=1, mode="initial", planned_at=planned_at, generation=1, files=files)


def number_of(batch_id: str) -> int:
    """The number in a `BatchPlan.batch_id`."""
    return int(batch_id.rpartition("/")[2].removesuffix("r"))


@dataclass(frozen=True, kw_only=True)
class ForeignCommit:
    """A commit of another writer to one of a table's Delta tables.

    Attributes:
        table: `replica`, `history`, `changes` or `tombstones`.
        operation: as Delta's log has it; `REPLACED` where the log has lost the commit that the ledger knows.
    """

    table: str
    version: int
    operation: str

    def __str__(self) -> str:
        return f"{self.table}: version {self.version}, {self.operation}"


@dataclass(frozen=True, kw_only=True)
class HeldSweep:
    """A sweep that waits for a user's release.

    Attributes:
        rows: live rows of the replica that the load lacks, of `live` ones; without keys, how many it has less.
        since: ISO 8601 UTC.
    """

    generation: int
    rows: int
    live: int
    since: str


@dataclass(frozen=True)
class GenerationFloor:
    """What was ingested before a generation.

    Attributes:
        sequence: the greatest, as JSON text; None: none.
        commit_ts: the newest commit time, ISO 8601 UTC; None: none is known.
    """

    sequence: str | None = None
    commit_ts: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableState:
    """What the ledger knows of a table beyond its files; the newest commit's copy is the truth.

    Attributes:
        batch: last committed batch; 0 before the first.
        generation: current generation; 0 before the first file.
        keys, sequence_by: as of the first batch or the last rebuild; null before the first batch.
        sequence_type: SQL type of `_gddl.sequence`; null while unknown.
        keeps_order: the columns of its order are those of other shards that had changes, and stay though it had none.
        sequence_forms: sequence column to the forms of its text, see `plan.sequence`.
        log_began: the row's `log_began` at the last batch: positions in the source's log are written by it.
        misplaced: files with changes whose positions were written by another `log_began` than the row's; until a full
            refresh.
        log_time: newest commit time of changes at the end of the source's log; null where sequences are no positions in
            one.
        schemas: every column set that files brought, `FileEntry.schema` is an index; a name to its SQL type.
        found: columns that files have had and no schema has, since they are left out, rescued or ignored; cleaned, in
            lower case.
        max_sequence: JSON form of the greatest sequence ingested; null before any change.
        floors: of the generations, in order.
        max_commit_ts: newest commit time applied; ISO 8601 UTC; null when none.
        cursor: name below the landing folder of the newest change file seen; null before any.
        oldest: time, as digits, of the oldest change file taken (`file_times.FileTimes`); None: none has a time.
        listed_in_full_at: ISO 8601 UTC of the last full listing; null before any.
        delta_versions: `changes`, `replica`, `history`, `tombstones`, `errors` to the Delta version that the last batch
            left; tables that don't exist are absent.
        foreign: commits of others that changed data in these tables, until a rebuild.
        foreign_changes: another writer has changed the change table, which a rebuild follows as it is; until a reload
            of all files.
        swept: the generation whose sweep was the last to be done; 1 before any. Rows of generations from this one on
            may be in the replica.
        tombstones_purged_at: ISO 8601 UTC; null before any.
        rows: of the replica, as counted batch by batch.
        loaded_at: when the newest batch of load files was planned, ISO 8601 UTC; null before any.
        held: the sweep of the current generation that waits for confirmation by a user; None: none.
        snapshots: snapshots of the source that the table knows; None: none can be known.
        openings: of a first load over a folder that was reloaded: modification times from which files belong to
            generation 2, 3, ..., until the last of these has opened.
        typed: columns, by their names in files, whose texts an entry of `options.types` made values of another type, as
            long as the table's is no text.
        applied: settings that the tables obey; None: there are no tables yet.
        unlocked: batches of this source in which a column became text while values were in quarantine; of a table of
            one source, since their last replay.
        replayed: `unlocked` of all sources of the table when the values of this source were last replayed.
        truncates: that have taken effect, in the order of changes; without a history the newest.
        held_truncate: a file that waits for a user's release of its truncates, with all after it; None: none.
        baseline: of a replica that had rows before the first batch, until a rebuild; its property says the same. None:
            every row has `_gddl`.
        adopted: the change table has rows of a replica that another job kept, see `TableSchema.adopted`.
    """

    batch: int = 0
    generation: int = 0
    keys: tuple[str, ...] | None = None
    sequence_by: tuple[str, ...] | None = None
    sequence_type: str | None = None
    keeps_order: bool = False
    sequence_forms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    log_began: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()
    log_time: str | None = None
    schemas: tuple[dict[str, str], ...] = field(default_factory=tuple)
    found: tuple[str, ...] = ()
    max_sequence: str | None = None
    floors: tuple[GenerationFloor, ...] = ()
    max_commit_ts: str | None = None
    cursor: str | None = None
    oldest: str | None = None
    listed_in_full_at: str | None = None
    delta_versions: dict[str, int] = field(default_factory=dict)
    foreign: tuple[ForeignCommit, ...] = ()
    foreign_changes: bool = False
    swept: int = 1
    tombstones_purged_at: str | None = None
    rows: int = 0
    loaded_at: str | None = None
    held: HeldSweep | None = None
    snapshots: KnownSnapshots | None = None
    openings: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    applied: AppliedSettings | None = None
    unlocked: int = 0
    replayed: int = 0
    truncates: tuple[Truncate, ...] = ()
    held_truncate: HeldTruncate | None = None
    baseline: Baseline | None = None
    adopted: bool = False

    @property
    def is_swept(self) -> bool:
        """Whether no rows of older generations are in the replica."""
        return self.generation <= max(self.swept, 1)

    @property
    def next_mode(self) -> Literal["initial", "incremental"]:
        """`BatchPlan.mode` of a next batch that is no refresh and holds no rest of the first load."""
        return "initial" if self.batch == 0 else "incremental"


@dataclass(frozen=True, kw_only=True)
class BatchCommit:
    """The last write of a batch: its files' ledger rows and the state they lead to."""

    number: int
    plan: BatchPlan
    files: tuple[FileEntry, ...]
    state: TableState


def floors_of(floors: Sequence[GenerationFloor], known: KnownSnapshots | None) -> tuple[GenerationFloor, ...]:
    """The floors of all generations; the sequence of those that snapshots have opened is their place."""
    if known is None:
        return tuple(floors)
    places = {run.generation: json.dumps(run.position) for run in known.openings}
    return tuple(
        replace(floor, sequence=places.get(number, floor.sequence)) for number, floor in enumerate(floors, start=1)
    )


_SMALL_BYTES = 4 * 1024**2


def is_small(plan: BatchPlan, state: TableState) -> bool:
    """Whether batch and table are so small that planning costs more than the work."""
    return plan.size < _SMALL_BYTES and has_few_rows(state)


def has_few_rows(state: TableState) -> bool:
    """Whether a table is small, whatever batch comes."""
    return state.rows < FEW_ROWS
