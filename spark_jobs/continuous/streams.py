"""File discovery of a continuous job: the place to add another source, such as a platform's own.

A stream only gives hints. The ledger decides in each table's run, so a stream that omits or repeats files,
or starts again, causes no loss and no duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.continuous.listing import ListedFiles
from spark_jobs.continuous.spark_files import SparkFiles
from spark_jobs.table.runtime import Runtime

_LISTED = ""
"""Name of the stream of listed tables; the others are named by their landing roots."""


class FileStream(Protocol):
    """Reports which tables have files that it has not reported.

    Raises (every method):
        GddlError: it failed for good; the job ends and has to be restarted.
    """

    def follow(self, specs: Sequence[TableSpec]) -> None:
        """Replace the followed tables."""
        ...

    def news(self) -> Collection[str]:
        """Tables with new files since the last call."""
        ...

    def taken(self, table: str) -> None:
        """A run of the table that started after its files were reported is over."""
        ...

    def close(self) -> None: ...


class Streams:
    """Several streams as one, each opened with the first of its tables.

    Args:
        open_: gives the stream of a name.
        name_of: gives the name of the stream that follows a table.
    """

    def __init__(self, open_: Callable[[str], FileStream], name_of: Callable[[TableSpec], str]) -> None:
        self._open, self._name_of = open_, name_of
        self._streams: dict[str, FileStream] = {}

    def follow(self, specs: Sequence[TableSpec]) -> None:
        by_name: dict[str, list[TableSpec]] = {name: [] for name in self._streams}
        for spec in specs:
            by_name.setdefault(self._name_of(spec), []).append(spec)
        for name, mine in by_name.items():
            if name not in self._streams:
                self._streams[name] = self._open(name)
            self._streams[name].follow(mine)

    def news(self) -> Collection[str]:
        return [table for stream in self._streams.values() for table in stream.news()]

    def taken(self, table: str) -> None:
        for stream in self._streams.values():
            stream.taken(table)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


def open_streams(job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> FileStream:
    """Structured Streaming for tables of engine `spark`, listings for the others and where Spark is only remote.

    Args:
        wake: called, from any thread, when there are new files to fetch.
    """
    if "SPARK_REMOTE" in runtime.environ:  # Spark Connect runs `foreachBatch` in another process than the job
        return ListedFiles(job.roots, runtime.storage, runtime.clock, environ=runtime.environ)

    def opened(root: str) -> FileStream:
        if root == _LISTED:
            return ListedFiles(job.roots, runtime.storage, runtime.clock, environ=runtime.environ)
        return SparkFiles(root, runtime.spark, wake)

    def name_of(spec: TableSpec) -> str:
        tier = job.tiers.get(spec.size)
        # Spark's own clients have the credentials of the job, not those of sources.
        is_streamed = tier is not None and tier.engine == "spark" and not of_tables(job.access, [spec])
        return LandingFolder.of(job.roots, spec).root if is_streamed else _LISTED

    return Streams(opened, name_of)
