"""Table maintenance by Delta's commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_gddl.contract.sql_types import quoted
from spark_jobs.engines.delta_rs.indexing import keep_readable
from spark_jobs.engines.delta_rs.maintenance import cut_changes
from spark_jobs.engines.delta_rs.removal import remove_rows
from spark_jobs.engines.delta_rs.tables import Tables as KnownTables
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.table_definition import CURRENT, TIMESTAMPS, has_microseconds
from spark_jobs.plan.retention import own_hours
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.figures import Compacted
from spark_jobs.rules.superseded import applied_before

_INTERVAL = "delta.checkpointInterval"
_VACUUMING = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Number of tasks in which Delta lists folders, by default 10,000 even for one folder.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}


@dataclass(frozen=True)
class SparkMaintenance:
    """See `Maintenance`.

    Attributes:
        known: the same tables, for the removal of rows.
        changes: path of the change table.
    """

    tables: Tables
    known: KnownTables
    changes: str

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        before = self._files(path)
        if not dry_run:
            self.tables.handle(path).optimize().executeCompaction()
        return Compacted(files_before=before, files_after=self._files(path))

    def keep_readable_statistics(self, path: str) -> None:
        keep_readable(self.known, path)

    def rewrite_timestamps(self, path: str, *, dry_run: bool) -> int:
        columns = self.tables.columns(path)
        if has_microseconds(self.tables.properties(path), columns):
            return 0
        files = self._files(path)
        if not dry_run:
            rows = self.tables.read(path).write.format("delta").mode("overwrite")
            rows.option("dataChange", "false").save(path)
            self.tables.set_properties(path, {TIMESTAMPS: CURRENT[TIMESTAMPS]})
        return files

    def _files(self, path: str) -> int:
        return int(self.tables.handle(path).detail().select("numFiles").collect()[0][0])

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        hours = max(hours, own_hours(self.tables.properties(path), path))
        # `hours` includes the table's setting; Delta's check is for callers without a retention.
        spark = self.tables.suited(few_rows=True).spark
        for setting, value in _VACUUMING.items():
            spark.conf.set(setting, value)
        statement = f"VACUUM delta.{quoted(path)} RETAIN {int(hours)} HOURS"
        if dry_run:
            return int(spark.sql(f"{statement} DRY RUN").count())
        before = self._stored(path)
        spark.sql(statement)
        return before - self._stored(path)

    def checkpoint(self, path: str) -> None:
        # Delta has no statement for it; it writes one with each commit whose version is a multiple of the interval.
        usual = self.tables.properties(path).get(_INTERVAL)
        self.tables.sql(path, f"ALTER TABLE {{table}} SET TBLPROPERTIES ('{_INTERVAL}' = '1')")
        back = f"UNSET TBLPROPERTIES ('{_INTERVAL}')"
        if usual is not None and usual != "1":
            back = f"SET TBLPROPERTIES ('{_INTERVAL}' = '{int(usual)}')"
        self.tables.sql(path, f"ALTER TABLE {{table}} {back}")

    def _stored(self, path: str) -> int:
        """Stored files without the log's."""
        found = self.tables.log.storage.list(path)
        return sum(not item.name.startswith("_delta_log/") for item in found)

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        return remove_rows(self.known, path, lambda rows: applied_before(rows, before), dry_run=dry_run)

    def cut_changes(self, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
        return cut_changes(self.known, self.changes, table_schema, before, swept, dry_run=dry_run)
