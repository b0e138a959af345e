"""The records of runs, `lake/_gddl/runs/<schema>/<name>`: a JobResult each, archived when there are many.

The job writes `<time>-<run id>.json` when a table is done; `stores.run_records` archives old ones. Concurrent readers,
and readers after a crash, see each run once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_gddl.contract.codec import from_json_or_none, to_json
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import LOADS, STATE, join, record_name, tells_of_load
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import RunsDocument, place, update_runs
from airflow_gddl.runtime.state.facts import KEPT_RUNS, TableRecord
from airflow_gddl.runtime.state.moments import latest
from airflow_gddl.runtime.state.reading import LakeState
from airflow_gddl.stores import Storage, lake_files, open_store, read_if_there

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Records:
    """The newest records of a table.

    Attributes:
        results: newest first.
        loose: all records outside archives.
        damaged: names of records that are not a JobResult, newest first.
    """

    results: tuple[JobResult, ...] = ()
    loose: int = 0
    damaged: tuple[str, ...] = ()


def runs_folder(roots: Roots, table: str) -> str:
    schema, _, name = table.partition(".")
    return join(roots.lake, STATE, "runs", schema, name)


def read_records(
    roots: Roots, table: str, limit: int, environ: Mapping[str, str] = os.environ, *, loads_only: bool = False
) -> Records:
    """The newest runs of a table, `limit` at most; with `loads_only`, of those that load.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    place = runs_folder(roots, table)
    with _telling(table, place):
        store = open_store(environ)
        loose, archives = lake_files.names(store, place)
        results, damaged, seen = [], [], set()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            wanted = [name for name in loose if not loads_only or tells_of_load(name)][:limit]
            contents = pool.map(lambda name: read_if_there(store, join(place, name)), wanted)
            for name, data in zip(wanted, contents, strict=True):
                result = None if data is None else from_json_or_none(JobResult, data)
                if result is not None:
                    results.append(result)
                    seen.add(_key(result))
                elif data is not None:
                    damaged.append(name)
        for name in archives:
            if len(results) >= limit:
                break
            lines = (read_if_there(store, join(place, name)) or b"").splitlines()[::-1]
            parsed = [result for line in lines if (result := from_json_or_none(JobResult, line)) is not None]
            new = [result for result in parsed if _key(result) not in seen]
            older = [result for result in new if not loads_only or result.action in LOADS]
            results += older
            seen |= {_key(result) for result in older}
        return Records(results=tuple(results[:limit]), loose=len(loose), damaged=tuple(damaged))


def record_of(roots: Roots, table: str, now: float, environ: Mapping[str, str] = os.environ) -> TableRecord:
    """The facts of a table, from its records only.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    found = read_records(roots, table, KEPT_RUNS, environ, loads_only=True)
    record = TableRecord()
    for result in reversed(found.results):
        record = record.after(result, now)
    return replace(record, loose=found.loose)


def records_of(
    roots: Roots, tables: Sequence[str], now: float, environ: Mapping[str, str] = os.environ
) -> dict[str, TableRecord]:
    """`record_of` many, those with any run.

    Raises:
        RetriableError: `LAKE_UNREADABLE`.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        made = pool.map(lambda table: record_of(roots, table, now, environ), tables)
        return {table: record for table, record in zip(tables, made, strict=True) if record.last is not None}


def write_record(store: Storage, roots: Roots, result: JobResult) -> None:
    """Store the result of a job that crashed or was never started.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    started = datetime.fromisoformat(result.started_at).astimezone(UTC)
    name = record_name(started, result.run_id, result.action)
    store.write(join(runs_folder(roots, result.table), name), to_json(result).encode())


def compact(store: Storage, roots: Roots, table: str) -> int:
    """`run_records.compact` of a table; return the remaining loose records.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    return lake_files.compact(store, runs_folder(roots, table))


def _key(result: JobResult) -> tuple[str, str]:
    return result.run_id, result.started_at


@contextmanager
def _telling(table: str, place: str) -> Iterator[None]:
    try:
        yield
    except RetriableError as error:
        what = f"the runs of {table} can't be read: {error.what}"
        raise RetriableError("LAKE_UNREADABLE", what, where=place, remedy="check `lake` and its credentials") from error


def rebuild(
    roots: Roots,
    by_pipeline: Mapping[str, Sequence[str]],
    clock: Callable[[], float],
    *,
    write: bool,
    environ: Mapping[str, str] = os.environ,
) -> LakeState:
    """Read the records of all these tables; one listing and some reads for each.

    Args:
        by_pipeline: name of the object to the tables in it.
        write: also store the result.

    Raises:
        RetriableError: `LAKE_UNREADABLE`, `STORAGE_BUSY`, `STATE_CONTENDED`.
    """
    all_records: dict[str, TableRecord] = {}
    for pipeline, tables in by_pipeline.items():
        records = records_of(roots, tables, clock(), environ)
        all_records |= records
        if write:
            path = place(roots.lake, pipeline, "runs")
            update_runs(open_store(environ), path, _with(records, clock()), RunsDocument)
    return LakeState(records=all_records, read=clock())


def _with(records: Mapping[str, TableRecord], now: float) -> Callable[[RunsDocument], RunsDocument]:
    """Facts that run records lack are kept: an idle run leaves no record, and only the newest runs are read."""

    def change(before: RunsDocument) -> RunsDocument:
        made = {}
        for name, record in records.items():
            known = before.tables.get(name, TableRecord())
            made[name] = replace(
                record,
                complete=latest(record.complete, known.complete),
                maintained=known.maintained,
                changed_since=known.changed_since,
                changing_runs=known.changing_runs,
            )
        return replace(before, tables={**before.tables, **made}, written=now)

    return change
