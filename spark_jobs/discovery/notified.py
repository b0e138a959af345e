"""Discovery of notified files: only these are checked, against the ledger as in a listing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores import StoredObject
from spark_jobs.discovery.listing import GLANCE_BACK, LandingLocation, among, discover, keep
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import FileEntry
from spark_jobs.plan.discover import BY_NAME, Discovery, FileTimes, find, reaching_back

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


EVERY = timedelta(seconds=60)
_SHARE = 20
"""A deep listing is not repeated before this multiple of its duration."""


@dataclass(frozen=True)
class DeepListings:
    """Deep listings by landing folder, for one process: another process starts with its own deep listing.

    Attributes:
        recent: folder to the time of its deep listing, and the time until which short listings suffice.
    """

    recent: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)

    def reach(self, landing: str, now: datetime) -> timedelta | None:
        """Lookback behind the newest file; null: the row's `lookback`."""
        listed_at, until = self.recent.get(landing, (now, now))
        return GLANCE_BACK if listed_at <= now < until else None

    def record(
        self,
        landing: str,
        found: Discovery,
        cursor: str | None,
        began: datetime,
        ended: datetime,
        times: FileTimes = BY_NAME,
    ) -> None:
        """Record a deep listing.

        If it found a file that a short one would miss, the next listing is deep again, since the run that ingests the
        file lists once more.

        Args:
            cursor: relative path of the newest ingested change file; null: none.
        """
        since, root = reaching_back(times, cursor, GLANCE_BACK), f"{landing.rstrip('/')}/"
        names = (file.path.removeprefix(root) for file in found.waiting if file.kind == "change")
        if since is None or any((times.of(name) or since) < since for name in names):
            self.recent.pop(landing, None)
            return
        self.recent[landing] = began, ended + max(EVERY, _SHARE * (ended - began))


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/*|/+", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = 16


def discover_notified(place: LandingLocation, ledger: Ledger, now: datetime, news: Iterable[NotifiedFile]) -> Discovery:
    """Files to ingest among those that a stream notified.

    A full load is judged by all its files and their modification times. Stores return that time less precisely for one
    object than in a listing, so the folder is listed in full when a load waits.

    Args:
        now: aware.
        news: files as reported by the stream, in any order.

    Raises:
        RetriableError: `FILE_STREAM_FAILED`: a file that is not below the landing folder.
    """
    keep(place, ledger)
    notified = {_below(place.landing, file.path): file for file in news}
    known = _known(place, ledger, notified)
    new = sorted(path for path, file in notified.items() if not _is_known(file, known.get(path)))
    landed = among(place, _looked_at(place, new))
    within = {path: known[path] for path in new if path in known}
    files, unsettled = place.settling.split(place.storage, landed, within, now)
    found = find(files, within, ledger.state, place.storage.fingerprint, place.dialect.spec.generations)
    if any(file.kind == "load" for file in found.waiting):
        return discover(place, ledger, now, full=True)
    if found.touched:
        ledger.note_listing(None, found.touched)
    # Files that were removed after the notification were never ingested.
    return replace(landed.noted(found, unsettled), missing=())


def _below(landing: str, path: str) -> str:
    """The path in the ledger's form, without Spark's prefix of the store (`file:/x`, `s3a://bucket/x`)."""
    bare, root = _without_scheme(path), _without_scheme(landing.rstrip("/"))
    if not bare.startswith(f"{root}/"):
        what = f"the stream reported {path}, which is not below {landing}"
        raise RetriableError("FILE_STREAM_FAILED", what, remedy="report it; files are found by listing until then")
    return landing.rstrip("/") + bare[len(root) :]


def _without_scheme(path: str) -> str:
    found = _SCHEME.match(path)
    return path[found.end() :] if found else path


def _known(place: LandingLocation, ledger: Ledger, paths: Iterable[str]) -> Mapping[str, FileEntry]:
    """Rows of the ledger, and of its archives where a file is that old."""
    rows, times = ledger.entries(), place.dialect.times
    before = ledger.archived_before
    if before is None:
        return rows
    unknown = (path.removeprefix(f"{place.root}/") for path in paths if path not in rows)
    old = not ledger.is_archived_by(times) or any((times.of(name) or "") < before for name in unknown)
    return ledger.all_entries() if old else rows


def _is_known(file: NotifiedFile, row: FileEntry | None) -> bool:
    """Whether the ledger has this version by size and time; otherwise the store is read."""
    if row is None:
        return False
    since = datetime.fromisoformat(row.modified) - _EPOCH
    return row.size == file.size and since // timedelta(milliseconds=1) == file.modified


def _looked_at(place: LandingLocation, paths: list[str]) -> Iterator[StoredObject]:
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="notified") as pool:
        yield from (
            found for found in pool.map(lambda path: place.storage.stat(path, place.bounds), paths) if found is not None
        )
