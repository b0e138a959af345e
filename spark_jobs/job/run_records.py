"""Run records: which results are kept, and what of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import LOADS, RECORD_TIME, UPKEEP, Layout, join, record_name
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores import Storage


def is_recorded(result: JobResult, *, dry_run: bool = False) -> bool:
    """Whether a run leaves a record: it did something, failed, or found a foreign commit.

    Read-only actions leave none.

    Maintenance without work leaves none, like idle loads (docs/decisions/012).
    """
    if result.action in LOADS:
        return not result.is_idle
    if result.action not in UPKEEP or dry_run or result.status == "skipped":
        return False
    return result.action != "maintain" or result.status == "failed" or any((result.details or {}).values())


def for_record(result: JobResult) -> JobResult:
    """The result without columns and keys of rows: these are for the caller only."""
    result = replace(result, columns=(), columns_left_out=0)
    details = result.details
    if result.action != "verify" or not isinstance(details, Mapping):
        return result
    source = details.get("source")
    shown = {name: value for name, value in details.items() if name != "keys"}
    if isinstance(source, Mapping):
        shown["source"] = {name: value for name, value in source.items() if name != "keys"}
    return replace(result, details=shown)


def in_order(storage: Storage, roots: Roots, spec: TableSpec, result: JobResult, now: datetime) -> JobResult:
    """The result, begun after every run on record: of those that begin in the future a clock was set back since."""
    later = [found.name for found in storage.list(Layout.of(roots, spec).runs, f"{now:{RECORD_TIME}}")]
    times = [name.partition("-")[0] for name in later if "/" not in name and name.endswith(".json")]
    if not times:
        return result
    newest = datetime.strptime(max(times), RECORD_TIME).replace(tzinfo=UTC)
    begun = (newest + timedelta(microseconds=1)).isoformat(timespec="microseconds")
    return replace(result, started_at=max(begun, result.started_at))


def write_record(storage: Storage, roots: Roots, spec: TableSpec, result: JobResult) -> None:
    """Store what is kept of the result as the record of its run."""
    record = for_record(result)
    name = record_name(datetime.fromisoformat(record.started_at), record.run_id, record.action)
    storage.write(join(Layout.of(roots, spec).runs, name), codec.to_json(record).encode())
