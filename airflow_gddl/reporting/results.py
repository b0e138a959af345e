"""Reports of a load: one log line for each table, metrics, asset events, and a summary that fits an XCom.

Airflow sends a task's events only when the task succeeds. A pack with one failing table must still report the others,
so events are stored in the state until a task of the pipeline succeeds: a load, or the next sensor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.assets import alias_of, table_asset
from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import LOADS
from airflow_gddl.contract.errors import GddlError, RetriableError, coded
from airflow_gddl.contract.result import JobResult, MainCounts, RunWarning, summed
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.runners.interface import ProgressEvent
from airflow_gddl.runners.this_machine import Heartbeat
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_runs import seconds_of
from airflow_gddl.version_compat import AirflowException, AirflowFailException, gauge


def add_events(context: Context, dag_id: str, pending: Mapping[str, Mapping[str, Any]]) -> None:
    """Send an event for each of these tables if the running task succeeds."""
    events = context["outlet_events"][alias_of(dag_id)]
    for table, extra in pending.items():
        events.add(table_asset(table), extra=dict(extra))


def announce(context: Context, metadata: str, dag_id: str) -> None:
    """Send all pending events of the pipeline.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    document = configuration.compiled_metadata(metadata).pipeline(dag_id)
    if document is None:
        return
    environ = configuration.environ_of(document)
    state = StateRecorder(document.roots, dag_id, document.pipeline.tables, environ=environ)
    add_events(context, dag_id, state.take_events())


@dataclass(frozen=True, kw_only=True)
class LoadedTables:
    """Grows while a task runs.

    Attributes:
        specs: the pipeline's rows by table.
        environ: where connections to sources are looked up.
        sums: totals by table, of tables with rows or deletes.
    """

    roots: Roots
    specs: Mapping[str, TableSpec]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    sums: dict[str, JobResult] = field(default_factory=dict)

    def take(self, result: JobResult) -> None:
        """Add a result; results of failed or idle tables and of other actions are ignored."""
        if result.status != "succeeded" or result.action not in LOADS or result.table not in self.specs:
            return
        before = self.sums.get(result.table)
        self.sums[result.table] = result if before is None else _sum(before, result)


def _sum(before: JobResult, after: JobResult) -> JobResult:
    """`after` with the sum of both counts, and the mode of the first full load or refresh."""
    counted = ("files", "bytes_read", "rows_read", "changes_written")
    sums: dict[str, Any] = {name: getattr(before, name) + getattr(after, name) for name in counted}
    return replace(
        after,
        **sums,
        expectations=summed(before.expectations, after.expectations),
        mode=after.mode if before.mode == "incremental" else before.mode,
        main=MainCounts(
            inserted=before.main.inserted + after.main.inserted,
            updated=before.main.updated + after.main.updated,
            deleted=before.main.deleted + after.main.deleted,
            rows=after.main.rows,
        ),
    )


SHOWN = 20
_COUNTED = 500
"""Tables of a run whose metrics are sent."""


class Logger(Protocol):
    """The logger methods that are used."""

    def info(self, message: str, /, *values: object) -> object: ...

    def warning(self, message: str, /, *values: object) -> object: ...

    def error(self, message: str, /, *values: object) -> object: ...

    def debug(self, message: str, /, *values: object) -> object: ...


class Reporter:
    """A `Listener` that logs and emits metrics.

    Args:
        specs: rows by table, for their freshness.
        clock: seconds, monotonic.
        loaded: receives every result; None: not collected.
    """

    def __init__(
        self,
        log: Logger,
        specs: Mapping[str, TableSpec],
        clock: Callable[[], float] = time.monotonic,
        loaded: LoadedTables | None = None,
    ) -> None:
        self._log, self._specs, self._heartbeat, self._loaded = log, specs, Heartbeat(clock), loaded
        self._counted: set[str] = set()

    def on_progress(self, event: ProgressEvent) -> None:
        self._log.debug("%s: %s, batch %d, %d rows", event.table, event.step, event.batch, event.rows)
        self._heartbeat.moved(event)

    def tick(self) -> None:
        """Log the progress of the tables if nothing else was logged; called several times a second while a job runs."""
        if (line := self._heartbeat.line()) is not None:
            self._log.info("%s", line)

    def on_result(self, result: JobResult) -> None:
        self._heartbeat.ended(result.table)
        if self._loaded is not None:
            self._loaded.take(result)
        if result.status == "failed":
            self._log.error("%s failed: %s", result.table, reason(result))
            self._count_expectations(result)
            return
        counts = f"{result.files} files, {result.rows_read} rows read, {result.changes_written} changes"
        counts += f", {result.quarantined} quarantined" if result.quarantined else ""
        place = f", by {result.place}" if result.place else ""
        self._log.info("%s %s: %s, %.1f s%s", result.table, result.status, counts, result.seconds, place)
        for one in result.expectations:
            if one.failed:
                what = "%s: %d of %d rows fail expectation %s (on: %s)"
                self._log.warning(what, result.table, one.failed, one.checked, one.name, one.on)
        for warning in result.warnings:
            self._log.warning("%s: [%s] %s%s", result.table, warning.code, warning.message, _files(warning))
        if tags := self._count_expectations(result):
            for name in ("rows_read", "bytes_read", "quarantined", "batches", "seconds"):
                gauge(f"gddl.{name}", float(getattr(result, name)), tags)
            gauge("gddl.warnings", float(sum(warning.count for warning in result.warnings)), tags)
        self._measure(result)

    def _count_expectations(self, result: JobResult) -> dict[str, str]:
        """Emit the metrics of expectations, of failed runs too; returns the tags of the table, none: not counted."""
        spec = self._specs.get(result.table)
        if spec is None or (result.table not in self._counted and len(self._counted) >= _COUNTED):
            return {}
        self._counted.add(result.table)
        tags = {"table": result.table, "tier": spec.size}
        for one in result.expectations:
            gauge("gddl.expectation_failed", float(one.failed), {**tags, "expectation": one.name})
        return tags

    def _measure(self, result: JobResult) -> None:
        """A table that was loaded is up to date as of its run's start, or since when something waits; its lag grows
        while its source is quiet.
        """
        lag, spec = result.freshness.lag_seconds, self._specs.get(result.table)
        if lag is not None:
            gauge("gddl.lag_seconds", lag, {"table": result.table})
        if (until := seconds_of(result.freshness.complete_until)) is not None:
            gauge("gddl.complete_until", until, {"table": result.table})
        if spec is None or spec.freshness is None:
            return
        waiting = seconds_of(result.freshness.waiting_since)
        if result.status != "succeeded" and waiting is None:
            return
        limit = durations.seconds(spec.freshness)
        late = result.seconds > limit
        waits = waiting is not None and time.time() - waiting > limit
        gauge("gddl.late", int(late or waits), {"table": result.table})
        if waits:
            what = "%s is late: what has landed since %s is not applied, and its freshness is %s"
            self._log.warning(what, result.table, result.freshness.waiting_since, spec.freshness)
        elif late:
            what = "%s is late: its run took %.0f s, longer than its freshness, %s"
            self._log.warning(what, result.table, result.seconds, spec.freshness)


@contextmanager
def airflow_errors(*, final: bool = True) -> Iterator[None]:
    """Raises errors of this package as Airflow's: a task is retried after those that may pass.

    Args:
        final: it is not retried after the others.
    """
    try:
        yield
    except GddlError as error:
        ends = final and not isinstance(error, RetriableError)
        raise (AirflowFailException if ends else AirflowException)(str(error)) from error


def is_final(failed: Sequence[JobResult]) -> bool:
    """Whether a retry would fail in each of these tables with the same error."""
    return all(result.error is not None and result.error.fatal for result in failed)


def explained(failed: Sequence[JobResult], total: int, *, final: bool = False) -> str:
    """Error text of a failed load: tables with code and remedy, grouped by reason; the first few reasons in full.

    Args:
        final: no retry follows.
    """
    from airflow_gddl.contract.alike import Message, grouped  # noqa: PLC0415 - only a load that failed comes here

    reasons = grouped(Message(result.table, "", reason(result)) for result in failed)
    then = "no retry would help these; fix their causes, then clear the task" if final else "a retry loads only these"
    others = "the others succeeded, and " if len(failed) < total else ""
    lines = [f"{len(failed)} of {total} tables failed; {others}{then}:"]
    lines += [f"- {', '.join(one.tables)}: {one.text}{_alike(one.others)}" for one in reasons[:SHOWN]]
    if unshown := [table for one in reasons[SHOWN:] for table in (*one.tables, *one.others)]:
        lines.append(f"- also {', '.join(unshown)}")
    return "\n".join(lines)


def _alike(others: Sequence[str]) -> str:
    return f"\n  The same in {len(others)} more tables: {', '.join(others)}" if others else ""


def summary(results: Sequence[JobResult]) -> dict[str, Any]:
    """Counts, and the first tables that failed; each table's result is in the lake, and in the task's log."""
    return {
        "tables": len(results),
        **{status: sum(r.status == status for r in results) for status in ("succeeded", "skipped", "failed")},
        "rows_read": sum(r.rows_read for r in results),
        "changes": sum(r.changes_written for r in results),
        "failed_tables": [result.table for result in results if result.status == "failed"][:SHOWN],
    }


def _files(warning: RunWarning) -> str:
    if not warning.files:
        return ""
    more = warning.count - len(warning.files)
    return f": {', '.join(warning.files)}{f' and {more} more' if more > 0 else ''}"


def reason(result: JobResult) -> str:
    """Code, message and remedy of a table that failed."""
    if result.error is None:
        return "the job gave no reason; see its log"
    return coded(result.error.code, result.error.message)
