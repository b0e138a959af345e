"""Tables that only Spark's Delta can write: rows are decided as everywhere, staged as files, and reach them by `MERGE`.

Files of readable tables are read where they are. Of others, whose files say nothing without Spark (column mapping,
commits that a catalog keeps), Spark makes a plain copy for the run.
"""

from __future__ import annotations

import functools
import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any, TypeAlias, cast
from uuid import uuid4

import delta.tables
import pyspark.sql as ps
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.codes import NOT_NULL_UNSUPPORTED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.features import WIDENS
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.contract.sql_types import SqlType, literal, parse_type, parts, quote, quoted
from airflow_gddl.stores import Storage
from spark_jobs.plan import table_schema as planned
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.plan.types import Addition, Widening, extra_fields, widenings, widens
from spark_jobs.rules.arrays import DeltaSchema, schema_of
from spark_jobs.spark.session import FOR_FEW_ROWS, SQL_SETTINGS, configure
from spark_jobs.tables import deletion_vectors, table_definition
from spark_jobs.tables.data_files import Target, WithoutRows
from spark_jobs.tables.delta_log import OURS, Action, DeltaCommit, DeltaCommits, app_of, conflict, is_on, user_metadata
from spark_jobs.tables.delta_tables import Clock, Tables, Write, Written
from spark_jobs.tables.file_parts import file_path
from spark_jobs.tables.places import DeclinedError, Place, TaskBounds
from spark_jobs.tables.replayed_log import ReplayedLog, replayed
from spark_jobs.tables.row_ids import RowIdColumns
from spark_jobs.tables.snapshots import BESIDE_SPARK, CLUSTERING, TableSnapshot, is_readable, is_settable
from spark_jobs.tables.table_definition import WITH_VECTORS, TableDefinition


def at(side: str, column: str) -> ps.Column:
    """A column of one side of a join or merge by its exact name, which may have dots and spaces."""
    return F.col(f"{side}.{quoted(column)}")


def equal_at(left: str, right: str, names: Sequence[str]) -> ps.Column:
    """Whether columns are equal on both sides of a join or merge; nulls are equal."""
    return reduce(and_, (at(left, n).eqNullSafe(at(right, n)) for n in names))


Assignments: TypeAlias = dict[str, str | Column]
"""Assignments of a clause of Delta's merge builder."""

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NOT_NULL = '"nullable":false'


@dataclass(frozen=True)
class SparkTables:
    """Delta tables in one Spark session; each table has its own session, for its transaction settings."""

    spark: SparkSession
    log: DeltaCommits
    few_rows: bool = False
    shard: str = ""
    bounds: TaskBounds = field(default_factory=TaskBounds)

    def suited(self, *, few_rows: bool) -> SparkTables:
        """The tables in a session with settings for few rows, or many."""
        if few_rows == self.few_rows:
            return self
        session = self.spark.newSession()
        configure(session, {**SQL_SETTINGS, **(FOR_FEW_ROWS if few_rows else {})})
        return replace(self, spark=session, few_rows=few_rows)

    @property
    def slots(self) -> int:
        """Tasks that can run at once, as far as the session reports it; 4 where it doesn't (Spark Connect)."""
        try:
            return max(1, int(self.spark.sparkContext.defaultParallelism))
        except Exception:  # noqa: BLE001 - Connect raises various errors for missing methods
            return 4

    def exists(self, path: str) -> bool:
        return self.log.exists(path)

    def read(self, path: str) -> DataFrame:
        return self.spark.read.format("delta").load(path)

    def handle(self, path: str) -> delta.tables.DeltaTable:
        return delta.tables.DeltaTable.forPath(self.spark, path)

    def version(self, path: str) -> int | None:
        return self.log.version(path)

    def recall(self, path: str, log: ReplayedLog | None) -> None:
        """Delta on Spark reads logs itself."""

    def known_log(self, path: str) -> ReplayedLog | None:  # noqa: ARG002 - as above
        return None

    def forget_all(self) -> None:
        """Nothing is kept: Delta on Spark looks again at each use."""

    def commits_since(self, path: str, version: int) -> list[DeltaCommit] | None:
        return self.log.since(path, version)

    def data_columns(self, path: str) -> tuple[planned.Column, ...]:
        return tuple(c for c in self.columns(path) if c.name != GDDL)

    def last_transaction(self, path: str, app: str) -> int:
        """Highest transaction version that `app` committed to the table; -1 when none."""
        if not self.exists(path):
            return -1
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:  # its Delta has no such classes
            return self.log.last_transaction(path, app_of(app, self.shard))
        version = self._snapshot(path).transactions().get(app_of(app, self.shard))
        return int(version.get()) if version.isDefined() else -1

    def _snapshot(self, path: str) -> Any:
        """Delta's own, at the newest version.

        Delta reads checkpoints with the active session of Java's thread, which may have served no query yet.
        """
        jvm: Any = self.spark._jvm  # noqa: SLF001 - Delta has no public way to a table's transactions
        named = getattr(self.spark, "_get_j_spark_session_class", None)  # of Spark 4
        java = jvm.org.apache.spark.sql.SparkSession if named is None else named(jvm)
        java.setActiveSession(self.spark._jsparkSession)  # noqa: SLF001 - as above
        none = jvm.scala.Option.empty()
        return self._delta_log(path).update(False, none, none)

    def _delta_log(self, path: str) -> Any:
        jvm: Any = self.spark._jvm  # noqa: SLF001 - as above
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, path)  # noqa: SLF001 - as above

    def metadata(self, path: str) -> dict[str, Any]:
        """The table's `metaData` action, with the features of its `protocol` as `features`.

        `DESCRIBE DETAIL` answers the same and the table's size, for which Delta computes the state of the version: a
        second of a small table, more of a large one.
        """
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:  # its Delta has no such classes
            detail = self.handle(path).detail().collect()[0].asDict()
            return {**detail, "configuration": detail["properties"], "features": detail["tableFeatures"]}
        snapshot = self._snapshot(path)
        protocol = json.loads(snapshot.protocol().json())["protocol"]
        return {**json.loads(snapshot.metadata().json())["metaData"], "features": protocol.get("writerFeatures", [])}

    @contextmanager
    def transaction(self, app: str, version: int, metrics: Mapping[str, int]) -> Iterator[None]:
        """Writes inside are made once per (table, app, version): Delta skips repeated ones.

        Args:
            metrics: figures of the commit, stated in its user metadata; empty: those that Delta counts.
        """
        conf, app = self.spark.conf, app_of(app, self.shard)
        conf.set(_TXN_APP, app)
        conf.set(_TXN_VERSION, str(version))
        conf.set(_METADATA, user_metadata(app, version, metrics))
        try:
            yield
        finally:
            conf.unset(_TXN_APP)
            conf.unset(_TXN_VERSION)
            conf.set(_METADATA, OURS)

    def create(self, definition: TableDefinition) -> None:
        """Create the table unless it exists."""
        builder = delta.tables.DeltaTable.createIfNotExists(self.spark).location(definition.path)
        for column in definition.columns:
            builder = builder.addColumn(column.name, spark_type(str(column.type)), nullable=True)
        for key, value in definition.created_with.items():
            builder = builder.property(key, value)
        if definition.partition_by:
            builder = builder.partitionedBy(*definition.partition_by)
        if definition.cluster_by:
            builder = builder.clusterBy(*definition.cluster_by)
        builder.execute()

    def overwriting(self, rows: DataFrame, path: str, partition_by: Sequence[str]) -> DataFrameWriter:
        """With another schema Delta takes the partitions of the writer, too, and makes every column nullable."""
        writer = rows.write.format("delta").mode("overwrite")
        stored = self.read(path).schema
        if required := [field.name for field in stored.fields if _NOT_NULL in field.json()]:
            if _typed(stored) == _typed(rows.schema) and list(partition_by) == (
                self.metadata(path)["partitionColumns"] or []
            ):
                return writer
            raise _not_null_unsupported(path, required)
        writer = writer.option("overwriteSchema", "true")
        return writer.partitionBy(*partition_by) if partition_by else writer

    def properties(self, path: str) -> dict[str, str]:
        return dict(self.metadata(path)["configuration"])

    def description(self, path: str) -> str:
        return str(self.metadata(path).get("description") or "")

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set the properties that differ, in one commit."""
        stored = self.properties(path)
        changed = {name: value for name, value in properties.items() if stored.get(name) != value}
        if changed:
            pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in changed.items())
            self.alter(path, f"SET TBLPROPERTIES ({pairs})")

    def restate(self, path: str) -> None:
        """Rewrite the statistics of all files by the table's properties, not the files."""
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:
            self.spark.sql(f"ANALYZE TABLE {_quoted(path)} COMPUTE DELTA STATISTICS")
            return
        jvm: Any = self.spark._jvm  # noqa: SLF001 - Delta has no statement for it outside Databricks
        log, collection = self._delta_log(path), jvm.org.apache.spark.sql.delta.stats.StatisticsCollection
        every = getattr(collection, "recompute$default$5")()
        nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
        collection.recompute(self.spark._jsparkSession, log, jvm.scala.Option.empty(), nothing, every)  # noqa: SLF001 - as above

    def allow(self, path: str, columns: Sequence[planned.Column]) -> None:
        """Add the table features that such columns require.

        A new table has those of its first columns; later ones must be set.
        """
        if not any(str(part) == "timestamp_ntz" for column in columns for part in parts(column.type)):
            return
        if "timestampNtz" not in self.metadata(path)["features"]:
            self.alter(path, "SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")

    def columns(self, path: str) -> tuple[planned.Column, ...]:
        """All columns, including `_gddl`, in order."""
        fields = self.read(path).schema.fields
        return tuple(planned.Column(f.name, parse_type(sql_text(f.dataType))) for f in fields)

    def clustering(self, path: str) -> tuple[str, ...]:
        """Columns that the table is clustered by."""
        if "clustering" not in self.metadata(path)["features"]:
            return ()
        return tuple(self.handle(path).detail().select("clusteringColumns").collect()[0][0] or ())

    def alter(self, path: str, change: str) -> None:
        """Run `ALTER TABLE ... change`."""
        self.spark.sql(f"ALTER TABLE {_quoted(path)} {change}")


def _typed(schema: T.StructType) -> list[tuple[str, str]]:
    return [(field.name, sql_text(field.dataType)) for field in schema.fields]


def _not_null_unsupported(path: str, columns: Sequence[str]) -> FatalError:
    what = f"{', '.join(columns)} may not be null, and Delta replaces the table's schema only without NOT NULL"
    remedy = f"ALTER TABLE delta.`{path}` ALTER COLUMN {columns[0]} DROP NOT NULL, then ADD CONSTRAINT required CHECK "
    remedy += f"({columns[0]} IS NOT NULL), which stays"
    return FatalError(NOT_NULL_UNSUPPORTED, what, where=path, remedy=remedy)


def _quoted(path: str) -> str:
    return f"delta.{quoted(path)}"


@functools.cache
def spark_type(text: str) -> T.DataType:
    """A type from its SQL text; cached, since Spark's parser is called over the gateway."""
    return cast("T.StructType", T.StructType.fromDDL(f"c {text}")).fields[0].dataType


def sql_text(kind: T.DataType) -> str:
    """A Spark type as SQL text with every field name quoted."""
    if isinstance(kind, T.StructType):
        fields = ",".join(f"{quoted(f.name)}:{sql_text(f.dataType)}" for f in kind.fields)
        return f"struct<{fields}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{sql_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{sql_text(kind.keyType)},{sql_text(kind.valueType)}>"
    return kind.simpleString()


_GONE = f"{GDDL}__gone"
_STORED, _STAGED = "stored", "staged"
"""Sides of a merge."""
_GENERATED = ("delta.generationExpression", "delta.identity.")
_WIDENS = "delta.enableTypeWidening"


@dataclass(frozen=True)
class MergedSnapshot(TableSnapshot):
    """A table that Spark writes, or its copy.

    Attributes:
        path: where its files are.
        stored_properties, stored_partitions, stored_version: of the table; a copy has others.
    """

    stored_properties: Mapping[str, str] = field(default_factory=dict)
    stored_partitions: tuple[str, ...] = ()
    stored_version: int | None = None

    @property
    def writes_vectors(self) -> bool:
        """Changed rows are named one by one, whatever Delta does with their files."""
        return True

    @property
    def feeds_changes(self) -> bool:
        """Delta writes the feed itself."""
        return False

    @property
    def row_ids(self) -> RowIdColumns | None:
        """Delta keeps them itself."""
        return None

    @property
    def properties(self) -> Mapping[str, str | None]:
        return dict(self.stored_properties)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.stored_partitions


class MaintainedTables(Tables):
    """See `Tables`; Spark's Delta widens types without new files, and clusters rows."""

    def __init__(self, spark: SparkTables, clock: Clock, place: Place) -> None:
        super().__init__(spark.log.storage, clock, spark.shard, BESIDE_SPARK)
        self._place, self._spark, self.bounds = place, spark, spark.bounds

    def grow(self, path: str, types: Mapping[str, SqlType]) -> Mapping[str, SqlType]:
        stored = self.existing(path).schema.types
        remaining: dict[str, SqlType] = {}
        fields: list[Addition] = []
        wider: list[Widening] = []
        for name, kind in types.items():
            changes = [one for one in widenings(stored[name], kind, (name,)) if not widens(one.after, one.before)]
            if any(str(one.after) == "string" for one in changes) or (changes and not self._widens(path)):
                remaining[name] = kind  # no widening that Delta or all readers know
            else:
                fields += extra_fields(stored[name], kind, (name,))
                wider += changes
        if fields or wider:
            self._spark.allow(path, [planned.Column(name, kind) for name, kind in types.items()])
        if fields:
            self._alter_in_spark(path, f"ADD COLUMNS ({', '.join(f'{one.name} {one.type}' for one in fields)})")
        if wider:
            self._alter_in_spark(path, f"SET TBLPROPERTIES ('{_WIDENS}' = 'true')")
        for one in wider:
            self._alter_in_spark(path, f"CHANGE COLUMN {one.name} TYPE {one.after}")
        return remaining

    def _widens(self, path: str) -> bool:
        """Whether the table's readers have to know newer features anyway."""
        properties = self.existing(path).properties
        return is_on(properties, WITH_VECTORS) and properties.get(WIDENS) != "false"

    def clustering(self, path: str) -> tuple[str, ...]:
        if CLUSTERING not in self.existing(path).log.writer_features:
            return ()
        return self._spark.clustering(path)

    def cluster(self, path: str, columns: Sequence[str]) -> None:
        names = f"({', '.join(map(quoted, columns))})" if columns else "NONE"
        self._alter_in_spark(path, f"CLUSTER BY {names}")

    def _alter_in_spark(self, path: str, change: str) -> None:
        self._spark.alter(path, change)
        self.forget(path)


class MergedTables(MaintainedTables):
    """See `Tables`; each commit is one of Spark's Delta."""

    arranges_files = False
    commit_method = "merge"

    def __init__(self, spark: SparkTables, clock: Clock, layout: Layout, place: Place) -> None:
        """Prepare a run whose tables Spark's `MERGE` writes.

        Args:
            layout: of the table: staged files go below its ledger, and rows of its replica have unique keys.
        """
        super().__init__(spark, clock, place)
        self._layout = layout
        self._copies: dict[str, str] = {}
        """Tables by the folder of their copy."""
        self._staging = join(layout.state, "staged", uuid4().hex)
        self._unstage = weakref.finalize(self, _remove_all, self.storage, self._staging)

    def snapshot(self, path: str) -> TableSnapshot | None:
        return super().snapshot(self._copies.get(path, path))

    def _open(self, path: str) -> TableSnapshot | None:
        if not self._spark.exists(path):
            return None
        version, log, where = self._spark.version(path), self._opened(path), path
        known = self._spark.metadata(path)
        if log is None:
            where = self._copy(path)
            log = replayed(self.storage, where)
            if log is None:
                raise FileNotFoundError(where)
            self._copies[where] = path
        self._there.add(path)
        schema = schema_of(log.schema)
        # Delta computes the values of generated columns, and takes no others.
        generated = {n for n, known in schema.metadata.items() if any(key.startswith(_GENERATED) for key in known)}
        kept = tuple(column for column in schema.columns if column.name not in generated)
        return MergedSnapshot(
            where, log, replace(schema, columns=kept), self.storage, dict(known["configuration"]),
            tuple(known["partitionColumns"] or ()), version,
        )  # fmt: skip

    def _opened(self, path: str) -> ReplayedLog | None:
        """The table's log; null where its files can't be read as they are."""
        try:
            log = self._newest(path)
        except DeclinedError:
            return None
        return log if log is not None and is_readable(log, vectors=deletion_vectors.are_known()) else None

    def _copy(self, path: str) -> str:
        """Folder of a plain copy of a table."""
        copy, rows = join(self._staging, uuid4().hex), self._spark.read(path)
        plain = [F.col(quoted(f.name)).alias(f.name, metadata={}) for f in rows.schema.fields]
        rows.select(*plain).write.format("delta").option(WITH_VECTORS, "false").save(copy)
        return copy

    def exists(self, path: str) -> bool:
        return self._spark.exists(path)

    def version(self, path: str) -> int | None:
        return self._spark.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        return self._spark.last_transaction(path, app)

    def create(self, definition: TableDefinition) -> None:
        """Create the table unless it exists.

        Spark creates it in an empty folder alone, and a writer that was interrupted may have left files.
        """
        path = definition.path
        if not self.exists(path) and self.storage.exists(path) and is_settable(definition.properties):
            super().create(definition)
        else:
            self._spark.create(definition)
        self.forget(path)

    def require_creatable(self, spec: TableSpec, tier: TierSpec) -> None:
        """Spark creates all."""

    def add_columns(self, path: str, columns: Sequence[planned.Column]) -> None:
        self._spark.allow(path, columns)
        self._alter_in_spark(path, f"ADD COLUMNS ({', '.join(f'{quoted(c.name)} {c.type}' for c in columns)})")

    def clustering(self, path: str) -> tuple[str, ...]:
        return self._spark.clustering(path)

    def set_comments(self, path: str, description: str, comments: Mapping[str, str]) -> None:
        stored = {field.name: field.metadata.get("comment") for field in self._spark.read(path).schema.fields}
        for column in (name for name, comment in comments.items() if stored.get(name) != comment):
            self._alter_in_spark(path, f"ALTER COLUMN {quote(column)} COMMENT {literal(comments[column])}")
        if description not in ("", self._spark.description(path)):
            # With a path, Spark accepts the table's comment only as a property.
            self._alter_in_spark(path, f"SET TBLPROPERTIES ('comment' = {literal(description)})")

    def prepare_replacement(self, definition: TableDefinition) -> None:
        """Delta refuses a schema that lacks an indexed column, or needs a table feature.

        Delta can't rewrite statistics of tables with deletion vectors: there the columns are named now that get
        statistics and that the table has already. Elsewhere that would mislead readers until the files are replaced.
        """
        self._spark.allow(definition.path, definition.columns)
        properties = self.properties(definition.path)
        named = properties.get(table_definition.COLUMNS)
        if named is None:
            return
        if is_on(properties, WITH_VECTORS):
            stored = self.existing(definition.path).schema.types
            unchanged = [c for c in definition.columns if stored.get(c.name) == c.type]
            named = table_definition.restricted(definition.skipping[table_definition.COLUMNS], unchanged)
            self.set_properties(definition.path, {table_definition.COLUMNS: named})
            return
        kept = table_definition.restricted(
            named, [c for c in definition.columns if c.name not in definition.partition_by]
        )
        if table_definition.names_of(kept) != table_definition.names_of(named):
            self.set_properties(definition.path, {table_definition.COLUMNS: kept})

    def add_files(
        self, path: str, transaction: tuple[str, int], files: Sequence[Action], metrics: Mapping[str, int]
    ) -> None:
        app, version = transaction
        self.commit(path, Write(app=app, version=version, metrics=metrics, written=Written(files=files)))

    def properties(self, path: str) -> dict[str, str | None]:
        return dict(self._spark.properties(path))

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        self._spark.set_properties(path, properties)
        self.forget(path)

    def index(self, definition: TableDefinition) -> None:
        wanted = definition.skipping
        if wanted.get(table_definition.COLUMNS) != self.properties(definition.path).get(table_definition.COLUMNS):
            self.reindex(definition.path, wanted)

    def reindex(self, path: str, properties: Mapping[str, str]) -> None:
        """Delta writes the statistics by the table's properties, except of tables with deletion vectors."""
        self.set_properties(path, properties)
        if not is_on(self.properties(path), WITH_VECTORS):
            self._spark.restate(path)
            self.forget(path)

    def placed(self, target: Target) -> Target:
        return Target(path=self._staging, schema=target.schema)

    def commit(self, path: str, write: Write) -> None:
        path = self._copies.get(path, path)
        done = write.app and write.once and self.last_transaction(path, write.app) >= write.version
        if done or write.rearranged:  # Delta compacts by itself
            return
        snapshot = self._unchanged(path)
        schema = write.schema or snapshot.schema
        self._spark.allow(path, schema.columns)
        target, now = Target(path=self._staging, schema=schema.arrow), self._now()
        added = [action for rows in write.added for action in target.write(self.storage, rows, now)]
        added += [] if write.written is None else write.written.files
        removed = self._gone(snapshot, write)
        rows = self._staged(schema, added)
        with self._spark.transaction(write.app, write.version, write.metrics) if write.app else nullcontext():
            if write.removed is None:
                partitions = snapshot.partition_by if write.partition_by is None else write.partition_by
                self._spark.overwriting(rows, path, partitions).save(path)
            elif removed:
                self._merge(path, rows, self._staged(snapshot.schema, removed), write)
            else:
                rows.write.format("delta").mode("append").save(path)
        self.forget(path)
        self.storage.delete(*map(self._path, (*added, *removed)))

    def _unchanged(self, path: str) -> TableSnapshot:
        """The version of which rows were read: Delta would merge into any later one.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        snapshot = self.existing(path)
        newest = self.version(path)
        if isinstance(snapshot, MergedSnapshot) and snapshot.stored_version != newest:
            what = f"version {newest} is there, and its rows were read at {snapshot.stored_version}"
            raise conflict(path, what)
        return snapshot

    def _staged(self, schema: DeltaSchema, files: Sequence[Action]) -> DataFrame:
        """Rows of staged files in the columns of a table."""
        kind = T.StructType.fromJson(json.loads(schema.to_json()))
        session, paths = self._spark.spark, [self._path(action) for action in files]
        return session.read.schema(kind).parquet(*paths) if paths else session.createDataFrame([], kind)

    def _path(self, action: Action) -> str:
        return file_path(self._staging, action)

    def _gone(self, snapshot: TableSnapshot, write: Write) -> list[Action]:
        """Staged files of the rows that a commit removes; none where it removes all."""
        actions: list[Action] = []
        work = WithoutRows(target=Target(path=self._staging, schema=snapshot.schema.arrow), now=self._now(),
                           table=snapshot.path, only=True)  # fmt: skip
        parts = [*write.deleted, *((file, None) for file in write.removed or ())]
        place = self.place_for(sum(file.size for file, _ in parts))
        for report in place.run(work, parts):
            actions += report
        return actions

    def _merge(self, path: str, rows: DataFrame, removed: DataFrame, write: Write) -> None:
        """Rows of the replica replace those of their key; in other tables, all columns say which rows go."""
        keys = tuple(write.keys) if path == self._layout.replica else ()
        names = keys or tuple(f.name for f in removed.schema.fields if "map<" not in f.dataType.simpleString())
        lost = _without(removed, rows, names)
        fresh = rows if keys else _without(rows, removed, names)
        source = fresh.withColumn(_GONE, F.lit(False)).unionByName(lost.withColumn(_GONE, F.lit(True)))
        values: Assignments = {quoted(column): at(_STAGED, column) for column in rows.columns}
        is_gone = at(_STAGED, _GONE)
        merge = self._spark.handle(path).alias(_STORED).merge(source.alias(_STAGED), equal_at(_STORED, _STAGED, names))
        merge = merge.whenMatchedDelete(is_gone)
        if keys:
            merge = merge.whenMatchedUpdate(set=values)
        merge.whenNotMatchedInsert(~is_gone, values).execute()


def _without(rows: DataFrame, others: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows that none of the others equals in these columns."""
    return rows.alias(_STORED).join(others.alias(_STAGED), equal_at(_STORED, _STAGED, names), "left_anti")


def _remove_all(storage: Storage, folder: str) -> None:
    storage.delete(*(item.path for item in storage.list(folder)))
