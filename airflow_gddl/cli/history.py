"""Past runs as the lake's state tells them; read without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import LocalStore, ObjectStore

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.s3_errors import s3_error
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores.s3 import make_client

_LOOK_BACK = 50
_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """What the runs of one table say.

    Attributes:
        runs: newest first: back to the one that did not fail and tells the replica's rows, fifty at most.
        unreadable: name of the newest run's file when that isn't a JobResult; null otherwise.
    """

    table: TableSpec
    runs: tuple[JobResult, ...] = ()
    unreadable: str | None = None


def read_histories(roots: Roots, tables: Sequence[TableSpec], environ: Mapping[str, str]) -> list[TableHistory]:
    """One for each table, in their order.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda table: _read(roots, table, environ), tables))


def read_runs(roots: Roots, table: TableSpec, environ: Mapping[str, str]) -> list[JobResult]:
    """The latest runs of a table, oldest first, fifty at most.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    url = Layout.of(roots, table).runs
    with _telling(table, url):
        store = _store(url, environ)
        found = [] if store is None else [result for _, result in _newest_first(store) if result is not None]
        return found[::-1]


def _read(roots: Roots, table: TableSpec, environ: Mapping[str, str]) -> TableHistory:
    url = Layout.of(roots, table).runs
    with _telling(table, url):
        store = _store(url, environ)
        return TableHistory(table=table) if store is None else _history(store, table)


@contextmanager
def _telling(table: TableSpec, url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, obstore.exceptions.BaseError) as error:
        told = s3_error(str(error), url) if is_s3(url) else None
        if told is not None:
            raise told from error
        what = f"the runs of {table.table} can't be read: {error}"
        raise RetriableError("LAKE_UNREADABLE", what, where=url, remedy="check `lake` and its credentials") from error


def _store(url: str, environ: Mapping[str, str]) -> ObjectStore | None:
    """Null when a local folder isn't there: no run yet."""
    if is_s3(url):
        bucket, prefix = split(url)
        return make_client(bucket, environ, prefix)
    return LocalStore(url) if Path(url).is_dir() else None


def _history(store: ObjectStore, table: TableSpec) -> TableHistory:
    runs: list[JobResult] = []
    unreadable: str | None = None
    for name, result in _newest_first(store):
        if result is None:
            unreadable = unreadable or (None if runs else name)
            continue
        runs.append(result)
        if result.status != "failed" and result.main.rows is not None:
            break
    return TableHistory(table=table, runs=tuple(runs), unreadable=unreadable)


def _newest_first(store: ObjectStore) -> Iterator[tuple[str, JobResult | None]]:
    names = sorted((meta["path"] for chunk in obstore.list(store) for meta in chunk), reverse=True)
    for name in [name for name in names if name.endswith(".json")][:_LOOK_BACK]:
        yield name, _parse(bytes(obstore.get(store, name).bytes()))


def _parse(data: bytes) -> JobResult | None:
    try:
        return decode(JobResult, json.loads(data))
    except (ValueError, GddlError):
        return None
