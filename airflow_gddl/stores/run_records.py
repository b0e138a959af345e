"""Files of run records, for both sides: loose ones, and archives of those that are many.

A record is one line of JSON, `<time>-<run id>.json`. Old ones are moved to `archive/<first>_<last>.jsonl`, a line each,
written before they are deleted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_gddl.contract.codec import from_json_or_none
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores.storage import Storage, read_if_there

ARCHIVE = "archive"
LOOSE_AT_MOST, LOOSE_LEFT = 256, 56
KEPT_ARCHIVES = 60
"""With 200 runs in each: more than a month for a table loaded every five minutes, years for a daily one."""
_AT_ONCE = 16


def names(store: Storage, place: str) -> tuple[list[str], list[str]]:
    """Loose records and archives, newest first; names begin with their time."""
    found = sorted((found.name for found in store.list(place) if not found.is_unfinished), reverse=True)
    loose = [name for name in found if "/" not in name and name.endswith(".json")]
    return loose, [name for name in found if name.startswith(f"{ARCHIVE}/") and name.endswith(".jsonl")]


def compact(store: Storage, place: str) -> int:
    """Archive all but the newest records, and drop the oldest archives; return the remaining loose records.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    loose, archives = names(store, place)
    old = loose[LOOSE_LEFT:][::-1]
    if old:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            contents = list(pool.map(lambda name: read_if_there(store, join(place, name)), old))
        lines = [
            data.strip() for data in contents if data is not None and from_json_or_none(JobResult, data) is not None
        ]
        name = f"{ARCHIVE}/{_stem(old[0])}_{_stem(old[-1])}.jsonl"
        store.write(join(place, name), b"\n".join(lines))
        store.delete(*(join(place, name) for name in old))
        archives = [name, *archives]
    store.delete(*(join(place, name) for name in archives[KEPT_ARCHIVES:]))
    return len(loose) - len(old)


def _stem(name: str) -> str:
    return name.removesuffix(".json")
