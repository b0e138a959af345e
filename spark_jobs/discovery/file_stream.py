"""New files as a stream of Spark reports them: Auto Loader on Databricks, Spark's own file source elsewhere.

Only paths, sizes and times are read: the content column is never selected, so no file is opened. The state in
the stream's checkpoint only saves listings: the files are always compared with the ledger.
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
    """Source of a file stream; covers all differences between Databricks and open-source Spark.

    Attributes:
        name: of its checkpoints, which two sources never share.
        schema: of the rows, required by some sources; null: the source infers it.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def having(self, options: Mapping[str, str]) -> FileStreamSource:
        """A copy with further options, which take precedence."""
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
    # A full load that is rewritten under its names is reported again. Files older than the first stream are
    # reported, too (the default): after a lost checkpoint each costs a ledger lookup.
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
    """A file that the stream reported.

    Attributes:
        path: as reported by the stream, e.g. `file:/folder/x` for `/folder/x`.
        modified: milliseconds since the epoch.
    """

    path: str
    size: int
    modified: int


def drain(
    source: FileStreamSource, session: SparkSession, folder: str, checkpoint: str,
    take: Callable[[Sequence[NotifiedFile]], None],
) -> None:  # fmt: skip
    """Pass new files of a folder to `take`, group by group, until there are none.

    A group is acknowledged when `take` returns; if it raises, the group is reported again next time.

    Args:
        checkpoint: folder with the files reported so far; without it all are reported again.

    Raises:
        RetriableError: `FILE_STREAM_FAILED`: Spark can't start or continue the stream.
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
        files = source.files(session, folder).writeStream.foreachBatch(hand_over)
        query = files.trigger(availableNow=True).option("checkpointLocation", checkpoint).start()
        try:
            query.awaitTermination()
        finally:
            with suppress(Exception):  # it has ended, or ends with its Spark
                query.stop()
    except Exception as error:
        if own:
            raise own[0] from None
        what = f"Spark's stream of {source.format} fails: {_first_line(error)}"
        remedy = "files are found by listing until then; see the job's log, or remove the folder, which is safe"
        raise RetriableError("FILE_STREAM_FAILED", what, where=checkpoint, remedy=remedy) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:500]
