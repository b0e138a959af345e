"""Where a continuous job hears of files: the one place to add another way, such as a platform's own.

A stream only hints. What is taken is decided by the ledger in each table's run, so that a stream which forgets, repeats
or starts anew loses and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.continuous.listing import ListedFiles
from spark_jobs.continuous.spark_files import SparkFiles
from spark_jobs.table.runtime import Runtime


class FileStream(Protocol):
    """Tells which tables have files that it has not told of.

    Raises (every method):
        GddlError: it is broken for good; the job ends, and is started again by whoever keeps it.
    """

    def follow(self, specs: Sequence[TableSpec]) -> None:
        """From now on these tables and no others."""
        ...

    def news(self) -> Collection[str]:
        """Tables with new files since the last call."""
        ...

    def taken(self, table: str) -> None:
        """A run of the table, begun after its news were told, is over."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Streams:
    """Several as one: each table is followed by the one that `choose` names."""

    streams: Mapping[str, FileStream]
    choose: Callable[[TableSpec], str]

    def follow(self, specs: Sequence[TableSpec]) -> None:
        for name, stream in self.streams.items():
            stream.follow([spec for spec in specs if self.choose(spec) == name])

    def news(self) -> Collection[str]:
        return [table for stream in self.streams.values() for table in stream.news()]

    def taken(self, table: str) -> None:
        for stream in self.streams.values():
            stream.taken(table)

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()


def open_streams(job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> FileStream:
    """Structured Streaming for tables of engine `spark`, listings for the others and where Spark is only remote.

    Args:
        wake: called, from any thread, when there are news to be fetched.
    """
    listed = ListedFiles(job.roots, runtime.storage, runtime.clock)
    if "SPARK_REMOTE" in runtime.environ:  # there, a function for each batch runs in another process than the job
        return listed
    streamed = SparkFiles(job.roots, runtime.spark, wake)

    def choose(spec: TableSpec) -> str:
        tier = job.tiers.get(spec.size)
        return "streamed" if tier is not None and tier.engine == "spark" else "listed"

    return Streams({"listed": listed, "streamed": streamed}, choose)
