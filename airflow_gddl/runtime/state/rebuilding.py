"""Rebuilds the state from the run records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import RunsDocument, place, update_runs
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.moments import latest
from airflow_gddl.runtime.state.reading import LakeState
from airflow_gddl.runtime.state.records import records_of
from airflow_gddl.stores import open_store


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
