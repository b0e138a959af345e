"""The table of a source that a table of the lake follows, compared with what it was at the run before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_gddl.contract.codes import (
    PARTITIONS_KEPT,
    SOURCE_LOG_RESTARTED,
    SOURCE_TABLE_ALTERED,
    SOURCE_TABLE_MISSING,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import is_kept
from airflow_gddl.contract.postgresql_log import key_columns
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.sources.capture import keeps_dropped_partitions
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.table_run import TableRun
from spark_jobs.rooms.sources.capture.catalog import Reading, alterations, dropped_parts, has_new_files
from spark_jobs.rooms.sources.capture.position import FollowedTable, read_followed, write_followed
from spark_jobs.rooms.sources.capture.relation_messages import since

_NAMES = 3


def is_other(spec: TableSpec, before: FollowedTable, now: FollowedTable, *, keeps: bool = False) -> str:
    """Why the log does not lead from one to the other; empty: it does.

    Args:
        keeps: as for `Reading`.
    """
    if before.log != now.log:
        return "the log of the source was opened anew since the table was loaded"
    if before.relation != now.relation:
        return "the source's table, or its part in the publication, was made again since it was loaded"
    columns = [column.name for catalog in (before.catalog, now.catalog) for column in catalog.columns.values()]
    reading = Reading(
        name=spec.name_in_source,
        takes=lambda name: is_kept(name, spec),
        takes_new=spec.schema_evolution.new_column != "ignore",
        keys=key_columns(spec, columns).values(),
        truncated=now.truncates > before.truncates,
        truncated_by=now.truncated_by,
        keeps=keeps,
    )
    messages = since(before.described, now.described)
    found = list(dict.fromkeys(alterations(before.catalog, now.catalog, messages, reading)))
    more = f" (and {len(found) - _NAMES} more)" if len(found) > _NAMES else ""
    return "; ".join(found[:_NAMES]) + more


def may_be_truncated(run: TableRun, now: FollowedTable) -> bool:
    """Whether there may have been a `TRUNCATE`, which the log has then, and may not have brought yet."""
    before = read_followed(run)
    if before is None:
        return False
    return before.relation == now.relation and has_new_files(before.catalog, now.catalog)


def require_followed(run: TableRun, now: FollowedTable) -> Warnings:
    """Refuse a table that was loaded under another log, whose table in the source is another one now, or was altered in
    a way that the log does not tell.

    Returns:
        The warning about dropped partitions whose rows stay, in each run until the table is loaded again.

    Raises:
        FatalError: `SOURCE_LOG_RESTARTED`, `SOURCE_TABLE_ALTERED`.
    """
    before = read_followed(run)
    if before is None:
        is_new = now.log.startswith("0 ") or run.ledger().state.keys is None
        before = now if is_new else replace(now, log="")
    if before.unloaded and run.is_loading:
        raise _refused(run, before, now, f"{before.unloaded}; its load has not ended")
    if why := is_other(run.spec, before, now, keeps=keeps_dropped_partitions(run.spec)):
        raise _refused(run, before, now, why)
    gone = dropped_parts(before.catalog, now.catalog)
    now = replace(now, kept=(*before.kept, *gone))
    if now != read_followed(run):
        write_followed(run, now)
    message = "partitions were dropped or detached in the source, and their rows stay in the table"
    count, sample = len(now.kept), now.kept[-5:]
    return (RunWarning(code=PARTITIONS_KEPT, message=message, count=count, sample=sample),) if count else ()


def require_still_followed(run: TableRun, now: FollowedTable) -> None:
    """Refuse what `require_followed` refuses, and partitions that are gone; writes nothing. A `TRUNCATE` may be behind
    the end of what was read.

    Raises:
        FatalError: `SOURCE_LOG_RESTARTED`, `SOURCE_TABLE_ALTERED`.
    """
    before = read_followed(run) or replace(now, log="")
    if before.unloaded:
        raise _refused(run, before, now, f"{before.unloaded}; its load has not ended")
    if why := is_other(run.spec, before, replace(now, truncates=before.truncates + 1, truncated_by="")):
        raise _refused(run, before, now, why)
    if before.kept:
        gone = ", ".join(before.kept)
        raise _altered_by(run, f"partitions were dropped or detached, and their rows stay in the table: {gone}")


def require_unaltered(run: TableRun, before: FollowedTable, after: FollowedTable) -> FollowedTable:
    """Refuse what was read of a log while the table was altered, before it is loaded.

    Returns:
        The table with which the next run compares: as it was `before` where a `TRUNCATE` may be behind the end of what
        was read, which the next run reads then.

    Raises:
        FatalError: as `require_followed`.
    """
    keeps = keeps_dropped_partitions(run.spec)
    # What the log has described since the last run is compared with the table as it was then (`require_followed`).
    before = replace(before, described=after.described)
    if not is_other(run.spec, before, after, keeps=keeps):
        return after
    unread = replace(after, truncates=before.truncates + 1, truncated_by="")
    if why := is_other(run.spec, before, unread, keeps=keeps):
        raise _refused(run, before, after, why)
    return before


def _refused(run: TableRun, before: FollowedTable, now: FollowedTable, why: str) -> FatalError:
    if (before.log, before.relation) == (now.log, now.relation):
        return _altered_by(run, why)
    what = f"{run.spec.table}: {why}"
    return FatalError(SOURCE_LOG_RESTARTED, what, where=run.spec.name_in_source, remedy=_load_again(run))


def _altered_by(run: TableRun, why: str) -> FatalError:
    what = f"{run.spec.table}: the source's table was altered, which no log tells: {why}"
    return FatalError(SOURCE_TABLE_ALTERED, what, where=run.spec.name_in_source, remedy=_load_again(run))


def _load_again(run: TableRun) -> str:
    return f"load it again: `gddl load --again --table {run.spec.table}`"


def require_not_renamed(run: TableRun, sa: Any, connection: Any) -> None:
    """Say which name the table has now that was followed.

    Raises:
        FatalError: `SOURCE_TABLE_MISSING`.
    """
    before = read_followed(run)
    if before is None:
        return
    found = connection.execute(sa.text(_NAME), {"relation": before.number}).scalar()
    if found is None:
        return
    former, spec = run.spec.name_in_source, run.spec
    what = f"the source has no table {former}: it was renamed to {found}"
    remedy = (
        f"to follow it, write `table: {found}`, and another `target` if it has one, into the metadata row of "
        f"{spec.table}, then `gddl load --table {found}`, which loads it as a new table; or rename it back, and "
        f"`gddl load --again --table {spec.table}`"
    )
    raise FatalError(SOURCE_TABLE_MISSING, what, where=former, remedy=remedy)


_NAME = """
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = :relation
"""
