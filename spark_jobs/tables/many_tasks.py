"""A table over many tasks: places and maintenance by Spark."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_gddl.contract.codes import WORKER_DIED
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.features import with_properties
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.names import few
from airflow_gddl.contract.spec import size_bytes
from airflow_gddl.contract.sql_types import quoted
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.spark.session import configure, scratch_of
from spark_jobs.spark.session_settings import is_on_a_cluster
from spark_jobs.spark.tasks import map_in_arrow, run_in_tasks
from spark_jobs.tables import deletion_vectors
from spark_jobs.tables.batch_by_ranges import read_large
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.engine import BatchWork, Compacted, Engine, Maintenance
from spark_jobs.tables.file_parts import PartBounds
from spark_jobs.tables.first_load import first_load
from spark_jobs.tables.one_task import OneTaskEngine
from spark_jobs.tables.places import (
    DEAD_WORKER,
    LARGER_TIER,
    DeclinedError,
    InProcess,
    KeyWork,
    Place,
    Work,
    WorkOnRows,
    WriteRows,
    by_range,
    decoded,
    encoded,
    stream_of,
    stream_rows,
)
from spark_jobs.tables.snapshots import is_settable
from spark_jobs.tables.spark_merge import MaintainedTables, MergedTables, SparkTables
from spark_jobs.tables.swap import Swap, SwapRequest
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.vacuum import named_files, own_hours
from spark_jobs.tables.whole_tables import BatchContext, TableWriter

_TASK = re.compile(r"\bTask ([0-9]{1,9}) in stage [0-9.]{1,20} failed")
_TASKS_A_SLOT = 4
"""Enough that one long task doesn't leave the other slots idle; each takes some 50 ms by itself."""
_STREAM, _STREAMS_TOGETHER = 4 * 1024**2, 4
"""Bytes of rows in a stream, and streams that Spark gives to a task together."""


@dataclass(frozen=True)
class SparkTasks:
    """See `Place`."""

    spark: SparkSession
    slots: int

    def run(self, work: Work, parts: Sequence[Any]) -> list[Any]:
        if not parts:
            return []
        tasks = min(len(parts), self.slots * _TASKS_A_SLOT)
        shared = [tuple(parts[number::tasks]) for number in range(tasks)]

        def task(mine: Sequence[Any]) -> Iterator[bytes]:
            storage = Storage()
            for part in mine:
                yield encoded(work(storage, part))

        with naming_files([[work.file_of(part) for part in mine] for mine in shared]):
            return [decoded(report) for report in run_in_tasks(self.spark, task, shared)]

    def run_by_key(self, work: KeyWork, parts: Sequence[Any], ranges: int) -> list[Any]:
        """Rows go through the shuffle as Arrow streams, so that the JVM converts no value; on one machine by files."""
        if not parts:
            return []
        if (folder := folder_of_rows(self.spark)) is not None:
            folder.mkdir()
            try:
                ranged = by_range(self.run(WriteRows(work, str(folder)), parts))
                return self.run(WorkOnRows(work), ranged)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        listed = tuple(parts)

        def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = Storage()
            for at in (number for batch in batches for number in batch.column("id").to_pylist()):
                for number, table, rows in work.split(storage, listed[at]):
                    for stream in _streams(rows):
                        columns = [pa.array([number], pa.int32()), pa.array([table]), pa.array([stream])]
                        yield pa.RecordBatch.from_arrays(columns, names=["number", "table", "stream"])

        def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = Storage()
            for _, rows in groupby((row for batch in batches for row in batch.to_pylist()), itemgetter("number")):
                by_table: dict[str, list[pa.Table]] = {}
                for row in rows:
                    by_table.setdefault(row["table"], []).append(stream_rows(row["stream"]))
                yield pa.RecordBatch.from_pydict({"report": [encoded(work(storage, by_table))]})

        session = self.spark.newSession()
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _STREAMS_TOGETHER)
        numbers = session.range(0, len(listed), 1, len(listed))
        rows = map_in_arrow(numbers, split, "number int, table string, stream binary")
        # Several ranges may be in one partition.
        placed = rows.repartition(max(1, ranges), "number").sortWithinPartitions("number")
        with naming_files([[work.file_of(part)] for part in listed]):
            return [decoded(bytes(row[0])) for row in map_in_arrow(placed, act, "report binary").collect()]

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        rows = self.spark.read.parquet(*files)
        hashed = rows.select(F.xxhash64(*(F.col(quoted(column)) for column in columns)).alias("h"))
        return int(hashed.agg(F.count_distinct("h")).collect()[0][0])


def folder_of_rows(spark: SparkSession) -> Path | None:
    """A new folder that all tasks can reach, since they run on this machine; None: they may run on others."""
    scratch = None if is_on_a_cluster(os.environ) else scratch_of(spark)
    return None if scratch is None else scratch / f"rows-{uuid4().hex}"


def _streams(rows: pa.Table) -> Iterator[bytes]:
    step = max(1, rows.num_rows * _STREAM // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield stream_of(rows.slice(start, step))


@contextmanager
def naming_files(tasks: Sequence[Sequence[str]]) -> Iterator[None]:
    """Name the files of a task whose process died.

    Args:
        tasks: paths of the files of each.

    Raises:
        RetriableError: `WORKER_DIED`.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        task = _TASK.search(text)
        if not any(sign in text for sign in DEAD_WORKER) or task is None or int(task[1]) >= len(tasks):
            raise
        paths = list(dict.fromkeys(tasks[int(task[1])]))
        what = f"processes died (out of memory?) that read {few(paths, 3)}"
        raise RetriableError(WORKER_DIED, what, where=paths[0], remedy=LARGER_TIER) from error


_DECODED = 10
"""How many times their size in memory rows take in the driver until they are merged."""
_INFLATION = 10
"""How many times its size the content of a compressed text is taken to have."""
_MOST_TOMBSTONES = 256 * 1024**2


def hides_commits() -> bool:
    """Whether Spark's Delta doesn't see commits that others make: that of Databricks, on S3."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def tables_of(context: TableContext, spark: SparkTables, place: Place, paths: Sequence[str] = ()) -> Tables:
    """Tables whose files are worked on at a place: written by commits of ours, or by Spark's where it has to.

    That is so where one of them has a feature that is not known here, or will have, where Spark `hides_commits`, and
    where the tier says so (`commit: merge`).

    Args:
        paths: of tables that are looked at first; there need not be one.
    """
    tables = MaintainedTables(spark, _now, place)
    if hides_commits() or context.tier.commit == "merge" or not _suits(context) or not _are_known(tables, paths):
        return MergedTables(spark, _now, context.layout, place)
    return tables


def _now() -> datetime:
    return datetime.now(UTC)


def _suits(context: TableContext) -> bool:
    """Whether new tables of this row have no features that aren't known here."""
    vectors = context.tier.deletion_vectors
    return is_settable(with_properties(context.spec).table_properties) and (deletion_vectors.are_known() or not vectors)


def _are_known(tables: Tables, paths: Sequence[str]) -> bool:
    try:
        with_vectors = [s for s in map(tables.snapshot, paths) if s and s.has_vectors]
        for snapshot in with_vectors:
            snapshot.require_vectors()
    except DeclinedError:
        return False
    return not with_vectors or deletion_vectors.are_known()


_INTERVAL = "delta.checkpointInterval"
VACUUMING = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Number of tasks in which Delta lists folders, by default 10,000 even for one folder.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}


@dataclass(frozen=True)
class SparkMaintenance(Maintenance):
    """See `Maintenance`."""

    spark: SparkTables

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        before = self._files(path)
        if not dry_run:
            self.spark.handle(path).optimize().executeCompaction()
        return Compacted(files_before=before, files_after=self._files(path))

    def _files(self, path: str) -> int:
        return int(self.spark.handle(path).detail().select("numFiles").collect()[0][0])

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        hours = max(hours, own_hours(self.spark.properties(path), path))
        if not self._may_have_unneeded(path, hours):
            return 0
        # `hours` includes the table's setting; Delta's check is for callers without a retention.
        spark = self.spark.suited(few_rows=True).spark
        configure(spark, VACUUMING)
        statement = f"VACUUM delta.{quoted(path)} RETAIN {int(hours)} HOURS"
        if dry_run:
            return int(spark.sql(f"{statement} DRY RUN").count())
        before = self._stored(path)
        spark.sql(statement)
        return before - self._stored(path)

    def _may_have_unneeded(self, path: str, hours: int) -> bool:
        """Whether a file is older than that and is none of the current version: `VACUUM` takes seconds to find none."""
        limit = time.time() - hours * 3600
        listed = self.spark.log.storage.list(path)
        old = {item.path for item in listed if item.modified < limit and not item.name.startswith("_delta_log/")}
        if not old:
            return False
        try:
            snapshot = self.tables.snapshot(path)
            return snapshot is None or not old <= named_files(snapshot)
        except DeclinedError:
            return True

    def checkpoint(self, path: str) -> None:
        # Delta has no statement for it; it writes one with each commit whose version is a multiple of the interval.
        usual = self.spark.properties(path).get(_INTERVAL)
        self.spark.alter(path, f"SET TBLPROPERTIES ('{_INTERVAL}' = '1')")
        back = f"UNSET TBLPROPERTIES ('{_INTERVAL}')"
        if usual is not None and usual != "1":
            back = f"SET TBLPROPERTIES ('{_INTERVAL}' = '{int(usual)}')"
        self.spark.alter(path, back)

    def _stored(self, path: str) -> int:
        """Stored files without the log's."""
        files = self.spark.log.storage.list(path)
        return sum(not item.name.startswith("_delta_log/") for item in files)


@dataclass(frozen=True, kw_only=True)
class ManyTasksEngine(Engine):
    """See `Engine`."""

    tables: SparkTables

    def suited(self, *, few_rows: bool) -> ManyTasksEngine:
        return replace(self, tables=self.tables.suited(few_rows=few_rows))

    def tables_of(self, *paths: str) -> Tables:
        """See `tables_of`."""
        return tables_of(self, self.tables, self._tasks, paths)

    def whole_tables_of(self, *paths: str) -> Tables:
        return self.tables_of(*paths)

    def purge(self, path: str) -> None:
        """Rows that deletion vectors only mark leave the files in use, those of earlier deletes too."""
        self.tables.spark.sql(f"REORG TABLE delta.{quoted(path)} APPLY (PURGE)")

    def decode_files(self, plan: BatchPlan, state: TableState) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        small = plan.size <= self.tables.bounds.load
        place: Place = InProcess(self.storage) if small else self._tasks
        tables = self.tables_of(*_all_of(self.layout))
        if (first := first_load(self, plan, state, tables, place, PartBounds())) is not None:
            return first
        if plan.source != "files" or self._is_small(tables, plan, state):
            try:
                return self._beside_spark(tables).decode_files(plan, state)
            except MemoryError:  # a file may be larger than it looks
                if plan.source != "files":
                    raise
                tables.forget_all()
        return read_large(tables, self._beside_spark(tables), plan, state)

    def resume_from_changes(self, plan: BatchPlan, state: TableState) -> BatchWork:
        return self._beside_spark(self.tables_of(*_all_of(self.layout))).resume_from_changes(plan, state)

    def _beside_spark(self, tables: Tables) -> OneTaskEngine:
        """For batches whose rows don't go through the JVM."""
        most = size_bytes(self.tier.memory) // _DECODED
        return OneTaskEngine(**{**vars(self), "tables": tables}, reads_whole=False, most_bytes=most)

    def _is_small(self, tables: Tables, plan: BatchPlan, state: TableState) -> bool:
        """Whether the batch and the tombstones fit into memory, and it needs no more of the tables than its keys'."""
        tombstones = tables.snapshot(self.layout.tombstones)
        if tombstones is not None and tombstones.size > _MOST_TOMBSTONES:
            return False
        if not state.keys and any(file.kind != "change" for file in plan.files):
            return False
        sizes = (file.size * (_INFLATION if file.path.endswith(".gz") else 1) for file in plan.files)
        return sum(sizes) <= tables.bounds.batch

    @property
    def _tasks(self) -> SparkTasks:
        return SparkTasks(self.tables.spark, self.tables.slots)

    def table_work(self, plan: BatchPlan, table_schema: TableSchema) -> TableWriter:
        tables = self.tables_of(self.layout.changes, self.layout.replica, self.layout.history)
        return TableWriter(BatchContext.of(self, tables, plan, table_schema))

    @property
    def maintenance(self) -> SparkMaintenance:
        layout = self.layout
        return SparkMaintenance(self.tables_of(layout.changes, layout.tombstones), self, self.tables)

    def swap(self, request: SwapRequest) -> Swap:
        layouts = [self.layout, *([] if request.shadow is None else [request.shadow])]
        return Swap(self, self.tables_of(*(path for layout in layouts for path in _all_of(layout))), request)


def _all_of(layout: Layout) -> tuple[str, ...]:
    return layout.changes, layout.replica, layout.history, layout.tombstones, layout.errors
