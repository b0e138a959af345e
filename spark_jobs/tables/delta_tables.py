"""Delta tables by path: snapshots, reads of whole files, and commits that name the files they add and remove."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.result import CommitMethod
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.contract.sql_types import SqlType
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import GDDL, Column
from spark_jobs.plan.types import widenings
from spark_jobs.rules.arrays import DeltaSchema, by_name, fields_of, schema_of
from spark_jobs.tables import delta_log
from spark_jobs.tables.data_files import (
    FileWriter,
    Restated,
    Target,
    WithoutRows,
    read_file,
    without,
)
from spark_jobs.tables.deletion_vectors import suits
from spark_jobs.tables.delta_log import OURS, Action, DeltaCommit, DeltaCommits, app_of, keep_log_short, user_metadata
from spark_jobs.tables.places import InProcess, Place, TaskBounds, UnreadableLogError
from spark_jobs.tables.replayed_log import DamagedLogError, KnownLogs, ReplayedLog
from spark_jobs.tables.snapshots import (
    CLUSTERING,
    DataFile,
    TableSnapshot,
    missing_features,
    require_creatable,
    require_known,
    require_settable,
)
from spark_jobs.tables.table_definition import (
    CLUSTER_BY,
    COLUMNS,
    ColumnPath,
    TableDefinition,
    indexed_columns,
    restricted,
)

__all__ = ["DataFile", "TableSnapshot", "Tables", "Write"]

Clock = Callable[[], datetime]
_SEARCHED_IN_PROCESS, _THREADS = 8 * 1024**3, 4
"""Bytes up to which files are searched by threads: tasks cost a second of CPU, a search 30 ms for a million rows."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Data files that are there before their commit.

    Attributes:
        files: of the table.
        feed: of its change data feed, for all rows that the commit changes.
        differs: false where the commit leaves every row as it is; known of tables with a feed.
    """

    files: Sequence[Action] = ()
    feed: Sequence[Action] = ()
    differs: bool = True

    def actions(self, *, data_change: bool) -> list[Action]:
        return [{"add": {**action["add"], "dataChange": data_change}} for action in self.files]


@dataclass(frozen=True, kw_only=True)
class Write:
    """One commit.

    Attributes:
        app, version: the transaction; a commit without one must be idempotent.
        added: rows of each new file; where there are none, no file is made.
        removed: removed files; None: all files, and `schema` replaces the table's.
        metrics: in the names of Delta on Spark.
        once: check first whether the transaction exists.
        rearranged: the same rows in other files; readers of the table's changes skip it.
        partition_by: new partition columns; None: unchanged. Requires that all files are removed.
        keys: key columns, by which the change data feed identifies updates.
        deleted: files with the numbers of rows to delete: by vectors where the table has them, else their files are
            written again.
        deleted_rows: the rows that `deleted` names, for the change data feed; None: the table has none.
        written: further files, and the whole change data feed; None: none.
        keeps_rows: rows that are written again keep their row ids.
    """

    app: str = ""
    version: int = 0
    added: Sequence[pa.Table] = ()
    removed: Sequence[DataFile] | None = ()
    schema: DeltaSchema | None = None
    metrics: Mapping[str, int] = field(default_factory=dict)
    once: bool = True
    rearranged: bool = False
    partition_by: tuple[str, ...] | None = None
    keys: Sequence[str] = ()
    deleted: Sequence[tuple[DataFile, np.ndarray]] = ()
    deleted_rows: pa.Table | None = None
    written: Written | None = None
    keeps_rows: bool = True


class Tables:
    """Tables of one run of one table; snapshots are cached until the next write, since the run holds the claim.

    Attributes:
        arranges_files: it decides which rows share a file, and a type may change without new files; else Delta does.
        commit_method: of its commits.
        bounds: beyond which a place other than this process works on files.
    """

    arranges_files = True
    commit_method: CommitMethod = "direct"
    bounds = TaskBounds()

    def __init__(self, storage: Storage, clock: Clock, shard: str = "", features: frozenset[str] = frozenset()) -> None:
        """Open the tables of a run.

        Args:
            features: table features that are supported in addition, see `snapshots.require_known`.
        """
        self.storage, self._clock, self._shard, self.features = storage, clock, shard, features
        self.log = DeltaCommits(storage)
        self._place: Place = InProcess(storage)
        self._snapshots: dict[str, TableSnapshot | None] = {}
        self._versions: dict[str, int] = {}
        self._logs = KnownLogs(storage)
        self._there: set[str] = set()

    def is_for_tasks(self, size: int) -> bool:
        """Whether files of so many bytes are worked on elsewhere than in this process."""
        return size > self.bounds.files and not isinstance(self._place, InProcess)

    def place_for(self, size: int) -> Place:
        """Where files of so many bytes are worked on."""
        return self._place if self.is_for_tasks(size) else InProcess(self.storage)

    def place_to_search(self, size: int) -> Place:
        """Where a few columns of files of so many bytes are searched."""
        if isinstance(self._place, InProcess) or size > _SEARCHED_IN_PROCESS:
            return self.place_for(size)
        return InProcess(self.storage, threads=max(_THREADS, self._place.slots))

    def snapshot(self, path: str) -> TableSnapshot | None:
        """The newest version; None where there is no table.

        Raises:
            DeclinedError: it has a feature that this engine doesn't support.
        """
        if path not in self._snapshots:
            self._snapshots[path] = self._open(path)
        return self._snapshots[path]

    def _open(self, path: str) -> TableSnapshot | None:
        log = self._newest(path)
        if log is None:
            return None
        require_known(log, self.features)
        self._there.add(path)
        return TableSnapshot(path, log, schema_of(log.schema), self.storage)

    def _newest(self, path: str) -> ReplayedLog | None:
        """The table's log, from what is known of it on."""
        try:
            return self._logs.newest(path)
        except DamagedLogError as error:
            raise UnreadableLogError(str(error)) from error

    def recall(self, path: str, log: ReplayedLog | None) -> None:
        """See `TableLogs.recall`."""
        self._logs.recall(path, log)

    def known_log(self, path: str) -> ReplayedLog | None:
        """See `TableLogs.known_log`."""
        return self._logs.known(path)

    def commits_since(self, path: str, version: int) -> list[DeltaCommit] | None:
        """See `TableLogs.commits_since`."""
        try:
            commits = self._logs.commits_since(path, version)
        except DamagedLogError as error:
            raise UnreadableLogError(str(error)) from error
        if commits is None:
            return self.log.since(path, version)
        return [delta_log.commit_of(number, commit) for number, commit in enumerate(commits, version + 1)]

    def existing(self, path: str) -> TableSnapshot:
        snapshot = self.snapshot(path)
        if snapshot is None:
            raise FileNotFoundError(path)
        return snapshot

    def exists(self, path: str) -> bool:
        return path in self._there or self.snapshot(path) is not None  # which notes it

    def last_transaction(self, path: str, app: str) -> int:
        """See `TableLogs.last_transaction`."""
        snapshot = self.snapshot(path)
        return -1 if snapshot is None else snapshot.log.transactions.get(app_of(app, self._shard), -1)

    def forget_all(self) -> None:
        """Drop the cached state of tables that another engine may have changed."""
        self._logs.look_again()
        self._snapshots, self._versions = {}, {}

    def forget(self, path: str) -> None:
        """Drop the cached state of a table that is about to change."""
        self._logs.look_again(path)
        self._snapshots.pop(path, None)
        self._versions.pop(path, None)

    def version(self, path: str) -> int | None:
        """The newest version as this run knows it, else by the log; None where there is no table.

        A commit of another writer since is no version of this run's: the next run finds it.
        """
        if path in self._versions:
            return self._versions[path]
        if path in self._snapshots:
            snapshot = self._snapshots[path]
            return None if snapshot is None else snapshot.log.version
        return self.log.version(path)

    def data_columns(self, path: str) -> tuple[Column, ...]:
        """Columns of a table without `_gddl`."""
        return tuple(c for c in self.columns(path) if c.name != GDDL)

    def columns(self, path: str) -> tuple[Column, ...]:
        """See `TableLogs.columns`."""
        return self.existing(path).schema.columns

    def metrics(self, path: str, app: str, version: int) -> dict[str, int]:
        """Operation metrics of a transaction's commit; empty where there is none."""
        return self.log.metrics(path, user_metadata(app_of(app, self._shard), version))

    def read(self, path: str, keep: Callable[[DataFile], bool] | None = None) -> pa.Table:
        """All rows, or those of some files."""
        snapshot = self.existing(path)
        files = [f for f in snapshot.files if keep is None or keep(f)]
        return self.read_files(snapshot, files, snapshot.schema.names)

    def each_file(self, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Rows of each file of a table: those of one are in memory at a time."""
        snapshot = self.existing(path)
        for file in snapshot.files:
            yield self.read_files(snapshot, [file], columns or snapshot.schema.names)

    def read_files(
        self, snapshot: TableSnapshot, files: Sequence[DataFile], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows of files, one after the other, in the table's types.

        Args:
            columns: only these; None: all of `TableSnapshot.whole_rows`.
        """
        schema = snapshot.whole_rows
        if columns is not None:
            schema = fields_of(schema, columns)
        parts = [read_file(self.storage, snapshot.path, f, schema) for f in files]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def require_creatable(self, spec: TableSpec, tier: TierSpec) -> None:
        """See `snapshots.require_creatable`."""
        require_creatable(spec, tier, self.features)

    def create(self, definition: TableDefinition) -> None:
        """Create the table unless it exists; the folder may hold data files."""
        path = definition.path
        if not self.exists(path):
            liquid = CLUSTERING in self.features
            delta_log.create(self.storage, path, delta_log.creation(definition, self._now(), liquid=liquid))
            self.forget(path)

    def add_files(
        self, path: str, transaction: tuple[str, int], files: Sequence[Action], metrics: Mapping[str, int]
    ) -> None:
        """Name data files in a commit; once for each transaction.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        app, version = transaction
        if self.last_transaction(path, app) < version:
            self.commit_actions(self.existing(path), files, Write(app=app, version=version, metrics=metrics))

    def add_columns(self, path: str, columns: Sequence[Column]) -> None:
        """Add columns at the end, null in all existing rows.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        self._allow(path, columns)
        self._alter(path, "ADD COLUMNS", _with_columns(self.existing(path).log, columns), [c.name for c in columns])

    def extend(
        self, path: str, column: Column, properties: Mapping[str, str], transaction: tuple[str, int], version: int
    ) -> int:
        """Add a column and properties by metadata in one commit, the one after a version; returns its version.

        The transaction makes it idempotent: of one that was made, the version is looked up.

        Raises:
            RetriableError: `DELTA_CONFLICT`: there is another commit.
        """
        app, number = transaction
        log = self.existing(path).log
        if self.last_transaction(path, app) >= number:
            return version + 1
        metadata = delta_log.metadata(log, schema=_with_columns(log, [column]), changed=properties)
        now, app = self._now(), app_of(app, self._shard)
        done = delta_log.info(now, "ADD COLUMNS", user_metadata(app, number), {}, columns=json.dumps([column.name]))
        head = [done, delta_log.transaction(app, number, now), metadata]
        made = delta_log.commit(self.storage, path, version + 1, delta_log.with_row_ids(log, head))
        self.forget(path)
        self._logs.note(path, log.after(made))
        return version + 1

    def target_of_files(self, path: str, schema: DeltaSchema) -> Target:
        """Where new files of a table go that `withdraw` commits."""
        return self._target(self.existing(path), Write(schema=schema))

    def withdraw(self, path: str, schema: DeltaSchema, removed: Sequence[DataFile], made: Written) -> None:
        """Replace files by others of the same rows, the schema, and our properties by none, in one commit.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        snapshot, now = self.existing(path), self._now()
        log = snapshot.log
        kept = {name: value for name, value in log.properties.items() if not name.startswith(f"{OURS}.")}
        if (named := kept.get(COLUMNS)) is not None:
            kept[COLUMNS] = restricted(str(named), schema.columns)
        files = FileWriter(self.storage, self._target(snapshot, Write(schema=schema)), now)
        head: list[Action] = [delta_log.info(now, "WRITE", OURS, {})]
        head.append({"metaData": {**log.metadata, "schemaString": schema.to_json(), "configuration": kept}})
        head += [files.removal(file, data_change=False) for file in removed]
        self._put(log, path, [*head, *made.actions(data_change=False)])

    def grow(self, path: str, types: Mapping[str, SqlType]) -> Mapping[str, SqlType]:
        """Give columns types that they can grow to without new files; returns those that need new ones.

        Here all but `_gddl` that only gets fields: readers of its files take one that is missing for null.
        """
        stored = self.existing(path).schema.types
        longer = {n: kind for n, kind in types.items() if n == GDDL and not any(widenings(stored[n], kind, ()))}
        if longer:
            self.retype(path, longer)
        return {name: kind for name, kind in types.items() if name not in longer}

    def retype(self, path: str, types: Mapping[str, SqlType]) -> None:
        """Give columns other types, which all files can be read as.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        self._allow(path, [Column(name, kind) for name, kind in types.items()])
        schema = self.existing(path).schema.retyped(types)
        self._alter(path, "CHANGE COLUMN", schema.to_json(), list(types))

    def _alter(self, path: str, operation: str, schema: str, names: Sequence[str]) -> None:
        log = self.existing(path).log
        done = delta_log.info(self._now(), operation, OURS, {}, columns=json.dumps(names))
        self._put(log, path, [done, delta_log.metadata(log, schema=schema)])

    def _allow(self, path: str, columns: Sequence[Column]) -> None:
        """Add the table features that such columns require."""
        snapshot = self.existing(path)
        features = missing_features(snapshot.log, columns)
        if features:
            done = delta_log.info(self._now(), "ADD FEATURE", OURS, {}, name=",".join(features))
            protocol = delta_log.with_features(snapshot.log.protocol, features)
            self._put(snapshot.log, path, [done, {"protocol": protocol}])

    def properties(self, path: str) -> dict[str, str | None]:
        return self.existing(path).log.properties

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set the properties that differ, in one commit.

        Raises:
            DeclinedError: one of them requires more of a writer than there is here.
        """
        stored = self.properties(path)
        changed = {name: value for name, value in properties.items() if stored.get(name) != value}
        if changed:
            require_settable(changed)
            log, now = self.existing(path).log, self._now()
            done = delta_log.info(now, "SET TBLPROPERTIES", OURS, {}, properties=json.dumps(changed))
            delta_log.commit(self.storage, path, log.version + 1, delta_log.setting(log, done, changed))
            self.forget(path)

    def clustering(self, path: str) -> tuple[str, ...]:
        """Columns by which the table's rows are ordered or clustered."""
        return self.existing(path).cluster_by

    def cluster(self, path: str, columns: Sequence[str]) -> None:
        """Order or cluster rows that are written from now on by these columns."""
        self.set_properties(path, {CLUSTER_BY: json.dumps(columns)})

    def prepare_replacement(self, definition: TableDefinition) -> None:
        """Before the rows and the schema of a table are replaced by those of the definition."""

    def index(self, definition: TableDefinition) -> None:
        """Index the columns of a definition whose rows were replaced: the property follows the statistics."""
        self.set_properties(definition.path, definition.skipping)

    def indexed_with(
        self, path: str, columns: Sequence[Column], properties: Mapping[str, str]
    ) -> tuple[ColumnPath, ...]:
        """Which of these columns are indexed by the table's current properties, and with `properties` in addition."""
        stored = self.properties(path)
        both = (*indexed_columns(columns, stored), *indexed_columns(columns, {**stored, **properties}))
        return tuple(dict.fromkeys(both))

    def reindex(self, path: str, properties: Mapping[str, str]) -> None:
        """Set properties, those of indexed columns among them, once all files have the statistics."""
        self._restate(path, self.indexed_with(path, self.existing(path).schema.columns, properties))
        self.set_properties(path, properties)

    def set_comments(self, path: str, description: str, comments: Mapping[str, str]) -> None:
        """Set comments of the table (empty: as it is) and of columns.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        log, now = self.existing(path).log, self._now()
        done = delta_log.info(now, "CHANGE COLUMN", OURS, {}, columns=json.dumps(sorted(comments)))
        schema = delta_log.commented(log.schema, comments)
        metadata = delta_log.metadata(log, schema=schema, description=description)
        self._put(log, path, [done, metadata])

    def _put(self, log: ReplayedLog, path: str, actions: Sequence[Action]) -> None:
        """Commit actions after a version, as they are but for row ids."""
        delta_log.commit(self.storage, path, log.version + 1, delta_log.with_row_ids(log, actions))
        self.forget(path)

    @property
    def moment(self) -> int:
        """Milliseconds since 1970."""
        return self._now()

    def _now(self) -> int:
        return int(self._clock().timestamp() * 1000)

    def _restate(self, path: str, indexed: Sequence[ColumnPath]) -> None:
        """Rewrite the statistics of all files, not the files.

        An `add` of an existing file replaces the previous one.
        """
        snapshot = self.existing(path)
        files = [f for f in snapshot.files if f.vector is None]  # others' are by a writer that has them all
        work = Restated(path, snapshot.schema.arrow, without(indexed, snapshot.partition_by), self._now())
        actions = self.place_for(sum(f.size for f in files)).run(work, files)
        if actions:
            self.commit_actions(snapshot, actions, Write(rearranged=True))

    def target_of(self, definition: TableDefinition) -> Target:
        """Where new rows of a table go that has the columns of a definition when they are committed."""
        snapshot = self.snapshot(definition.path)
        if snapshot is None:
            return self.placed(Target.of(definition))
        target = Target(
            path=definition.path, schema=snapshot.with_row_ids(DeltaSchema(definition.columns).arrow),
            partition_by=snapshot.partition_by, cluster_by=snapshot.cluster_by,
            indexed=indexed_columns(definition.columns, snapshot.properties), packed=snapshot.writes_vectors,
            row_ids=snapshot.row_ids,
        )  # fmt: skip
        return self.placed(target)

    def placed(self, target: Target) -> Target:
        """The target at the place where files are written before their commit."""
        return target

    def target(self, path: str, schema: DeltaSchema | None = None) -> Target:
        """Where new files of a table go, as it is or with another schema."""
        return self.placed(self._target(self.existing(path), Write(schema=schema)))

    def _target(self, snapshot: TableSnapshot, write: Write) -> Target:
        schema = write.schema or snapshot.schema
        return Target(
            path=snapshot.path, schema=snapshot.with_row_ids(schema.arrow),
            indexed=indexed_columns(schema.columns, snapshot.log.properties), cluster_by=snapshot.cluster_by,
            packed=snapshot.writes_vectors, row_ids=snapshot.row_ids,
            partition_by=snapshot.partition_by if write.partition_by is None else write.partition_by,
        )  # fmt: skip

    def commit(self, path: str, write: Write) -> None:
        """Make one commit, or none if its transaction was made before.

        Raises:
            RetriableError: `DELTA_CONFLICT`: another writer has changed the table.
        """
        if write.app and write.once and self.last_transaction(path, write.app) >= write.version:
            return
        if write.schema is not None:
            self._allow(path, write.schema.columns)
        snapshot = self.existing(path)
        target = self._target(snapshot, write)
        write = replace(
            write,
            added=[by_name(rows, target.schema) for rows in write.added if rows.num_rows],
            removed=snapshot.files if write.removed is None else write.removed,
        )
        files = FileWriter(self.storage, target, self._now())
        feed: list[Action] = []
        if snapshot.feeds_changes and not write.rearranged:
            known = write.written
            feed, differs = self._feed(snapshot, files, write) if known is None else (list(known.feed), known.differs)
            write = replace(write, rearranged=not differs)
        actions = [files.removal(file, data_change=not write.rearranged) for file in write.removed or ()]
        actions += self._deleted(snapshot, files, write) if write.deleted else []
        for rows in write.added:
            actions += files.data(rows, data_change=not write.rearranged)
        actions += [] if write.written is None else write.written.actions(data_change=not write.rearranged)
        self.commit_actions(snapshot, [*feed, *actions], write)

    def _feed(self, snapshot: TableSnapshot, files: FileWriter, write: Write) -> tuple[list[Action], bool]:
        """See `FileWriter.feed`."""
        schema = files.target.schema
        before = [
            self.read_files(snapshot, write.removed or ()),
            *(() if write.deleted_rows is None else (write.deleted_rows,)),
        ]
        after = pa.concat_tables([schema.empty_table(), *write.added])
        return files.feed(
            pa.concat_tables([by_name(rows, schema) for rows in before]), after, write.keys, partly=bool(write.deleted)
        )

    def _deleted(self, snapshot: TableSnapshot, files: FileWriter, write: Write) -> list[Action]:
        """Removal of single rows: by vectors, or by writing the files again that get none.

        All of a commit's actions say alike whether data changes: of one without change data files, readers derive its
        changes from those that do.
        """
        data_change = not write.rearranged
        remaining = files.remaining(write.deleted)
        vectors = [
            one for one in remaining if snapshot.writes_vectors and suits(one.file.stored_path, one.deleted, one.count)
        ]
        again = [one for one in remaining if one not in vectors and one.deleted < one.count]
        made = [files.removal(one.file, data_change=data_change) for one in remaining]
        made += files.with_vectors(vectors, data_change=data_change)
        work = WithoutRows(target=files.target, now=files.now)
        place = self.place_for(sum(one.file.size for one in again))
        for report in place.run(work, [(one.file, one.rows) for one in again]):
            made += Written(files=report).actions(data_change=data_change)
        return made

    def commit_actions(self, snapshot: TableSnapshot, actions: Sequence[Action], write: Write) -> None:
        path, now = snapshot.path, self._now()
        app = app_of(write.app, self._shard) if write.app else ""
        by = user_metadata(app, write.version) if app else OURS
        head: list[Action] = [delta_log.info(now, "WRITE", by, write.metrics)]
        if app:
            head.append(delta_log.transaction(app, write.version, now))
        partitions = snapshot.partition_by if write.partition_by is None else write.partition_by
        schema = write.schema or snapshot.schema
        if schema != snapshot.schema or partitions != snapshot.partition_by:
            head.append(delta_log.metadata(snapshot.log, schema=schema.to_json(), partition_by=partitions))
        self.forget(path)
        log = snapshot.log
        actions = delta_log.with_row_ids(log, [*head, *actions], keeps_rows=write.keeps_rows)
        made = delta_log.commit(self.storage, path, log.version + 1, actions)
        self._logs.note(path, log.after(made))
        keep_log_short(self.storage, path, log, snapshot.opened)
        self._versions[path] = log.version + 1


def _with_columns(log: ReplayedLog, columns: Sequence[Column]) -> str:
    """The table's schema (JSON) with further columns."""
    schema = json.loads(log.schema)
    schema["fields"] += json.loads(DeltaSchema(tuple(columns)).to_json())["fields"]
    return json.dumps(schema)
