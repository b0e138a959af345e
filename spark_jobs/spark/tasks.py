"""Functions in Spark tasks, and what the processes of a job have in common: no pandas, kept memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from airflow_gddl.contract.connections import MASK_KEY, key_id, mask_key
from airflow_gddl.contract.source_access import variables_for_tasks
from spark_jobs.spark.session_settings import WORKER_MEMORY, is_on_a_cluster


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ImportError("pandas is left out")


def leave_pandas_out() -> None:
    """Let pyarrow do without pandas in this process, as where it is not installed.

    pyarrow imports pandas with the first array that is made of Python values, for conversions that no job makes, which
    delays the start of a job and of each of its processes. It looks for pandas once; other importers still find it.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


_TRIM, _TOP_PAD, _MMAP = -1, -2, -3
"""Parameters of glibc's `mallopt`."""


def keep_freed_memory() -> None:
    """Let Arrow take memory by `malloc`, which keeps up to a gibibyte that was freed, for the next arrays.

    Memory that comes new from the system costs as much as the work on it: with Arrow's own allocator a merge takes a
    fifth more CPU. Nothing changes without glibc, or where `ARROW_DEFAULT_MEMORY_POOL` chooses.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, size in ((_MMAP, 32 * 1024**2), (_TRIM, 1024**3), (_TOP_PAD, 64 * 1024**2)):
            mallopt(parameter, size)
        pa.set_memory_pool(pa.system_memory_pool())


def give_back_memory() -> None:
    """Give kept memory back, after a table: the limit of the next one is for that alone."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

BatchRule = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Taken = TypeVar("Taken")
Given = TypeVar("Given")


def run_in_tasks(session: SparkSession, run: Callable[[Taken], Iterable[bytes]], parts: Sequence[Taken]) -> list[bytes]:
    """What a function gives of each part, in their order, each part in a task.

    On one machine by an RDD, for which Spark makes no plan: the first plan of a session takes a second.
    """

    def reports(numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            yield from run(parts[number])

    count = len(parts)
    if not is_on_a_cluster(os.environ):
        carrying, most = _carrying(reports), int(session.conf.get(WORKER_MEMORY, "0") or 0)

        def alone(numbers: Iterable[int]) -> Iterator[bytes]:
            leave_pandas_out()
            keep_freed_memory()
            limit_memory(most)
            try:
                yield from carrying(numbers)
            finally:
                give_back_memory()

        return session.sparkContext.parallelize(range(count), count).mapPartitions(alone).collect()

    def in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for report in reports(batch.column("id").to_pylist()):
                yield pa.RecordBatch.from_pydict({"report": [report]})

    rows = map_in_arrow(session.range(0, count, 1, count), in_batches, "report binary")
    return [bytes(row[0]) for row in rows.collect()]


def map_in_arrow(rows: DataFrame, run: BatchRule, schema: T.StructType | str) -> DataFrame:
    """Rows of the schema that a function makes of each partition; its workers get the job's key and credentials."""
    return rows.mapInArrow(_carrying(run), schema)


def _carrying(run: Callable[[Taken], Iterator[Given]]) -> Callable[[Taken], Iterator[Given]]:
    """The function with the key of masks and the credentials of sources: settings of Spark are shown on its pages."""
    carried = variables_for_tasks(os.environ)
    if key_id(os.environ):
        carried[MASK_KEY] = mask_key(os.environ).decode()
    if not carried:
        return run

    def with_variables(taken: Taken) -> Iterator[Given]:
        os.environ.update(carried)
        yield from run(taken)

    return with_variables


def limit_memory(most: int) -> None:
    """Limit the address space of this process, where the system can: a task then fails by itself (`MemoryError`).

    Args:
        most: bytes; 0: no limit.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - Windows has none

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if most and (soft == resource.RLIM_INFINITY or most < soft):
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
