"""New files: listings of the landing folder, files that a stream has notified, and how far back both reach."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from airflow_gddl.contract.codes import FILE_STREAM_FAILED
from airflow_gddl.contract.durations import seconds, wait_seconds
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.file_names import LISTED_IN_PART, is_listing_due, moment
from airflow_gddl.contract.layout import join, landing_root
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import Generations, TableSpec
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.file_times import BY_NAME, FileTimes, newest, reaching_back, time_of
from spark_jobs.plan.planned_batch import FileEntry, LandedFile, TableState
from spark_jobs.plan.waiting_files import Discovery, NotListed, find, with_begun, with_overtaken
from spark_jobs.rooms.dialects.contents import has_content
from spark_jobs.rooms.dialects.protocol import EVERYTHING, Dialect, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SHOWN = 3
_NEAR = 0.8


def folders_like(storage: Storage, landing: str) -> tuple[str, ...]:
    """Landing folders (`schema/table`) with names like this one's, three at most; else the first ones of its schema.

    Where the schema has no folder, schemas (`schema`) instead. One or two listings of folders alone.

    Args:
        landing: the folder that is missing, `root/schema/table`.
    """
    root = landing_root(landing)
    wanted = landing.rstrip("/").removeprefix(f"{root}/")
    schema, _, name = wanted.partition("/")
    if there := storage.folders(f"{root}/{schema}"):
        return tuple(f"{schema}/{one}" for one in _like(name, there))
    return _like(schema, storage.folders(root))


def _like(name: str, there: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(name, there, n=_SHOWN, cutoff=_NEAR) or there[:_SHOWN])


Wait = Literal["never", "idle", "always"]
SETTLE_VARIABLE = "GDDL_SETTLE"
_FILE_SYSTEM_SETTLE = "3s"
_LONGEST_WAIT = timedelta(minutes=1)


def settle_of(spec: TableSpec, landing: str, environ: Mapping[str, str]) -> timedelta:
    """The row's `settle`, else the deployment's `GDDL_SETTLE`, else 3 seconds on file systems and none on S3."""
    default = "0s" if landing.startswith("s3://") else environ.get(SETTLE_VARIABLE, _FILE_SYSTEM_SETTLE)
    return timedelta(seconds=wait_seconds(default if spec.settle is None else spec.settle))


@dataclass(frozen=True, kw_only=True)
class Settling:
    """How long new files must be unchanged before they are ingested.

    Attributes:
        wait: `never`: leave them for a later listing; `idle`: wait for them if nothing else is new; or `always`. A wait
            of more than a minute is left to a later listing.
        is_whole: whether a file is whole however young it is, for a job has written it.
    """

    after: timedelta = timedelta(0)
    wait: Wait = "never"
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    is_whole: Callable[[LandedFile], bool] = field(default=lambda _file: False, repr=False)

    def split(
        self, storage: Storage, listing: Iterable[LandedFile], known: Mapping[str, FileEntry], now: datetime
    ) -> tuple[list[LandedFile], tuple[str, ...]]:
        """Settled files, and paths of new ones that may still be growing.

        Args:
            now: aware. A file from the future counts as just written: clocks differ.
        """
        files = list(listing)
        new = [file for file in files if file.path not in known or known[file.path].etag != file.etag]
        young = self.young(new, now)
        if young and (self.wait == "always" or (self.wait == "idle" and len(young) == len(new))):
            young = self._still_growing(storage, young, now)
        unsettled = {file.path for file in young}
        return [file for file in files if file.path not in unsettled], tuple(sorted(unsettled))

    def young(self, new: Iterable[LandedFile], now: datetime) -> list[LandedFile]:
        """Files among new ones that may still be growing."""
        since = (now - self.after).astimezone(UTC).isoformat(timespec="microseconds")
        return [file for file in new if file.modified > since and not self.is_whole(file)] if self.after else []

    def _still_growing(self, storage: Storage, young: Sequence[LandedFile], now: datetime) -> list[LandedFile]:
        newest = datetime.fromisoformat(max(file.modified for file in young))
        wait = min(newest - now + self.after, self.after)
        if wait > _LONGEST_WAIT:  # tables of the same process would wait, too
            return list(young)
        self.sleep(wait.total_seconds())
        return [file for file in young if (stored := storage.stat(file.path)) is None or stored.etag != file.etag]


GLANCE_BACK = timedelta(minutes=10)
_SAMPLE = 5


@dataclass(frozen=True, kw_only=True)
class LandingLocation:
    """Where a table's files land.

    Attributes:
        landing: without a slash at its end.
        cheap_names: known files up to which everything is listed.
        settling: how long new files must rest.
        generations: instead of the row's; None: the row's.
    """

    storage: Storage
    landing: str
    dialect: Dialect
    cheap_names: int = LISTED_IN_PART
    settling: Settling = field(default_factory=Settling)
    generations: Generations | None = None

    @property
    def bounds(self) -> str:
        """The folder that links must not leave."""
        return landing_root(self.landing)


def discover(place: LandingLocation, ledger: Ledger, now: datetime, *, full: bool = False) -> Discovery:
    """New files at `place`.

    Lists in full when `full`, when few files are known, when the last full listing is a day old, or when the layout
    allows no less. Tells the
    ledger how far back a listing reaches, and what a listing found that no batch will record.

    Args:
        now: aware.
    """
    keep(place, ledger)
    scope = _Scope() if full else _scope(place, ledger, now)
    rows = ledger.all_entries() if full else ledger.entries()
    if scope.is_blind_to(_relative(place.landing, path) for path, row in rows.items() if row.kind == "change"):
        scope = _Scope()
    known = _KnownFiles(place, rows, ledger if scope.is_full and not full else None)
    landed = _Landed(place, scope.reaching(place.landing, rows), known=known)
    listed: Sequence[LandedFile] = list(landed)
    within = landed.within()
    if not landed.unchanged and _generations(place) != "one":
        listed = with_begun(listed, within, ledger.state)
    discovery = _found(landed, listed, within, ledger.state, _unread(ledger), now)
    if _generations(place) != "one":
        discovery = with_overtaken(discovery, rows.values(), ledger.state.generation)
    # Where every run lists in full, the ledger's record of it is made once a day.
    is_due = full or is_listing_due(ledger.state.listed_in_full_at, now)
    is_kept = is_due and scope.is_full and not discovery.unsettled
    # Change files of snapshots are removed when they were ingested; their capture reports missing folders.
    is_expected = place.dialect.spec.mode == "changes"
    is_blank = is_expected and landed.listed == 0
    is_missing, root_missing = _missing(place, landed) if is_blank else (False, False)
    discovery = replace(
        discovery,
        missing=tuple(path for path in discovery.missing if path not in discovery.unsettled),
        folder_missing=is_missing,
        root_missing=root_missing,
        folders_there=folders_like(place.storage, place.landing) if is_missing else (),
        listed_in_full_at=now.astimezone(UTC).isoformat(timespec="microseconds") if is_kept else None,
        not_listed=None if scope.is_full else _not_listed(ledger.state, scope),
    )
    listed_at = None if discovery.waiting else discovery.listed_in_full_at
    if listed_at or discovery.touched:
        ledger.note_listing(listed_at, discovery.touched)
    return discovery


def discover_unread(place: LandingLocation, ledger: Ledger, now: datetime) -> Discovery:
    """Files that could not be read and are still there, to be read as the row is now.

    Of the current generation alone: a newer full load has taken the place of older files. A load that would begin a
    new one is among `unreadable_loads` instead: it may be older than changes that were ingested since.

    Args:
        now: aware.
    """
    keep(place, ledger)
    unread = {path: row for path, row in ledger.all_entries().items() if row.state == "unreadable"}
    rows = {p: row for p, row in unread.items() if row.generation >= ledger.state.generation and not row.reopens}
    landed = _Landed(place, _Scope())
    there = [file for file in landed if file.path in unread]
    discovery = _found(landed, [one for one in there if one.path in rows], rows, ledger.state, None, now)
    loads = tuple(file.path for file in there if unread[file.path].reopens)
    return replace(discovery, missing=(), unreadable_loads=loads)


def _unread(ledger: Ledger) -> Collection[str]:
    """Files that each run reads again although they could not be read, by the row as it is now.

    Load files for which all else waits; those of a table that is not made yet; and one that a replay has read, of which
    a truncate waits for its release.
    """
    state, loads = ledger.state, ledger.unread_loads
    if state.keys is None:
        changes = (p for p, row in ledger.entries().items() if row.kind == "change" and row.state == "unreadable")
        return loads | frozenset(changes)
    return loads if state.held_truncate is None else loads | {state.held_truncate.path}


def _missing(place: LandingLocation, landed: _Landed) -> tuple[bool, bool]:
    """Whether the landing folder is missing, and whether the landing root is, too, after a listing of nothing.

    Where the file system was mounted since then, the root counts as missing: what is there was not seen.
    """
    exists = place.storage.exists
    if not exists(place.landing):
        if is_s3(place.bounds) or not exists(place.bounds):
            return True, not is_s3(place.bounds)
        if not exists(place.landing):
            return True, False
    is_back = landed.finds_more
    return is_back, is_back


def _found(
    landed: _Landed,
    files: Iterable[LandedFile],
    within: Mapping[str, FileEntry],
    state: TableState,
    unread: Collection[str] | None,
    now: datetime,
) -> Discovery:
    """What `find` finds among settled files, with what was counted; files that were written again since their listing
    are unsettled, too."""
    place = landed.place
    settled, unsettled = place.settling.split(place.storage, files, within, now)
    written_again, undecided = list[str](), list[str]()

    def fingerprint(file: LandedFile, known: FileEntry | None) -> str:
        try:
            if known is None or not is_s3(file.path):
                return place.storage.fingerprint_as_listed(file)
            same = has_content(place.storage, file, known)
            place.storage.require_as_listed(file)
        except FileNotFoundError:
            if place.storage.stat(file.path) is not None:
                written_again.append(file.path)
            raise
        if same is None and file.kind == "load":  # as a new full load it would bring back rows that are gone since
            undecided.append(file.path)
            same = True
        return known.fingerprint if same else place.storage.fingerprint(file)

    discovery = find(settled, within, state, fingerprint, _generations(place), unread=unread)
    return replace(
        discovery, taken_as_touched=tuple(path for path in undecided if path in discovery.touched),
        unsettled=tuple(sorted({*unsettled, *written_again})), listed=landed.listed,
        ignored=landed.ignored, ignored_sample=tuple(landed.sample),
        refused=landed.refused, refused_sample=tuple(landed.refused_sample),
    )  # fmt: skip


def _generations(place: LandingLocation) -> Generations:
    return place.generations or place.dialect.spec.generations


def _not_listed(state: TableState, scope: _Scope) -> NotListed | None:
    """Null where no ingested change file is older than the listed range."""
    first, since = moment(state.oldest or ""), moment(scope.since)
    if first is None or since is None or first >= since:
        return None
    return NotListed(days=-((first - since) // timedelta(days=1)), since=state.listed_in_full_at)


def glance(place: LandingLocation, after: str | None, now: datetime) -> Iterator[LandedFile]:
    """Data files at `place`, without the ledger: a cheap poll that may leave out files.

    Args:
        after: relative path of the newest change file known; files from shortly before it on are listed. None: all.
        now: aware.
    """
    since = reaching_back(place.dialect.times, after, GLANCE_BACK)
    scope = _Scope() if after is None or since is None else _since(place.dialect, after, since, now)
    return iter(_Landed(place, scope))


def next_glance(place: LandingLocation, files: Iterable[LandedFile], after: str | None, now: datetime) -> str | None:
    """Start of the next glance after one from `after`; null where it would leave out files like these."""
    names = [file.path[len(place.landing) + 1 :] for file in files if file.kind == "change"]
    cursor = newest(place.dialect.times, names, now)
    since = reaching_back(place.dialect.times, cursor, GLANCE_BACK)
    if cursor is None or since is None:
        return after
    return None if _since(place.dialect, cursor, since, now).is_blind_to(names) else cursor


@dataclass(frozen=True)
class _Scope:
    """Scope of a listing: within the windows, change files not before `since` (digits; empty: all)."""

    windows: tuple[Window, ...] = EVERYTHING
    since: str = ""
    times: FileTimes = BY_NAME

    @cached_property
    def is_full(self) -> bool:
        return not self.since

    def covers(self, relative: str) -> bool:
        if self.is_full:
            return True
        time = self.times.of(relative)
        return (time is None or time >= self.since) and self._lists(relative)

    def is_blind_to(self, names: Iterable[str]) -> bool:
        """Whether a change file without a time is left out: more such files may arrive."""
        if not self.times.rule:
            return False
        return any(name and not self._lists(name) and self.times.of(name) is None for name in names)

    def _lists(self, relative: str) -> bool:
        return any(window.covers(relative) for window in self.windows)

    def reaching(self, landing: str, known: Mapping[str, FileEntry]) -> _Scope:
        """Also the subfolders of known load files that the windows leave out, such as `1/LOAD00000001`."""
        loads = (_relative(landing, path) for path, row in known.items() if row.kind == "load")
        folders = sorted({name.rpartition("/")[0] for name in loads if name and not self.covers(name)} - {""})
        return replace(self, windows=(*self.windows, *(Window(folder=folder) for folder in folders)))


class _KnownFiles:
    """Rows of the ledger by path. Archives, which grow with all files that ever were, are read as far as one is needed.

    Attributes:
        rows: those that were read so far.
    """

    def __init__(self, place: LandingLocation, rows: Mapping[str, FileEntry], ledger: Ledger | None = None) -> None:
        """
        Args:
            ledger: to read archives of; None: `rows` has all that are needed.
        """
        self.rows = dict(rows)
        self._place, self._ledger = place, ledger
        self._archives = ledger.archives() if ledger else iter(())

    def row(self, path: str) -> FileEntry | None:
        row = self.rows.get(path)
        if row is None and self._ledger is not None and _may_be_archived(self._place, self._ledger, path):
            for archive in self._archives:
                for older, its_row in archive.items():
                    self.rows.setdefault(older, its_row)
                if path in archive:
                    return archive[path]
        return row


def _may_be_archived(place: LandingLocation, ledger: Ledger, path: str) -> bool:
    """Whether a file without a row in `Ledger.entries` may have one in an archive: a change file of such a time."""
    before, times = ledger.archived_before, place.dialect.times
    if before is None or not ledger.is_archived_by(times):
        return before is not None
    time = times.of(_relative(place.landing, path))
    return time is not None and time < before


class _Landed:
    """Iterates once over the data files in the scope, and counts them.

    A change file that was read and has not been written since tells nothing but that it is there: it is counted, and
    left out. In a folder that keeps its files these are nearly all, at every run.

    Attributes:
        unchanged: paths of change files that were listed and left out.

    Args:
        notified: objects to use instead of a listing; None: list.
        known: whose files may be left out so; None: none.
    """

    def __init__(
        self,
        place: LandingLocation,
        scope: _Scope,
        notified: Iterable[StoredObject] | None = None,
        known: _KnownFiles | None = None,
    ) -> None:
        self.place, self._scope, self._notified = place, scope, notified
        self._known = known or _KnownFiles(place, {})
        self.unchanged: set[str] = set()
        self.listed, self.ignored, self.refused = 0, 0, 0
        self.sample: list[str] = []
        self.refused_sample: list[str] = []

    def within(self) -> dict[str, FileEntry]:
        """Known rows of files in the scope, without those that were listed and left out."""
        known = self._known.rows
        names = ((path, _relative(self.place.landing, path)) for path in known.keys() - self.unchanged)
        return {path: known[path] for path, name in names if name and self._scope.covers(name)}

    def __iter__(self) -> Iterator[LandedFile]:
        seen: set[str] = set()
        for item in self._objects():
            self.listed += 1
            path = item.path
            row = self._known.row(path)
            # Loads that were written again, also with the same content, may be part of a newer full load.
            is_done = row is not None and row.kind == "change" and row.state == "committed"
            if row is not None and row.etag == item.etag and not item.refused and is_done:
                self.unchanged.add(path)
            elif path not in seen:
                seen.add(path)
                if (file := self._landed(item)) is not None:
                    yield file

    @property
    def finds_more(self) -> bool:
        """Whether known files were there, none was listed, and another listing has some."""
        return bool(self._known.rows) and self.listed == 0 and next(self._objects(), None) is not None

    def _objects(self) -> Iterator[StoredObject]:
        if self._notified is not None:
            yield from self._notified
            return
        for window in self._scope.windows:
            folder = join(self.place.landing, window.folder) if window.folder else self.place.landing
            end = join(self.place.landing, window.end_before) if window.end_before else None
            after = window.after
            for item in () if after is None else self.place.storage.list(folder, after, self.place.bounds):
                if end is not None and item.path >= end:
                    break
                yield item

    def _landed(self, item: StoredObject) -> LandedFile | None:
        relative = item.path[len(self.place.landing) + 1 :]
        if item.refused:
            self._refuse(relative or ".", item.refused)
            return None
        names = self.place.dialect.classify(relative)
        if names is None:
            self._ignore(relative, item)
            return None
        if not self._scope.covers(relative):
            return None
        kind, file_format, order = names
        return LandedFile(
            path=item.path,
            kind=kind,
            format=file_format,
            order=order,
            size=item.size,
            etag=item.etag,
            modified=item.modified_at,
        )

    def _refuse(self, relative: str, why: str) -> None:
        self.refused += 1
        if len(self.refused_sample) < _SAMPLE:
            self.refused_sample.append(f"{relative}: {why}")

    def _ignore(self, relative: str, item: StoredObject) -> None:
        folder_marker = item.size == 0 and "." not in relative.rpartition("/")[2]
        if self.place.dialect.is_temporary(relative) or folder_marker:
            return
        self.ignored += 1
        if len(self.sample) < _SAMPLE:
            self.sample.append(relative)


def keep(place: LandingLocation, ledger: Ledger) -> None:
    """Record in the ledger how far back a listing reaches."""
    ledger.keep(_lookback(place.dialect), place.landing, place.dialect.times)


def _lookback(dialect: Dialect) -> timedelta:
    return timedelta(seconds=seconds(dialect.options.lookback))


def _scope(place: LandingLocation, ledger: Ledger, now: datetime) -> _Scope:
    dialect, cursor = place.dialect, ledger.state.cursor
    since = reaching_back(dialect.times, cursor, _lookback(dialect))
    due = is_listing_due(ledger.state.listed_in_full_at, now)
    is_cheap = ledger.files_known <= place.cheap_names
    if cursor is None or since is None or due or is_cheap or not ledger.is_archived_by(dialect.times):
        return _Scope()
    return _since(dialect, cursor, max(since, ledger.archived_before or ""), now)


def _since(dialect: Dialect, cursor: str, since: str, now: datetime) -> _Scope:
    """
    Args:
        cursor: relative path of a change file whose path states a time.
        since: a time that its dialect states, as digits.
    """
    newest_time, start = time_of(dialect.times, cursor), moment(since)
    if newest_time is None or start is None:
        return _Scope()
    until = max(newest_time, now.astimezone(UTC).replace(tzinfo=None))
    return _Scope(dialect.windows(cursor, start, until), since, dialect.times)


def _relative(landing: str, path: str) -> str:
    """Empty for a path outside the folder: a row from before the landing root moved."""
    root = f"{landing}/"
    return path.removeprefix(root) if path.startswith(root) else ""


@dataclass(frozen=True, kw_only=True)
class FileStreamSource:
    """Source of a file stream; covers all differences between Databricks and open-source Spark.

    Attributes:
        name: of its checkpoints, which two sources never share.
        schema: of the rows, required by some sources; None: the source infers it.
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
    errors: list[Exception] = []

    def hand_over(batch: DataFrame, _number: int) -> None:
        files = [NotifiedFile(path=r["path"], size=r["size"], modified=r["modified"]) for r in batch.collect()]
        try:
            take(files)
        except Exception as error:
            errors.append(error)
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
        if errors:
            raise errors[0] from None
        text = (str(error).strip() or type(error).__name__).partition("\n")[0][:500]
        what = f"Spark's stream of {source.format} fails: {text}"
        remedy = "files are found by listing until then; see the job's log, or remove the folder, which is safe"
        raise RetriableError(FILE_STREAM_FAILED, what, where=checkpoint, remedy=remedy) from error


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/*|/+", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = 16


def discover_notified(place: LandingLocation, ledger: Ledger, now: datetime, news: Iterable[NotifiedFile]) -> Discovery:
    """Files to ingest among those that a stream notified.

    A full load is judged by all its files and their modification times. Stores return that time less precisely for one
    object than in a listing, so the folder is listed in full when a load waits or could not be read.

    Args:
        now: aware.
        news: files as reported by the stream, in any order.

    Raises:
        RetriableError: `FILE_STREAM_FAILED`: a file that is not below the landing folder.
    """
    keep(place, ledger)
    notified = {_below(place.landing, file.path): file for file in news}
    rows = ledger.entries()
    is_old = any(_may_be_archived(place, ledger, path) for path in notified if path not in rows)
    known = ledger.all_entries() if is_old else rows
    new = sorted(path for path, file in notified.items() if not _is_known(file, known.get(path)))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="notified") as pool:
        stored = list(filter(None, pool.map(lambda path: place.storage.stat(path, place.bounds), new)))
    landed = _Landed(place, _Scope(), stored)
    within = {path: row for path, row in known.items() if path in new or row.kind == "load"}
    discovery = _found(landed, landed, within, ledger.state, _unread(ledger), now)
    if any(file.kind == "load" for file in discovery.waiting) or ledger.unread_loads:
        return discover(place, ledger, now, full=True)
    if discovery.touched:
        ledger.note_listing(None, discovery.touched)
    # Files that were removed after the notification were never ingested.
    return replace(discovery, missing=())


def _below(landing: str, path: str) -> str:
    """The path in the ledger's form, without Spark's prefix of the store (`file:/x`, `s3a://bucket/x`)."""
    bare, root = _without_scheme(path), _without_scheme(landing)
    if not bare.startswith(f"{root}/"):
        what = f"the stream reported {path}, which is not below {landing}"
        raise RetriableError(FILE_STREAM_FAILED, what, remedy="report it; files are found by listing until then")
    return landing + bare.removeprefix(root)


def _without_scheme(path: str) -> str:
    match = _SCHEME.match(path)
    return path[match.end() :] if match else path


def _is_known(file: NotifiedFile, row: FileEntry | None) -> bool:
    """Whether the ledger has this version by size and time; otherwise the store is read."""
    if row is None:
        return False
    since = datetime.fromisoformat(row.modified) - _EPOCH
    return row.size == file.size and since // timedelta(milliseconds=1) == file.modified
