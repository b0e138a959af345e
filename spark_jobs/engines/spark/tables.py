"""Delta tables by path: create, evolve (desired against actual), append and read, every write idempotent."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import types as T

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import literal, parse_type, parts, quoted
from spark_jobs.engines.delta_commits import OURS, DeltaCommits
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import app_of, user_metadata
from spark_jobs.plan import columns as plan_columns
from spark_jobs.spark.session import FOR_FEW_ROWS, SQL_SETTINGS

Result = TypeVar("Result")
Assignments: TypeAlias = dict[str, str | Column]
"""Assignments of a clause of Delta's merge builder."""

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NOT_NULL = '"nullable":false'


@dataclass(frozen=True)
class Tables:
    """Delta tables in one Spark session; each table has its own session, for its transaction settings."""

    spark: SparkSession
    log: DeltaCommits
    few_rows: bool = False
    shard: str = ""

    def suited(self, *, few_rows: bool) -> Tables:
        """The tables in a session with settings for few rows, or many."""
        if few_rows == self.few_rows:
            return self
        session = self.spark.newSession()
        for key, value in {**SQL_SETTINGS, **(FOR_FEW_ROWS if few_rows else {})}.items():
            session.conf.set(key, value)
        return Tables(session, self.log, few_rows, self.shard)

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

    def handle(self, path: str) -> DeltaTable:
        return DeltaTable.forPath(self.spark, path)

    def version(self, path: str) -> int | None:
        return self.log.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        """Highest transaction version that `app` committed to the table; -1 when none."""
        if not self.exists(path):
            return -1
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:  # its Delta has no such classes
            return self.log.last_transaction(path, app_of(app, self.shard))
        found = self._snapshot(path).transactions().get(app_of(app, self.shard))
        return int(found.get()) if found.isDefined() else -1

    def _snapshot(self, path: str) -> Any:
        """Delta's own, at the newest version."""
        jvm: Any = self.spark._jvm  # noqa: SLF001 - Delta has no public way to a table's transactions
        none = jvm.scala.Option.empty()
        return self._delta_log(path).update(False, none, none)

    def _delta_log(self, path: str) -> Any:
        jvm: Any = self.spark._jvm  # noqa: SLF001 - as above
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, path)  # noqa: SLF001 - as above

    def _metadata(self, path: str) -> dict[str, Any]:
        """The table's `metaData` action, with the features of its `protocol` as `features`.

        `DESCRIBE DETAIL` answers the same and the table's size, for which Delta computes the state of the version: a
        second of a small table, more of a large one.
        """
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:  # its Delta has no such classes
            found = self.handle(path).detail().collect()[0].asDict()
            return {**found, "configuration": found["properties"], "features": found["tableFeatures"]}
        snapshot = self._snapshot(path)
        protocol = json.loads(snapshot.protocol().json())["protocol"]
        return {**json.loads(snapshot.metadata().json())["metaData"], "features": protocol.get("writerFeatures", [])}

    @contextmanager
    def transaction(self, app: str, version: int, metrics: Mapping[str, int] | None = None) -> Iterator[None]:
        """Writes inside are made once per (table, app, version): Delta skips repeated ones.

        Args:
            metrics: figures of the commit, stated in its user metadata; null: those that Delta counts.
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
        builder = DeltaTable.createIfNotExists(self.spark).location(definition.path)
        for column in definition.columns:
            builder = builder.addColumn(column.name, spark_type(str(column.type)), nullable=True)
        for key, value in definition.created_with.items():
            builder = builder.property(key, value)
        if definition.partition_by:
            builder = builder.partitionedBy(*definition.partition_by)
        if definition.cluster_by:
            builder = builder.clusterBy(*definition.cluster_by)
        builder.execute()

    def partitions(self, path: str) -> tuple[str, ...]:
        return tuple(self._metadata(path)["partitionColumns"] or ())

    def overwriting(self, rows: DataFrame, path: str, partition_by: Sequence[str]) -> DataFrameWriter:
        """With another schema Delta takes the partitions of the writer, too, and makes every column nullable."""
        writer = rows.write.format("delta").mode("overwrite")
        stored = self.read(path).schema
        if required := [field.name for field in stored.fields if _NOT_NULL in field.json()]:
            if _typed(stored) == _typed(rows.schema) and tuple(partition_by) == self.partitions(path):
                return writer
            raise _not_null_unsupported(path, required)
        writer = writer.option("overwriteSchema", "true")
        return writer.partitionBy(*partition_by) if partition_by else writer

    def properties(self, path: str) -> dict[str, str]:
        return dict(self._metadata(path)["configuration"])

    def description(self, path: str) -> str:
        return str(self._metadata(path).get("description") or "")

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set the properties that differ, in one commit."""
        stored = self.properties(path)
        changed = {name: value for name, value in properties.items() if stored.get(name) != value}
        if changed:
            pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in changed.items())
            self.sql(path, f"ALTER TABLE {{table}} SET TBLPROPERTIES ({pairs})")

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

    def allow(self, path: str, columns: Sequence[plan_columns.Column]) -> None:
        """Add the table features that such columns require.

        A new table has those of its first columns; later ones must be set.
        """
        if not any(str(part) == "timestamp_ntz" for column in columns for part in parts(column.type)):
            return
        if "timestampNtz" not in self._metadata(path)["features"]:
            self.sql(path, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")

    def columns(self, path: str) -> tuple[plan_columns.Column, ...]:
        """All columns, including `_gddl`, in order."""
        fields = self.read(path).schema.fields
        return tuple(plan_columns.Column(f.name, parse_type(sql_text(f.dataType))) for f in fields)

    def clustering(self, path: str) -> tuple[str, ...]:
        """Columns that the table is clustered by."""
        if "clustering" not in self._metadata(path)["features"]:
            return ()
        return tuple(self.handle(path).detail().select("clusteringColumns").collect()[0][0] or ())

    def sql(self, path: str, statement: str) -> None:
        """Run `ALTER TABLE {table} ...`."""
        self.spark.sql(statement.replace("{table}", _quoted(path), 1))


def _typed(schema: T.StructType) -> list[tuple[str, str]]:
    return [(field.name, sql_text(field.dataType)) for field in schema.fields]


def _not_null_unsupported(path: str, columns: Sequence[str]) -> FatalError:
    what = f"{', '.join(columns)} may not be null, and Delta replaces the table's schema only without NOT NULL"
    remedy = f"ALTER TABLE delta.`{path}` ALTER COLUMN {columns[0]} DROP NOT NULL, then ADD CONSTRAINT required CHECK "
    remedy += f"({columns[0]} IS NOT NULL), which stays"
    return FatalError("NOT_NULL_UNSUPPORTED", what, where=path, remedy=remedy)


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
