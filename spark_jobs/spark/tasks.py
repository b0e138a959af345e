"""Functions over Arrow in Spark tasks, and what the processes of a job have in common: no pandas, kept memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

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
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

BatchRule = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, run: BatchRule, schema: T.StructType | str) -> DataFrame:
    """`mapInArrow`; on one machine, where its Python workers run nothing else, without the import of pandas.

    Tasks get the key of masks and the credentials of sources with the function, not by a setting of Spark, which its
    pages show.
    """
    if is_on_a_cluster(os.environ):
        return rows.mapInArrow(_carrying(run), schema)

    carrying = _carrying(run)
    most = int(rows.sparkSession.conf.get(WORKER_MEMORY, "0") or 0)

    def alone(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_pandas_out()
        keep_freed_memory()
        limit_memory(most)
        try:
            yield from carrying(batches)
        finally:
            give_back_memory()

    return rows.mapInArrow(alone, schema)


def _carrying(run: BatchRule) -> BatchRule:
    carried = variables_for_tasks(os.environ)
    if key_id(os.environ):
        carried[MASK_KEY] = mask_key(os.environ).decode()
    if not carried:
        return run

    def with_variables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.update(carried)
        yield from run(batches)

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
