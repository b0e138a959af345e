"""A sensor's polls of the tables of its pipeline: how many files wait, and since when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from airflow_gddl.runtime.state.documents import PollDocument, decode_or_none, encode, place
from airflow_gddl.runtime.state.table_status import TablePoll
from airflow_gddl.stores import Storage, update_object


@dataclass(frozen=True, kw_only=True)
class PollRecord:
    """One poll of all tables of a pipeline.

    Attributes:
        polled: seconds since the epoch, before the listing.
        files: table to the number of its data files.
        waiting: tables with pending files.
        held_by: tables that wait, to their dependencies.
        taken: table to the poll of its last load, seconds since the epoch.
        missing: tables whose landing folder is missing, so that nothing is known of their source.
    """

    polled: float
    files: Mapping[str, int]
    waiting: frozenset[str] = frozenset()
    held_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    taken: Mapping[str, float] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


def after(before: PollDocument, seen: PollRecord) -> PollDocument:
    """Pure. The number of pending files, and since when, follows from earlier polls."""
    tables = {name: _poll(name, before.tables.get(name), seen) for name in seen.files}
    return replace(before, polled=seen.polled, tables=tables)


def _poll(name: str, before: TablePoll | None, seen: PollRecord) -> TablePoll:
    files, taken = seen.files[name], seen.taken.get(name)
    first = seen.polled if before is None else before.first
    missing, clear = name in seen.missing, None if before is None else before.clear
    if name not in seen.waiting:
        clear = clear if missing else seen.polled
        return TablePoll(polled=seen.polled, files=files, clear=clear, first=first, missing=missing)
    # The files pending at the previous poll were loaded since: this is new work.
    same = before is not None and before.since is not None and (taken is None or taken < before.since)
    loaded = 0 if before is None or taken is None else before.files - (before.waiting if same else 0)
    return TablePoll(
        polled=seen.polled,
        files=files,
        waiting=max(1, files - loaded),
        since=before.since if same and before is not None else seen.polled,
        clear=clear,
        held_by=tuple(seen.held_by.get(name, ())),
        first=first,
        missing=missing,
    )


@dataclass(frozen=True)
class StoredPolls:
    """A pipeline's document as it was read. `tag`: see `Storage.swap`; None: there was none."""

    document: PollDocument
    tag: str | None


def read(store: Storage, lake: str, pipeline: str) -> StoredPolls:
    """
    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    try:
        data, tag = store.read_tagged(place(lake, pipeline, "poll"))
    except FileNotFoundError:
        return StoredPolls(PollDocument(), None)
    return StoredPolls(decode_or_none(PollDocument, data) or PollDocument(), tag)


def keep(
    store: Storage, lake: str, pipeline: str, before: StoredPolls, change: Callable[[PollDocument], PollDocument]
) -> None:
    """Write the changed document; where another poll came between, change what that one wrote.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    path = place(lake, pipeline, "poll")
    if not store.swap_once(path, encode(change(before.document)), before.tag):
        update_object(store, path, lambda data: change(decode_or_none(PollDocument, data) or PollDocument()), encode)
