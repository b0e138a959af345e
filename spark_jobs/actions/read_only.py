"""Actions that read: plan, verify with `unique` and `foreign_key`, the quarantine, and what happened to a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_gddl.contract.capture import capture_of
from airflow_gddl.contract.completeness import WINDOW_CODE, WINDOWS
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.kafka import topic_of
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import ExpectationCount, JobResult, RunWarning, error_info, summed
from airflow_gddl.contract.table_spec import SHARD_COLUMN, ForeignKey, TableSpec, lowered
from spark_jobs.actions.maintain import cut_before
from spark_jobs.actions.refresh import rebuild_batches, refresh_batches
from spark_jobs.engines.port import TableContext
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.erasure import KeyRows, WantedKey, key_of_record
from spark_jobs.rules.measure import BUCKETS, Verdict, together
from spark_jobs.rules.order import that_count
from spark_jobs.rules.quarantine import Unresolved
from spark_jobs.rules.verify import (
    MOST_VALUES,
    Reference,
    key_history,
    key_json,
    not_checked,
    replica_records,
    row_facts,
)
from spark_jobs.rules.windows import Window, with_files
from spark_jobs.table import notices
from spark_jobs.table.current_batch import has_few_rows
from spark_jobs.table.notices import foreign_commits, require_replica, warnings_of
from spark_jobs.table.pending import batches_ahead, of_key, wants_source_load
from spark_jobs.table.runtime import RunTotals, TableRun, iso
from spark_jobs.verification import (
    SourceVerdict,
    WindowVerdict,
    grid_of,
    mark_of,
    opened,
    read_orphans,
    settle_time,
    url_of,
    verify_source,
    verify_windows,
    write_orphans,
)


def show_plan(run: TableRun, totals: RunTotals) -> JobResult:
    """The batches that a run, or a repair, would make, without making them; never starts Spark."""
    pending = run.ledger().plan()  # which refuses a table that was loaded otherwise
    is_refresh = run.job.options.repairs or (pending is not None and pending.mode == "refresh")
    planned = [_refresh(run, totals)] if is_refresh else [_planned(one) for one in run.shard_runs() or (run,)]
    batches = [batch for one, _ in planned for batch in one]
    details = {
        "batches": batches,
        "missing": [path for _, found in planned for path in found.missing],
        "folder_missing": any(found.folder_missing for _, found in planned),
        "reads_first": _read_first(run),
    }
    return run.result(totals, status="succeeded" if batches else "skipped", details=details)


def _read_first(run: TableRun) -> str | None:
    """Where a run gets files from before it loads them, which no plan can foresee: `source`, `log` or `topic`."""
    as_run = replace(run, job=replace(run.job, options=replace(run.job.options, action="run")))
    if not run.spec.shards and wants_source_load(as_run, run.ledger()):
        return "source"
    if topic_of(run.spec):
        return "topic"
    return "log" if capture_of(run.spec) else None


def _refresh(run: TableRun, totals: RunTotals) -> tuple[list[dict[str, Any]], Discovery]:
    ledger, options = run.ledger(), run.job.options
    pending, known = ledger.plan(), ledger.state.keys is not None
    from_files = options.reload or options.resync or not known
    begun_from_files = pending is not None and pending.mode == "refresh" and pending.source == "files"
    reads_files = from_files or begun_from_files
    batches, found = refresh_batches(run, totals) if reads_files else rebuild_batches(run)
    return [_described(plan, resumed=resumed) for plan, resumed in batches], found


def _planned(run: TableRun) -> tuple[list[dict[str, Any]], Discovery]:
    """The batches of a table, or of one of its sources, and what was found besides."""
    ledger = run.ledger()
    found = run.discover(ledger)
    require_same_identity(run.spec, ledger.state)
    ahead = batches_ahead(run, ledger.plan(), ledger.state, found)
    return [_described(replace(plan, shard=run.shard), resumed=resumed) for plan, resumed in ahead], found


def _described(plan: BatchPlan, *, resumed: bool) -> dict[str, Any]:
    return {
        "batch": plan.number,
        "mode": plan.mode,
        "generation": plan.generation,
        "files": [f.path for f in plan.files],
        "bytes": sum(f.size for f in plan.files),
        "sweep": plan.sweep,
        "resumed": resumed,
    } | ({"shard": plan.shard} if plan.shard else {})


def verify(run: TableRun, totals: RunTotals) -> JobResult:
    """Compare the replica with the state that its change table gives, and with its source where a connection is named;
    check the row's constraints.

    The result has failed with `VERIFY_DIFFERENT` or `SOURCE_DIFFERENT` when they differ, with `VERIFY_VIOLATED` or
    `CONSTRAINT_NOT_CHECKED`, or with `BATCH_UNFINISHED` when some sources of a table could not be compared.

    Raises:
        FatalError: as `url_of`, also for a table that is not loaded yet; `BATCH_UNFINISHED`.
    """
    run.ledger()  # which refuses a table that was loaded otherwise
    if not run.spec.shards and (connection := _connection(run)):
        url_of(connection, run.runtime.environ)  # a table that is not loaded yet must not hide a wrong name
    if run.job.options.since_seconds is not None:
        return verify_by_windows(run, totals)
    found, unfinished = _judged_by_shard(run, totals)
    if not found:
        return run.result(totals)
    verdict, source = together([one for one, _ in found], run.job.options.limit), found[0][1]
    if source is not None and source.unsettled:
        totals.warn([_unsettled(source)])
    equal = verdict.equal and (source is None or not source.different)
    findings = check_constraints(run)
    totals.warn(unsettled(findings))
    totals.expectations = summed(totals.expectations, [one.count for one in findings])
    kept = not any(one.failed for one in findings)
    details = {"verdict": "different" if not equal else "equal" if kept else "violated", **asdict(verdict)}
    details["compared"] = ["its changes", *([] if source is None else ["its source"])]
    details |= {"constraints": [asdict(one) for one in findings]} if findings else {}
    details["changes_cut_before"] = cut_before(run.runtime.storage, run.layout.state)
    details["source"] = None if source is None else asdict(source)
    if source is not None and equal and not source.unsettled:
        totals.complete_until = source.looked_at
    result = run.result(totals, status="succeeded", details=details)
    error = (broken(findings) or unfinished) if equal else _difference(run.spec, verdict, source)
    return result if error is None else replace(result, status="failed", error=error_info(error))


def _judged_by_shard(
    run: TableRun, totals: RunTotals
) -> tuple[list[tuple[Verdict, SourceVerdict | None]], FatalError | None]:
    """The verdicts on a table, or on its sources, and the error of the first of these with an unfinished batch."""
    found, unfinished = [], None
    for one in run.shard_runs() or (run,):
        try:
            judged = _judged(one, totals)
        except FatalError as error:
            if error.code != notices.UNFINISHED_CODE or not one.shard:
                raise
            unfinished = unfinished or error
            continue
        found += [] if judged is None else [judged]
    if unfinished is not None and not found:
        raise unfinished
    former = {one.shard: one.own_state().rows for one in run.former_shards}
    totals.warn(notices.of_former_shards(former, "were not compared"))
    return found, unfinished


def _judged(run: TableRun, totals: RunTotals) -> tuple[Verdict, SourceVerdict | None] | None:
    """The verdicts on a table, or on the rows of one of its sources; null: nothing of it was loaded."""
    ledger = run.ledger()
    if ledger.state.keys is None:
        notices.require_first_load(run.spec.table, ledger)
        return None
    notices.require_finished(run.title, ledger, run.layout.state, then="verify")
    require_same_identity(run.spec, ledger.state)
    context = run.context()
    table_schema = context.stored_schema(ledger.state)
    require_replica(context, ledger.state)
    totals.warn(warnings_of(foreign_commits(run.spec, context.storage, context.layout, ledger)))
    verdict = context.engine.verify(context, table_schema, ledger.state.swept, run.job.options.limit)
    if run.shard or not table_schema.keys:
        totals.warn(_not_compared(run))
        return verdict, None
    return verdict, _against_source(run, context, table_schema, ledger.state)


def _not_compared(run: TableRun) -> tuple[RunWarning, ...]:
    if not _connection(run):
        return ()
    reason = "a table of several sources" if run.shard else "a table without keys, whose rows can't be matched,"
    message = f"{reason} is compared with its changes alone, not with its source"
    return (RunWarning(code="SOURCE_NOT_COMPARED", message=message),)


def _against_source(
    run: TableRun, context: TableContext, table_schema: TableSchema, state: TableState
) -> SourceVerdict | None:
    """Null without a connection."""
    connection = _connection(run)
    if not connection:
        return None
    runtime = run.runtime
    with opened(url_of(connection, runtime.environ), *run.spec.name_in_source.split(".", 1)) as table:
        return verify_source(context, table_schema, state, table, run.job.options, runtime.clock())


def verify_by_windows(run: TableRun, totals: RunTotals) -> JobResult:
    """Compare what was changed lately with the source, by windows of time; see `JobOptions.since_seconds`.

    The result has failed with `WINDOW_DIFFERENT` when some differ.

    Raises:
        FatalError: as `verify`.
    """
    ledgers = run.shard_ledgers() or (run.ledger(),)
    if all(ledger.state.keys is None for ledger in ledgers):
        notices.require_first_load(run.spec.table, ledgers[0])
        return run.result(totals)
    now = run.runtime.clock()
    found = _against_source_by_windows(run, now)
    if found is None:
        totals.warn([_not_by_windows(run)])
        windows = tuple(grid_of(run.job.options, now).windows())
        found = WindowVerdict(column="", since=windows[0].start, windows=windows, looked_at=iso(now))
    entries = (entry for ledger in ledgers for entry in ledger.all_entries().values())
    spans = [(e.min_commit_ts, e.max_commit_ts) for e in entries if e.min_commit_ts and e.max_commit_ts]
    grid = grid_of(run.job.options, datetime.fromisoformat(found.looked_at))
    found = replace(found, windows=tuple(with_files(found.windows, grid, spans)))
    wrong = [window for window in found.windows if window.is_wrong]
    totals.complete_until = found.proven_until
    verdict = "different" if wrong else "equal" if found.column else "not compared"
    result = run.result(totals, status="succeeded", details={"verdict": verdict, WINDOWS: asdict(found)})
    return replace(result, status="failed", error=error_info(_wrong_windows(run.spec, wrong))) if wrong else result


def _against_source_by_windows(run: TableRun, now: datetime) -> WindowVerdict | None:
    """Null: it can't be compared."""
    connection = _connection(run)
    if run.spec.shards or not connection:
        return None
    url, ledger = url_of(connection, run.runtime.environ), run.ledger()
    notices.require_finished(run.title, ledger, run.layout.state, then="verify")
    require_same_identity(run.spec, ledger.state)
    if not run.spec.keys:
        return None
    context = run.context()
    require_replica(context, ledger.state)
    schema = context.stored_schema(ledger.state)
    with opened(url, *run.spec.name_in_source.split(".", 1)) as table:
        return verify_windows(context, schema, ledger.state, table, run.job.options, now)


def _not_by_windows(run: TableRun) -> RunWarning:
    if run.spec.shards:
        why = "rows of a table of several sources are not compared"
    elif not _connection(run):
        why = "no connection to the source is named"
    elif not run.spec.keys:
        why = "rows of a table without keys can't be matched"
    else:
        named = run.job.options.window_column
        why = f"source and replica have no column of times {named or 'that tells when a row was changed'}"
    message = f"{why}; the files of each window are counted, and nothing is said of what is missing"
    return RunWarning(code="WINDOWS_NOT_COMPARED", message=message)


def _wrong_windows(spec: TableSpec, wrong: Sequence[Window]) -> FatalError:
    """The windows in which something is missing, and the commands that bring it."""
    shown = [f"{one.start} ({one.missing} missing, {one.different} different, {one.extra} extra)" for one in wrong]
    more = f" and {len(shown) - _WINDOWS_NAMED} more" if len(shown) > _WINDOWS_NAMED else ""
    what = f"windows differ from the source: {', '.join(shown[:_WINDOWS_NAMED])}{more}"
    remedy = (
        f"put the files of these times back into landing, then `gddl run --table {spec.table}`; where they are lost, "
        f"`gddl verify --table {spec.table}`, then `gddl resync --differences --table {spec.table}`"
    )
    return FatalError(WINDOW_CODE, what, remedy=remedy)


_WINDOWS_NAMED = 3


def _connection(run: TableRun) -> str:
    """Name of the connection to compare with; empty: none."""
    return run.job.options.source_connection or run.dialect.options.verify_connection or ""


def _unsettled(source: SourceVerdict) -> RunWarning:
    message = "keys differ from the source, and their changes may not have arrived yet; verify again later"
    sample = tuple(k["key"] for k in source.keys if not k["settled"])[:5]
    return RunWarning(code="SOURCE_UNSETTLED", message=message, count=source.unsettled, sample=sample)


def _difference(spec: TableSpec, verdict: Verdict, source: SourceVerdict | None) -> FatalError:
    """The comparison that failed, and the command that repairs it."""
    if not verdict.equal:
        what = (
            f"{verdict.buckets_different} of {BUCKETS} buckets differ: "
            f"{verdict.rows} rows, {verdict.expected_rows} expected"
        )
        again = f"`gddl rebuild --table {spec.table}` rebuilds the replica"
        return FatalError("VERIFY_DIFFERENT", what, remedy=f"see details.keys; {again}")
    count = 0 if source is None else source.different
    what = f"{count} keys of the replica differ from the source, and no newer changes of them can be on their way"
    remedy = (
        "see details.source.keys; the replica holds what its files say: read these rows from the source by "
        f"`gddl resync --differences --table {spec.table}`, or let the CDC service reload the table"
    )
    return FatalError("SOURCE_DIFFERENT", what, remedy=remedy)


def list_errors(run: TableRun, totals: RunTotals) -> JobResult:
    """Unresolved rows of the quarantine, of the codes of the job's options: their number by code, and the oldest rows,
    the key of each before its other values.
    """
    context, options = run.context(), run.job.options
    details: dict[str, Any] = {"unresolved": 0, "codes": [], "rows": []}
    if context.engine.exists(context.layout.errors):
        found = context.engine.unresolved(context, options.limit, options.codes)
        rows = [{"key": key_of_record(row["record"], run.spec.keys), **row} for row in found.rows]
        details = {"unresolved": found.count, "codes": found.codes, "rows": rows}
    return run.result(totals, status="succeeded", quarantined=details["unresolved"], details=details)


_SEARCHED = 1000
"""Unresolved quarantined rows that are searched for the key, oldest first."""
_SHOWN = ("code", "reason", "column", "source_file", "position", "batch_id", "occurred_at", "record")


def explain(run: TableRun, totals: RunTotals) -> JobResult:
    """The changes of the key that the job's options name, and what the tables hold of it; see docs/cli.md.

    Raises:
        FatalError: `EXPLAIN_NOT_POSSIBLE`, `EXPLAIN_KEY_INVALID`, `KEY_NOT_FOUND`, `KEYS_CHANGED`, `TABLES_MISSING`,
            `FIRST_LOAD_UNREADABLE`.
    """
    run = of_key(run, "EXPLAIN_KEY_INVALID")
    ledger = run.ledger()
    notices.require_first_load(run.spec.table, ledger)
    notices.require_keyed(run.spec, ledger.state, "EXPLAIN_NOT_POSSIBLE")
    require_same_identity(run.spec, ledger.state)
    unfinished = ledger.plan() is not None
    context = run.context()
    context = replace(context, engine=context.engine.suited(few_rows=has_few_rows(ledger.state)))
    require_replica(context, ledger.state)
    table_schema = context.stored_schema(ledger.state)
    code = "EXPLAIN_KEY_INVALID"
    wanted = WantedKey.of(run.spec, table_schema, run.job.options.key, code)
    details = _details(run, context, table_schema, wanted, ledger)
    details["batch_unfinished"] = unfinished
    return run.result(totals, status="succeeded", details=details)


def _details(
    run: TableRun, context: TableContext, table_schema: TableSchema, wanted: WantedKey, ledger: Ledger
) -> dict[str, Any]:
    state, layout = ledger.state, context.layout
    changes, replica, tombstones = (
        _rows(run, context, table_schema, wanted, path)
        for path in (layout.changes, layout.replica, layout.tombstones)
    )  # fmt: skip
    quarantine, erased_at = _quarantined(context, wanted), _erased_at(context, wanted)
    if changes is None or replica is None:
        raise _not_found(run)  # a table without changes yet has no keys either
    if not (changes.count or replica.count or (tombstones and tombstones.count) or quarantine["records"] or erased_at):
        raise _not_found(run)
    history = key_history(changes.rows, replica.rows, table_schema, wanted.stored, state.swept)
    left_out = changes.count - changes.rows.num_rows
    deletes = [] if tombstones is None else row_facts(tombstones.rows, table_schema)
    return {
        "keys": [key_json(table_schema, wanted.stored)],
        "outcome": history.outcome,
        "verdict": None if left_out else history.verdict,
        "changes": [_plain(asdict(change)) for change in history.changes],
        "left_out": left_out,
        "archived": changes.rows.num_rows - that_count(changes.rows).num_rows,
        "replica": replica_records(replica.rows, table_schema),
        "tombstone": deletes[-1] if deletes else None,
        "generation": state.generation,
        "swept": state.swept,
        "quarantine": quarantine,
        "may_be_stale": _may_be_stale(quarantine["records"], replica_records(replica.rows, table_schema)),
        "erased_at": erased_at,
        "changes_cut_before": cut_before(run.runtime.storage, layout.state),
    }


def _rows(
    run: TableRun, context: TableContext, table_schema: TableSchema, wanted: WantedKey, path: str
) -> KeyRows | None:
    """Null where there is no table."""
    if not context.engine.exists(path):
        return None
    return context.engine.rows_of_key(context, path, table_schema, wanted.stored, run.job.options.limit)


def _plain(change: dict[str, Any]) -> dict[str, Any]:
    return {**change.pop("facts"), **change}


def _quarantined(context: TableContext, wanted: WantedKey) -> dict[str, Any]:
    """Unresolved records of the key, how many rows were searched of how many, and the number of unread files."""
    exists = context.engine.exists(context.layout.errors)
    left = context.engine.unresolved(context, _SEARCHED) if exists else Unresolved(0, [], [])
    found = [{name: row[name] for name in _SHOWN} for row in left.rows if _is_of(row, wanted)]
    unread = context.engine.in_quarantine(context)[1] if exists else 0
    return {"records": found, "searched": len(left.rows), "unresolved": left.count, "unread_files": unread}


def _may_be_stale(records: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a quarantined record came with the newest change of the row, or later."""
    return any(record["batch_id"] >= row["batch_id"] for record in records for row in rows)


def _is_of(row: Mapping[str, Any], wanted: WantedKey) -> bool:
    """Files that could not be read have no record."""
    return row["record"] is not None and wanted.is_in(row["record"])


def _erased_at(context: TableContext, wanted: WantedKey) -> str | None:
    """Time at which the erasure of the key was requested; null: never."""
    erasures = context.erasures
    key_hash = erasures.keys().held(wanted.stored)
    erasure = None if key_hash is None else erasures.read(key_hash)
    return None if erasure is None else erasure.asked_at


def _not_found(run: TableRun) -> FatalError:
    return FatalError(
        "KEY_NOT_FOUND",
        "the table has no change, row, delete or quarantined record of this key",
        where=run.spec.table,
        remedy="write the key as the source has it; `gddl run --dry-run` shows files that were not loaded yet",
    )


CHECKED = "verify"
"""In place of what rows that fail an expectation do: they stay."""
_SAMPLE = 5


@dataclass(frozen=True, kw_only=True)
class ConstraintFinding:
    """What a check of one constraint has found.

    Attributes:
        name: `unique.<name>` or `foreign_key.<name>`.
        columns: of the replica.
        to, to_columns: the other table of a foreign key; empty for `unique`.
        rows: that were checked: those without a null in the columns.
        failed: rows that break it.
        unsettled: rows without a row in the other table, which may be on its way.
        keys: some of the values as JSON objects, the number of rows that have them, and whether they are settled.
        not_checked: why it was not checked; empty: it was.
    """

    name: str
    columns: tuple[str, ...]
    to: str = ""
    to_columns: tuple[str, ...] = ()
    rows: int = 0
    failed: int = 0
    unsettled: int = 0
    keys: tuple[dict[str, Any], ...] = ()
    not_checked: str = ""

    @property
    def count(self) -> ExpectationCount:
        return ExpectationCount(name=self.name, on=CHECKED, checked=self.rows, failed=self.failed)

    @property
    def message(self) -> str:
        what = f"have no row in {self.to}" if self.to else "have the values of another row"
        return f"{self.name} ({', '.join(self.columns)}): {self.failed} of {self.rows} rows {what}"


def check_constraints(run: TableRun) -> tuple[ConstraintFinding, ...]:
    """Check all constraints of the row on a loaded table; values without a row elsewhere are remembered."""
    if not (run.spec.unique or run.spec.foreign_key):
        return ()
    context = run.context()
    checks = _Checks(run, context, read_orphans(context.storage, context.layout.state), iso(run.runtime.clock()))
    found = [checks.unique(name, columns) for name, columns in run.spec.unique.items()]
    found += [checks.foreign_key(name, key) for name, key in run.spec.foreign_key.items()]
    if checks.before or any(checks.seen.values()):
        write_orphans(context.storage, context.layout.state, checks.seen)
    return tuple(found)


@dataclass(frozen=True)
class _Checks:
    """Attributes:
    before: by constraint, values without a row as remembered from earlier checks, see `OrphanRecords`.
    now: ISO 8601, UTC.
    seen: the same, for the next check.
    """

    run: TableRun
    context: TableContext
    before: Mapping[str, Mapping[str, str]]
    now: str
    seen: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def spec(self) -> TableSpec:
        return self.run.spec

    def unique(self, name: str, columns: tuple[str, ...]) -> ConstraintFinding:
        own = self._within_source(columns)
        finding = ConstraintFinding(name=f"unique.{name}", columns=own)
        try:
            found = self.context.engine.violations(self.context, own, None, self.run.job.options.limit)
        except FatalError as error:
            return _refused(finding, error)
        keys = tuple({"key": text, "rows": rows, "settled": True} for text, rows in found.values)
        return replace(finding, rows=found.rows, failed=found.failed, keys=keys)

    def foreign_key(self, name: str, key: ForeignKey) -> ConstraintFinding:
        finding = ConstraintFinding(
            name=f"foreign_key.{name}", columns=key.columns, to=key.to, to_columns=key.to_columns
        )
        try:
            reference, own = self._reference(key)
            found = self.context.engine.violations(self.context, own, reference, MOST_VALUES)
        except FatalError as error:
            self.seen[finding.name] = self.before.get(finding.name, {})
            return _refused(finding, error)
        settled = self._settled(finding.name, [text for text, _ in found.values])
        failed = sum(rows for text, rows in found.values if text in settled)
        chosen = sorted(found.values, key=lambda one: (one[0] not in settled, one))[: self.run.job.options.limit]
        keys = tuple({"key": text, "rows": rows, "settled": text in settled} for text, rows in chosen)
        return replace(finding, columns=own, to_columns=reference.columns, rows=found.rows, failed=failed,
                       unsettled=found.failed - failed, keys=keys)  # fmt: skip

    def _reference(self, key: ForeignKey) -> tuple[Reference, tuple[str, ...]]:
        """The other table, and the columns here; of sources that both tables have, values are found in the same.

        Raises:
            FatalError: `CONSTRAINT_NOT_CHECKED`.
        """
        path = Layout.of(self.run.job.roots, replace(self.spec, table=key.to)).replica
        if not self.context.engine.exists(path):
            raise not_checked(f"{key.to} is not loaded yet", f"run {key.to}, then verify again")
        if len(key.to_columns) != len(key.columns):
            raise not_checked(f"the row of {key.to} has an error, so its keys are not known", "correct that row")
        own = self._within_source(key.columns)
        if own != key.columns and SHARD_COLUMN in {c.name for c in self.context.engine.columns(path)}:
            return Reference(path=path, columns=(SHARD_COLUMN, *key.to_columns)), own
        return Reference(path=path, columns=key.to_columns), key.columns

    def _within_source(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """With the column that tells the sources of a table with `shards` apart, which may have equal values."""
        added = self.spec.shards and SHARD_COLUMN not in lowered(columns)
        return (SHARD_COLUMN, *columns) if added else columns

    def _settled(self, name: str, values: Sequence[str]) -> set[str]:
        """Those that are without a row for longer than a change may take; all are remembered."""
        before = self.before.get(name, {})
        first = {text: before.get(mark_of((text,)), self.now) for text in values}
        self.seen[name] = {mark_of((text,)): at for text, at in first.items()}
        now, wait = datetime.fromisoformat(self.now), settle_time(self.spec, self.run.job.options)
        return {text for text, at in first.items() if now - datetime.fromisoformat(at) >= wait}


def _refused(finding: ConstraintFinding, error: FatalError) -> ConstraintFinding:
    """
    Raises:
        FatalError: another than that it can't be checked.
    """
    if error.code != "CONSTRAINT_NOT_CHECKED":
        raise error
    return replace(finding, not_checked=f"{error.what}; {error.remedy}")


def broken(findings: Sequence[ConstraintFinding]) -> FatalError | None:
    """The error of a verification: all constraints that rows break, else all that were not checked; null: none."""
    if failed := [one.message for one in findings if one.failed]:
        remedy = "see details.constraints for values; `gddl explain` shows how a row came"
        return FatalError("VERIFY_VIOLATED", "; ".join(failed), remedy=remedy)
    if left := [one for one in findings if one.not_checked]:
        what = "; ".join(f"{one.name}: {one.not_checked}" for one in left)
        return FatalError("CONSTRAINT_NOT_CHECKED", what, remedy="verify again, or remove the constraint from the row")
    return None


def unsettled(findings: Sequence[ConstraintFinding]) -> tuple[RunWarning, ...]:
    """Rows that break a foreign key for less time than a change may take."""
    rows = sum(one.unsettled for one in findings)
    if not rows:
        return ()
    message = "rows have no row in the table of a foreign key, and it may be on its way; verify again later"
    sample = tuple(key["key"] for one in findings for key in one.keys if not key["settled"])[:_SAMPLE]
    return (RunWarning(code="FOREIGN_KEY_UNSETTLED", message=message, count=rows, sample=sample),)
