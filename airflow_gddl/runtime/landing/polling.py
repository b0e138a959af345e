"""One poll of the landing folders of a pipeline's tables; of large ones it lists what is behind their watermarks."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_gddl.contract.codes import STORAGE_DENIED, STORAGE_UNUSABLE
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import (
    LISTED_IN_PART,
    LOOKBACK,
    change_time,
    digits_of,
    is_listing_due,
    is_temporary,
    moment,
)
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.stores import Storage, StoredObject

_BYTES = 8
"""Of a digest."""


@dataclass(frozen=True)
class PollWindow:
    """A time of last modification: from `start` on, before `end`; seconds since the epoch, None: open."""

    start: float | None = None
    end: float | None = None

    def holds(self, moment: float) -> bool:
        return (self.start is None or moment >= self.start) and (self.end is None or moment < self.end)


@dataclass(frozen=True)
class Poll:
    """Content of a table's landing folder.

    Attributes:
        files: data files; hidden and unfinished ones don't count.
        digest: changes when a file is added, removed or changed; empty without files.
        in_window: whether one of them was last modified within the window that was asked for.
        refused: the folder can't be listed (access denied, a loop of links): counts as work, so that the job reports
            it for this table while the others are loaded.
        missing: there is no such folder; of a table with several, one of them.
    """

    files: int = 0
    digest: str = ""
    in_window: bool = False
    refused: bool = False
    missing: bool = False


_OF_ONE_TABLE = (STORAGE_DENIED, STORAGE_UNUSABLE)
"""Codes of a folder that can't be listed, while others may be."""
_REFUSED = Poll(files=1, digest="refused", in_window=True, refused=True)


def joined(polls: Sequence[Poll]) -> Poll:
    """What lies in several folders of one table; of one folder its own poll."""
    if len(polls) == 1:
        return polls[0]
    return Poll(
        files=sum(poll.files for poll in polls),
        digest="-".join(poll.digest for poll in polls) if any(poll.digest for poll in polls) else "",
        in_window=any(poll.in_window for poll in polls),
        refused=any(poll.refused for poll in polls),
        missing=any(poll.missing for poll in polls),
    )


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """Watermark of one table.

    Attributes:
        after: name of the last file that it covers, below the table's folder.
        files, total: number and sum of the digests of the files up to it.
        swept: when the folder was listed in full, ISO 8601.
    """

    after: str
    files: int
    total: int
    swept: str


def watermark_of(digests: Mapping[str, int], lookback: timedelta, swept: str) -> Watermark | None:
    """The watermark after a full listing; null where the next poll has to list everything, too.

    Args:
        digests: of all files, by name.
        lookback: how far behind the newest change file later files may arrive.
    """
    if len(digests) <= LISTED_IN_PART:
        return None
    newest = max((time for name in digests if (time := _sorting_time(name)) is not None), default="")
    moment_ = moment(newest)
    if moment_ is None:
        return None
    limit, last, count, total = digits_of(moment_ - max(lookback, timedelta(seconds=seconds(LOOKBACK)))), "", 0, 0
    for name in sorted(digests):
        time = _sorting_time(name)
        if time is None or time >= limit:
            break
        last, count, total = name, count + 1, total + digests[name]
    return Watermark(after=last, files=count, total=total, swept=swept) if last else None


def held(watermarks: Mapping[str, Watermark], tables: Iterable[str], now: datetime) -> dict[str, Watermark]:
    """Watermarks of the tables whose next full listing is not yet due, by table; a time in the future (the clock was
    set back) counts as due.
    """
    known = {name: watermarks[name] for name in tables if name in watermarks}
    return {name: watermark for name, watermark in known.items() if not is_listing_due(watermark.swept, now)}


def _sorting_time(name: str) -> str | None:
    """The time in a name if names like it sort by their times: flat, or in folders such as year, month, day."""
    time = change_time(name)
    folders = re.sub(r"\D", "", name.rpartition("/")[0])
    return time if time is not None and name[0].isdigit() and time.startswith(folders) else None


PAGE = 1000
"""Names of one listing of a schema's folder, for each table; those it does not reach are listed alone."""


def poll(store: Storage, landing: str, tables: Iterable[str]) -> dict[str, Poll]:
    """`poll_folders` of tables with one landing root and default names, in full."""
    folders = {table: LandingFolder(landing, table) for table in tables}
    return {table: files.poll() for table, files in poll_folders(store, folders, {}).items()}


def poll_folders(
    store: Storage,
    folders: Mapping[str, LandingFolder],
    watermarks: Mapping[str, Watermark],
    window: PollWindow | None = None,
) -> dict[str, ListedFiles]:
    """Poll each of the tables (`schema.name`, or any other name) in its landing folder.

    Where it is cheaper, one listing of a schema's folder serves all its tables; if the folder holds far more files, the
    remaining tables are listed one by one.

    Args:
        watermarks: by table; tables without one are listed in full.
        window: range of modification times, see `Poll.in_window`.

    Raises:
        RetriableError, FatalError: as `Storage`; `STORAGE_DENIED` or `STORAGE_UNUSABLE` when none of the folders can be
            listed.
    """
    by_schema: defaultdict[tuple[str, str], defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table, folder in folders.items():
        schema, _, name = folder.table.partition(".")
        by_schema[folder.root, schema][name].append(table)
    listed: dict[str, ListedFiles] = {}
    for (root, schema), tables in sorted(by_schema.items()):
        marks = {name: watermarks.get(of[0]) for name, of in sorted(tables.items())}
        listed_files = _schema(store, root, schema, marks, window)
        listed |= {table: files for name, files in listed_files.items() for table in tables[name]}
    faults = [files.refused for files in listed.values() if files.refused is not None]
    if listed and len(faults) == len(listed):
        if other := next((fault for fault in faults if fault.code != STORAGE_DENIED), None):
            raise other
        where = ", ".join(sorted({folder.root for folder in folders.values()}))
        remedy = "grant the role the right to list and read it"
        raise FatalError(STORAGE_DENIED, "no permission for any of the tables' folders", where=where, remedy=remedy)
    return listed


@dataclass
class ListedFiles:
    """Listed files of a table.

    Attributes:
        known: covers the files that were not listed; None: all were listed.
        digests: of the files that were listed, by name. Their sum doesn't depend on how much was listed.
        refused: why the folder can't be listed; None: it can.
        empty: nothing was listed, not even a file that is no data.
        missing: there is no such folder.
    """

    window: PollWindow | None
    known: Watermark | None = None
    digests: dict[str, int] = field(default_factory=dict)
    in_window: bool = False
    refused: FatalError | None = None
    empty: bool = True
    missing: bool = False

    def take(self, listed: StoredObject, name: str) -> None:
        self.empty = False
        # The job knows the dialect; an unrelated file costs one run.
        if name and not name.endswith("/") and not is_temporary(name):
            line = f"{name}\0{listed.size}\0{listed.etag}".encode(errors="surrogateescape")
            self.digests[name] = int.from_bytes(hashlib.blake2b(line, digest_size=_BYTES).digest())
            self.in_window = self.in_window or (self.window is not None and self.window.holds(listed.modified))

    def poll(self) -> Poll:
        if self.refused is not None:
            return _REFUSED
        known = None if self.missing else self.known
        files = len(self.digests) + (known.files if known is not None else 0)
        total = sum(self.digests.values()) + (known.total if known is not None else 0)
        digest = (total % 2 ** (8 * _BYTES)).to_bytes(_BYTES).hex() if files else ""
        return Poll(files, digest, self.in_window, missing=self.missing)


def _schema(
    store: Storage, landing: str, schema: str, watermarks: Mapping[str, Watermark | None], window: PollWindow | None
) -> dict[str, ListedFiles]:
    folder = join(landing, schema)
    listed = {name: ListedFiles(window, known) for name, known in watermarks.items()}
    rest = list(listed)
    whole = {name: files for name, files in listed.items() if files.known is None}
    if store.listing_spans_folders(folder) and len(whole) > 1:
        try:
            unreached = _span(store, folder, whole)
            rest = [name for name in listed if name in unreached or name not in whole]
        except FatalError as error:
            if error.code != STORAGE_DENIED:  # list permission may be granted folder by folder
                raise
    for name in rest:
        known = watermarks[name]
        listed[name] = ListedFiles(window, known)
        try:
            after = known.after if known is not None else ""
            for item in store.list(join(folder, name), after, within=landing):
                listed[name].take(item, item.name)
        except FatalError as error:
            if error.code not in _OF_ONE_TABLE:
                raise
            listed[name].refused = error
    for name, files in listed.items():
        if files.empty and files.refused is None:
            files.missing = _is_missing(store, join(folder, name), files)
    return listed


def _is_missing(store: Storage, folder: str, files: ListedFiles) -> bool:
    """Whether a folder with nothing to list isn't there; in an object store, folders are their objects."""
    everything = files.known is None
    return (everything and store.listing_spans_folders(folder)) or not store.exists(folder)


def _span(store: Storage, folder: str, listed: dict[str, ListedFiles]) -> list[str]:
    """List the folder for at most one page for each table; return the tables not reached."""
    ends = sorted(f"{name}/" for name in listed)
    budget = PAGE * len(listed)
    for seen, item in enumerate(store.list(folder, ends[0])):
        name, _, rest = item.name.partition("/")
        if f"{name}/" > ends[-1]:
            break
        if seen >= budget:
            return [other for other in listed if f"{other}/" >= f"{name}/"]
        if rest and name in listed:
            listed[name].take(item, rest)
    return []
