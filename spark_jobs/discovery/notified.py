"""Discovery of notified files: only these are checked, against the ledger as in a listing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.stores import StoredObject
from spark_jobs.discovery.file_stream import NotifiedFile
from spark_jobs.discovery.listing import LandingLocation, among, discover, keep
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.discover import Discovery, find
from spark_jobs.plan.files import FileEntry

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
