"""File discovery of a continuous job: the place to add another source, such as a platform's own.

A stream only gives hints. The ledger decides in each table's run, so a stream that omits or repeats files,
or starts again, causes no loss and no duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from spark_jobs.continuous.listing import ListedFiles
from spark_jobs.continuous.spark_files import SparkFiles
from spark_jobs.table.runtime import Runtime


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


@dataclass(frozen=True)
class Streams:
    """Several streams as one: each table is followed by the one that `choose` names."""

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


class StreamPerRoot:
    """See `FileStream`. A stream for each landing root, opened with the first table below it."""

    def __init__(self, open_: Callable[[str], FileStream], roots: Roots) -> None:
        self._open, self._roots = open_, roots
        self._streams: dict[str, FileStream] = {}

    def follow(self, specs: Sequence[TableSpec]) -> None:
        by_root: dict[str, list[TableSpec]] = {root: [] for root in self._streams}
        for spec in specs:
            by_root.setdefault(LandingFolder.of(self._roots, spec).root, []).append(spec)
        for root, mine in by_root.items():
            if root not in self._streams:
                self._streams[root] = self._open(root)
            self._streams[root].follow(mine)

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
    listed = ListedFiles(job.roots, runtime.storage, runtime.clock)
    if "SPARK_REMOTE" in runtime.environ:  # Spark Connect runs `foreachBatch` in another process than the job
        return listed
    streamed = StreamPerRoot(lambda root: SparkFiles(root, runtime.spark, wake), job.roots)

    def choose(spec: TableSpec) -> str:
        tier = job.tiers.get(spec.size)
        return "streamed" if tier is not None and tier.engine == "spark" else "listed"

    return Streams({"listed": listed, "streamed": streamed}, choose)
