"""Small files of the lake that both sides read: registrations, run records; and whether its roots can be reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.codec import from_json_or_none
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import join, places_of
from airflow_gddl.contract.registrations import RegistrationState, registration_path
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.s3 import CODES, is_s3
from airflow_gddl.contract.source_access import announced
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import open_store
from airflow_gddl.stores.storage import Storage, read_document, read_if_there


@dataclass(frozen=True)
class RegistrationStore:
    """Documents of all tables, at `lake/_gddl/catalogs/<catalog>/<schema>/<name>.json`."""

    storage: Storage
    lake: str

    def get(self, spec: TableSpec) -> RegistrationState:
        """The stored state; empty where the row has no catalog, or there is no document, or a damaged one."""
        path = registration_path(self.lake, spec)
        state = None if path is None else read_document(self.storage, path, RegistrationState)
        return state or RegistrationState()

    def put(self, spec: TableSpec, state: RegistrationState) -> None:
        """Store the state; without a catalog in the row there is none to store."""
        path = registration_path(self.lake, spec)
        if path is not None:
            self.storage.write(path, codec.to_json(state).encode())


ARCHIVE = "archive"
LOOSE_AT_MOST, LOOSE_LEFT = 256, 56
KEPT_ARCHIVES = 60
"""With 200 runs in each: more than a month for a table loaded every five minutes, years for a daily one."""
_AT_ONCE = 16


def names(store: Storage, place: str) -> tuple[list[str], list[str]]:
    """Loose records and archives, newest first; names begin with their time."""
    listed = sorted((item.name for item in store.list(place) if not item.is_unfinished), reverse=True)
    loose = [name for name in listed if "/" not in name and name.endswith(".json")]
    return loose, [name for name in listed if name.startswith(f"{ARCHIVE}/") and name.endswith(".jsonl")]


def compact(store: Storage, place: str) -> int:
    """Archive all but the newest records, and drop the oldest archives; return the remaining loose records.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    loose, archives = names(store, place)
    old = loose[LOOSE_LEFT:][::-1]
    if old:
        name = f"{ARCHIVE}/{_stem(old[0])}_{_stem(old[-1])}.jsonl"
        before, now = None, _tags(store, place, old)
        while before != now:  # an erasure removes a key from records meanwhile
            store.write(join(place, name), b"\n".join(_records(store, place, old)))
            before, now = now, _tags(store, place, old)
        store.delete(*(join(place, name) for name in old))
        archives = [name, *archives]
    store.delete(*(join(place, name) for name in archives[KEPT_ARCHIVES:]))
    return len(loose) - len(old)


def _records(store: Storage, place: str, names: Sequence[str]) -> Iterator[bytes]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for data in pool.map(lambda name: read_if_there(store, join(place, name)), names):
            if data is not None and from_json_or_none(JobResult, data) is not None:
                yield data.strip()


def _tags(store: Storage, place: str, names: Sequence[str]) -> dict[str, str]:
    wanted = set(names)
    return {item.name: item.etag for item in store.list(place) if item.name in wanted}


def _stem(name: str) -> str:
    return name.removesuffix(".json")


def check_roots(job: JobSpec, environ: Mapping[str, str]) -> None:
    """List each root on S3. A denied listing of a root is not an error, since its folders may be accessible. An
    unreachable root of one source is not an error if others are reachable: only its tables fail.

    Raises:
        FatalError: `S3_BUCKET_MISSING`, `S3_CREDENTIALS_EXPIRED`, `S3_CREDENTIALS_MISSING`, `S3_CREDENTIALS_REFUSED`,
            `S3_ENDPOINT_INVALID`, `S3_REGION_WRONG`.
        RetriableError: `S3_UNREACHABLE`.
    """
    lake, *landings = places_of(job)
    reached = announced(job.access, environ)
    faults = [_fault(root, reached) for root in landings]
    fault = _fault(lake, reached) or (next(iter(faults), None) if all(faults) else None)
    if fault is not None:
        raise fault


def try_roots(job: JobSpec, environ: Mapping[str, str]) -> None:
    """List the landing root, and write, read and remove a file of the lake.

    Raises:
        FatalError: `STORAGE_DENIED`, `STORAGE_UNUSABLE`, `S3_…`.
        RetriableError: `STORAGE_BUSY`, `S3_UNREACHABLE`.
    """
    store, path = open_store(environ), join(job.roots.lake, "_gddl", "check", job.run_id)
    next(iter(store.list(job.roots.landing)), None)
    store.create(path, b"gddl check")
    try:
        store.read(path)
    finally:
        store.delete(path)


def _fault(root: str, environ: Mapping[str, str]) -> GddlError | None:
    if is_s3(root):
        try:
            open_store(environ).exists(root)
        except GddlError as error:
            if error.code in CODES:
                return error
    return None
