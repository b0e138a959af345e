"""New files as a stream of Spark tells of them: Auto Loader on Databricks, Spark's own file source elsewhere.

Only paths, sizes and times come of it: the column of the content is never asked for, so that no file is read here. What
the stream remembers in its checkpoint saves listings and nothing more: who takes the files compares with the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_gddl.contract.errors import RetriableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class FileStreamSource:
    """What is read as a stream; all that differs between Databricks and open Spark.

    Attributes:
        name: of its checkpoints, which two sources never share.
        schema: of the rows, where the source does not know it by itself; null where it does.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def having(self, options: Mapping[str, str]) -> FileStreamSource:
        """The same with further options, which win."""
        return replace(self, options={**self.options, **options})

    def files(self, session: SparkSession, folder: str) -> DataFrame:
        """A stream of `path`, `size` and `modified` (milliseconds since the epoch)."""
        reader = session.readStream.format(self.format).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return reader.load(folder).selectExpr("path", "length AS size", "unix_millis(modificationTime) AS modified")


AUTO_LOADER = FileStreamSource(
    name="auto_loader",
    format="cloudFiles",
    # A full load that is written again under its names is told of again. Files from before the first stream are told
    # of too (the default): a checkpoint that is lost then costs a look into the ledger for each.
    options={"cloudFiles.format": "binaryFile", "cloudFiles.allowOverwrites": "true"},
)
SPARK_FILES = FileStreamSource(
    name="spark_files",
    format="binaryFile",
    options={"recursiveFileLookup": "true", "maxFilesPerTrigger": "1000"},
    schema="path string, modificationTime timestamp, length bigint, content binary",
)
SOURCES: Mapping[str, FileStreamSource] = {source.name: source for source in (AUTO_LOADER, SPARK_FILES)}


@dataclass(frozen=True, kw_only=True)
class NotifiedFile:
    """A file that the stream notified.

    Attributes:
        path: as the stream writes it, e.g. `file:/folder/x` for `/folder/x`.
        modified: milliseconds since the epoch.
    """

    path: str
    size: int
    modified: int


Take = Callable[[Sequence[NotifiedFile]], None]


@dataclass(frozen=True, kw_only=True)
class TableStream:
    """A folder's stream.

    Attributes:
        checkpoint: where it keeps which files were notified; without it all are notified again.
    """

    source: FileStreamSource
    session: SparkSession
    folder: str
    checkpoint: str

    def drain(self, take: Take) -> None:
        """Hand over the files that are new since the last time, group by group, until there are none.

        A group counts as notified when `take` returned: one at which it raised comes again next time.

        Raises:
            RetriableError: `FILE_STREAM_FAILED`: Spark can't start or go on with the stream.
            Exception: what `take` raised.
        """
        own: list[Exception] = []

        def hand_over(batch: DataFrame, _number: int) -> None:
            files = [NotifiedFile(path=r["path"], size=r["size"], modified=r["modified"]) for r in batch.collect()]
            try:
                take(files)
            except Exception as error:
                own.append(error)
                raise

        try:
            self._run(hand_over)
        except Exception as error:
            if own:
                raise own[0] from None
            what = f"Spark's stream of {self.source.format} fails: {_first_line(error)}"
            remedy = (
                "files are found by listing meanwhile; see the job's log, or remove the folder, which costs nothing"
            )
            raise RetriableError("FILE_STREAM_FAILED", what, where=self.checkpoint, remedy=remedy) from error

    def _run(self, hand_over: Callable[[DataFrame, int], None]) -> None:
        files = self.source.files(self.session, self.folder).writeStream.foreachBatch(hand_over)
        query = files.trigger(availableNow=True).option("checkpointLocation", self.checkpoint).start()
        try:
            query.awaitTermination()
        finally:
            with suppress(Exception):  # it has ended, or ends with its Spark
                query.stop()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:500]
