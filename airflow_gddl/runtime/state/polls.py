"""A sensor's polls of the tables of its pipeline: how many files wait, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import PollDocument, decode_poll, encode_poll, place
from airflow_gddl.runtime.state.table_status import TablePoll
from airflow_gddl.stores import Storage


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


def after(before: PollDocument | None, seen: PollRecord) -> PollDocument:
    """Pure. The number of pending files, and since when, follows from earlier polls."""
    known = before.tables if before is not None else {}
    return PollDocument(polled=seen.polled, tables={name: _poll(name, known.get(name), seen) for name in seen.files})


def _poll(name: str, before: TablePoll | None, seen: PollRecord) -> TablePoll:
    files, taken = seen.files[name], seen.taken.get(name)
    # For tables polled by an earlier release, which did not store this.
    first = seen.polled if before is None else before.first or before.polled
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


def keep(store: Storage, roots: Roots, pipeline: str, seen: PollRecord) -> None:
    """Write the poll.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    path = place(roots.lake, pipeline, "poll")
    try:
        before: PollDocument | None = decode_poll(store.read(path))
    except (FileNotFoundError, ValueError):
        before = None
    store.write(path, encode_poll(after(before, seen)))
