"""Work on parts of a batch in Spark tasks: Spark places them, and no row crosses to its JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores import Storage
from spark_jobs.engines.base import DEAD_WORKER
from spark_jobs.engines.places import KeyWork, Work, stream_of, stream_rows
from spark_jobs.engines.spark.columns import name
from spark_jobs.spark.arrow_tasks import map_in_arrow

_REPORT = "report"
_TASK = re.compile(r"\bTask ([0-9]{1,9}) in stage [0-9.]{1,20} failed")
_STREAM, _STREAMS_TOGETHER = 4 * 1024**2, 4
"""Bytes of rows in a stream, and streams that Spark gives to a task together."""


@dataclass(frozen=True)
class SparkTasks:
    """See `Place`."""

    spark: SparkSession
    slots: int

    def run(self, work: Work[Any], parts: Sequence[Any]) -> list[bytes]:
        if not parts:
            return []
        listed = tuple(parts)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = Storage()
            for number in _numbers(batches):
                yield pa.RecordBatch.from_pydict({_REPORT: [work(storage, listed[number])]})

        numbers = self.spark.range(0, len(listed), 1, len(listed))
        with naming_files([[work.file_of(part)] for part in listed]):
            return [bytes(row[0]) for row in map_in_arrow(numbers, task, f"{_REPORT} binary").collect()]

    def run_by_key(self, work: KeyWork[Any], parts: Sequence[Any], ranges: int) -> list[bytes]:
        """Rows go through the shuffle as Arrow streams, so that the JVM converts no value."""
        if not parts:
            return []
        listed = tuple(parts)

        def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = Storage()
            for at in _numbers(batches):
                for number, table, rows in work.split(storage, listed[at]):
                    for stream in _streams(rows):
                        columns = [pa.array([number], pa.int32()), pa.array([table]), pa.array([stream])]
                        yield pa.RecordBatch.from_arrays(columns, names=["number", "table", "stream"])

        def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = Storage()
            for _, rows in groupby((row for batch in batches for row in batch.to_pylist()), itemgetter("number")):
                found: dict[str, list[pa.Table]] = {}
                for row in rows:
                    found.setdefault(row["table"], []).append(stream_rows(row["stream"]))
                yield pa.RecordBatch.from_pydict({_REPORT: [work(storage, found)]})

        session = self.spark.newSession()
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _STREAMS_TOGETHER)
        numbers = session.range(0, len(listed), 1, len(listed))
        rows = map_in_arrow(numbers, split, "number int, table string, stream binary")
        # Several ranges may be in one partition.
        placed = rows.repartition(max(1, ranges), "number").sortWithinPartitions("number")
        with naming_files([[work.file_of(part)] for part in listed]):
            return [bytes(row[0]) for row in map_in_arrow(placed, act, f"{_REPORT} binary").collect()]

    def distinct(self, files: Sequence[str], columns: Sequence[str]) -> int:
        rows = self.spark.read.parquet(*files)
        hashed = rows.select(F.xxhash64(*map(name, columns)).alias("h"))
        return int(hashed.agg(F.count_distinct("h")).collect()[0][0])


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()


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
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        what = f"processes died (out of memory?) that read {', '.join(paths[:3])}{more}"
        remedy = "give the table a larger tier, or deliver the file in smaller ones"
        raise RetriableError("WORKER_DIED", what, where=paths[0], remedy=remedy) from error
