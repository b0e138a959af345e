"""Rooms that bring a source's rows into files of landing folders, which tables then take like those of any service.

A room is a package with a module `reader`, whose `READER` is a `SourceReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from airflow_gddl.contract import actions
from airflow_gddl.contract.codes import SOURCE_MISSING
from airflow_gddl.contract.sources import source_of
from spark_jobs.rooms import found

if TYPE_CHECKING:
    from airflow_gddl.contract.result import JobResult
    from airflow_gddl.contract.table_spec import TableSpec
    from spark_jobs.batch.table_run import TableRun
    from spark_jobs.batch.totals import RunTotals
    from spark_jobs.plan.planned_batch import PlannedFile
    from spark_jobs.source_tables import SourceTable

    Load = Callable[[TableRun, RunTotals], JobResult]

READING = actions.Load | actions.ResyncRows
"""Actions that read the log of a source; the others load what was read."""


@dataclass(frozen=True, kw_only=True)
class LogEnd:
    """How far a job has read PostgreSQL's log of a source, for all tables that follow it.

    Attributes:
        number: how often the log was opened anew before.
        commit: the last commit that was read; None: none was.
        until: all that was committed up to this position was read.
        read_at: all that was committed by then was read, ISO 8601 UTC; empty: that is not known.
    """

    number: int
    commit: int | None
    until: int
    read_at: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceReader:
    """What a job does itself with the source of a table; this one: nothing, a service writes the files.

    Attributes:
        has_work: for a poll: whether a run has more to do than to load files. The totals take what is found otherwise.
        load: brings what is new into files, and loads it by the function that is given.
        open_log: before a table's rows are read: sees that what is committed meanwhile comes by the log. Returns what
            distinguishes this log, and the table in it; empty: jobs read none.
        follow: notes that the table is loaded anew, and follows this log (`open_log`) from now on. Returns whether it
            followed none, or another, before: changes that the load has seen may then be another table's.
        log_end: how far the log was read that the table follows, once it is sure that it follows it still; None: jobs
            read none.
        load_forms: columns that a load has to write otherwise than by the driver, so that they equal those of the log.
        exports: files that an erasure searches in place of change files that are made of them; None: none are.
        withdraw: removes files of the job's own making that were not loaded.
        stream: class of what tells a continuous job which tables have news (`spark_jobs.continuous.streams`), of a
            function that wakes the job, and the environment; None: their folders are listed.
    """

    has_work: Callable[[TableRun, RunTotals], bool] = lambda _run, _totals: False
    load: Callable[[TableRun, RunTotals, Load], JobResult] = lambda run, totals, then: then(run, totals)
    open_log: Callable[[TableRun], str] = lambda _run: ""
    follow: Callable[[TableRun, str], bool] = lambda _run, _log: False
    log_end: Callable[[TableRun], LogEnd | None] = lambda _run: None
    load_forms: Callable[[TableRun, SourceTable], Mapping[str, Any]] = lambda _run, _table: {}
    exports: Callable[[TableRun], tuple[PlannedFile, ...] | None] = lambda _run: None
    withdraw: Callable[[TableRun], None] = lambda _run: None
    stream: type[Any] | None = None


_OF_FILES = SourceReader()


def reader_of(spec: TableSpec) -> SourceReader:
    """
    Raises:
        FatalError: `SOURCE_MISSING`: this installation lacks the room.
    """
    room = source_of(spec)
    if room is None:
        return _OF_FILES
    what = f"{spec.table}: this job's installation lacks what reads its source ({room})"
    return cast("SourceReader", found(f"{__name__}.{room}.reader", "READER", SOURCE_MISSING, what))
