"""Delta tables by path: create, evolve (desired against actual), append and read, every write idempotent."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from spark_jobs.engines.delta_commits import OURS, DeltaCommits
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan import columns as plan_columns
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.plan.types import parse_type, parts
from spark_jobs.spark.session import FOR_FEW_ROWS, SQL_SETTINGS

Assignments: TypeAlias = dict[str, str | Column]
"""What Delta's merge builder takes for its clauses."""

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True)
class Tables:
    """Delta tables in one Spark session; the session is the table's own, for its transaction settings."""

    spark: SparkSession
    log: DeltaCommits
    few_rows: bool = False

    def suited(self, *, few_rows: bool) -> Tables:
        """The same in a session whose settings suit few rows, or many."""
        if few_rows == self.few_rows:
            return self
        session = self.spark.newSession()
        for key, value in {**SQL_SETTINGS, **(FOR_FEW_ROWS if few_rows else {})}.items():
            session.conf.set(key, value)
        return Tables(session, self.log, few_rows)

    @property
    def slots(self) -> int:
        """Tasks that can run at once, as far as the session tells; 4 where it doesn't (Spark Connect)."""
        try:
            return max(1, int(self.spark.sparkContext.defaultParallelism))
        except Exception:  # noqa: BLE001 - Connect raises what it likes for what it lacks
            return 4

    def local(self, rows: pa.Table, kind: T.StructType) -> DataFrame:
        """Rows at hand as a frame of a type."""
        return self.spark.createDataFrame(rows, kind) if rows.num_rows else self.spark.createDataFrame([], kind)

    def keep(self, rows: DataFrame) -> DataFrame:
        """The same rows for several uses, as a plan without a past: quick to analyse again, and what a merge takes."""
        return rows.localCheckpoint()

    def exists(self, path: str) -> bool:
        return self.log.exists(path)

    def read(self, path: str) -> DataFrame:
        return self.spark.read.format("delta").load(path)

    def handle(self, path: str) -> DeltaTable:
        return DeltaTable.forPath(self.spark, path)

    def count(self, path: str) -> int:
        """Rows, from the log's statistics where Delta can."""
        return self.read(path).count()

    def version(self, path: str) -> int | None:
        return self.log.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        """Greatest transaction version that `app` committed to the table; -1 when none."""
        if not self.exists(path):
            return -1
        jvm: Any = self.spark._jvm  # noqa: SLF001 - Delta has no public way to a table's transactions
        none = jvm.scala.Option.empty()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, path)  # noqa: SLF001 - as above
        found = log.update(False, none, none).transactions().get(app)
        return int(found.get()) if found.isDefined() else -1

    @contextmanager
    def transaction(self, app: str, version: int) -> Iterator[None]:
        """Writes inside happen once per (table, app, version): a repeated one is skipped by Delta itself."""
        conf = self.spark.conf
        conf.set(_TXN_APP, app)
        conf.set(_TXN_VERSION, str(version))
        conf.set(_METADATA, f"gddl {app} {version}")
        try:
            yield
        finally:
            conf.unset(_TXN_APP)
            conf.unset(_TXN_VERSION)
            conf.set(_METADATA, OURS)

    def create(self, definition: TableDefinition) -> None:
        """Create the table unless it is there."""
        builder = DeltaTable.createIfNotExists(self.spark).location(definition.path)
        for column in definition.columns:
            builder = builder.addColumn(column.name, spark_type(str(column.type)), nullable=True)
        for key, value in definition.created_with.items():
            builder = builder.property(key, value)
        if definition.cluster_by:
            builder = builder.clusterBy(*definition.cluster_by)
        builder.execute()

    def append(self, rows: DataFrame, path: str, app: str, version: int) -> None:
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", app).option("txnVersion", version)
        writer.option("userMetadata", f"gddl {app} {version}").save(path)

    def overwrite(self, rows: DataFrame, path: str, app: str, version: int) -> None:
        """Replace rows and schema in one commit: a reader sees the old table or the new one."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer = writer.option("txnAppId", app).option("txnVersion", version)
        writer.option("userMetadata", f"gddl {app} {version}").save(path)

    def metrics(self, path: str, app: str, version: int) -> dict[str, int]:
        """Operation metrics of the commit that a transaction made; empty when it made none."""
        return self.log.metrics(path, f"gddl {app} {version}")

    def columns(self, path: str) -> tuple[plan_columns.Column, ...]:
        """Columns but `_gddl`, as the table has them."""
        fields = self.read(path).schema.fields
        return tuple(plan_columns.Column(f.name, parse_type(sql_text(f.dataType))) for f in fields if f.name != GDDL)

    def properties(self, path: str) -> dict[str, str]:
        return dict(self.handle(path).detail().select("properties").collect()[0][0])

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set those that differ from what the table has, in one commit."""
        stored = self.properties(path)
        changed = {name: value for name, value in properties.items() if stored.get(name) != value}
        if changed:
            pairs = ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in changed.items())
            self.sql(path, f"ALTER TABLE {{table}} SET TBLPROPERTIES ({pairs})")

    def restate(self, path: str) -> None:
        """Write the statistics of all files anew by the table's properties, the files as they are."""
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:
            self.spark.sql(f"ANALYZE TABLE {_quoted(path)} COMPUTE DELTA STATISTICS")
            return
        jvm: Any = self.spark._jvm  # noqa: SLF001 - Delta has no statement for it outside Databricks
        delta = jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(self.spark._jsparkSession, path)  # noqa: SLF001 - as above
        collection = delta.stats.StatisticsCollection
        every = getattr(collection, "recompute$default$5")()
        nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
        collection.recompute(self.spark._jsparkSession, log, jvm.scala.Option.empty(), nothing, every)  # noqa: SLF001 - as above

    def allow(self, path: str, columns: Sequence[plan_columns.Column]) -> None:
        """Give the table the table features that Delta asks of one with such columns.

        It is created with those of its first columns; later ones have to be named.
        """
        if not any(str(part) == "timestamp_ntz" for column in columns for part in parts(column.type)):
            return
        if "timestampNtz" not in self.handle(path).detail().select("tableFeatures").collect()[0][0]:
            self.sql(path, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")

    def columns_in_order(self, path: str) -> tuple[plan_columns.Column, ...]:
        """All columns, `_gddl` at its place."""
        fields = self.read(path).schema.fields
        return tuple(plan_columns.Column(f.name, parse_type(sql_text(f.dataType))) for f in fields)

    def clustering(self, path: str) -> tuple[str, ...]:
        """Columns that the table is clustered by."""
        return tuple(self.handle(path).detail().select("clusteringColumns").collect()[0][0] or ())

    def sql(self, path: str, statement: str) -> None:
        """Run `ALTER TABLE {table} ...`."""
        self.spark.sql(statement.replace("{table}", _quoted(path), 1))


def _quoted(path: str) -> str:
    return "delta.`{}`".format(path.replace("`", "``"))


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def struct_type(ddl: str) -> T.StructType:
    """A row type from its DDL, e.g. `a int, b string`."""
    return cast("T.StructType", T.StructType.fromDDL(ddl))


@functools.cache
def spark_type(text: str) -> T.DataType:
    """A type from its SQL text; cached, for Spark's parser is asked over the gateway."""
    return struct_type(f"c {text}").fields[0].dataType


def sql_text(kind: T.DataType) -> str:
    """A Spark type as SQL text with every field name quoted."""
    if isinstance(kind, T.StructType):
        fields = ",".join("`{}`:{}".format(f.name.replace("`", "``"), sql_text(f.dataType)) for f in kind.fields)
        return f"struct<{fields}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{sql_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{sql_text(kind.keyType)},{sql_text(kind.valueType)}>"
    return kind.simpleString()
