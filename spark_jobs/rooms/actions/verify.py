"""The replica compared with its change table and with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import (
    BATCH_UNFINISHED,
    COLUMNS_NOT_COMPARED,
    SOURCE_DIFFERENT,
    SOURCE_NOT_COMPARED,
    SOURCE_UNSETTLED,
    SWEEP_HELD,
    VERIFY_DIFFERENT,
    WINDOW_DIFFERENT,
    WINDOWS_NOT_COMPARED,
)
from airflow_gddl.contract.completeness import WINDOWS
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import few
from airflow_gddl.contract.result import JobResult, RunWarning, Warnings
from airflow_gddl.contract.table_spec import TableSpec
from spark_jobs.batch import notices
from spark_jobs.batch.damaged_tables import require_undamaged
from spark_jobs.batch.own_tables import foreign_commits, require_loaded_tables, warnings_of
from spark_jobs.batch.pending import has_tables
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.cut_changes import cut_before
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.rooms.actions.verify_against import verify_against
from spark_jobs.rules.verify import BUCKETS, Verdict, verdict_of
from spark_jobs.rules.windows import Window, with_files
from spark_jobs.source_tables import opened, url_of
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.verification import (
    ABSENT,
    Columns,
    ComparedWithSource,
    SourceComparison,
    SourceVerdict,
    WindowVerdict,
    grid_of,
)


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Compare the replica with the state that its change table gives, and with its source where a connection is named.

    The result has failed with `VERIFY_DIFFERENT` or `SOURCE_DIFFERENT` when they differ, with `SWEEP_HELD` while rows
    that the newest full load lacks wait for a user, or with `BATCH_UNFINISHED` when some sources of a table could not
    be compared.

    Raises:
        FatalError: as `url_of`, also for a table that is not loaded yet; `BATCH_UNFINISHED`; as `require_undamaged`
            and `verify_against`.
    """
    run.ledger()  # which refuses a table that was loaded otherwise
    require_undamaged(run)
    if _asked(run).against:
        return verify_against(run, totals)
    if not run.spec.shards and (connection := run.source_connection):
        url_of(connection, run.runtime.environ)  # a table that is not loaded yet must not hide a wrong name
    if _asked(run).since_seconds is not None:
        return _by_windows(run, totals)
    verdicts, unfinished = _judged_by_shard(run, totals)
    if not verdicts:
        totals.warn([notices.not_loaded(run.spec.table)])
        return run.result(totals)
    verdict, source = verdict_of([one for one, _ in verdicts], _asked(run).limit), verdicts[0][1]
    if source is not None and source.unsettled:
        totals.warn([_unsettled(source)])
    if source is not None:
        totals.warn(_columns_left_out(source))
    equal = verdict.equal and (source is None or not source.different)
    held = _held(run)
    kind = "different" if not equal else "held" if held else "equal"
    details = {
        "verdict": kind, "rows": verdict.rows, "expected_rows": verdict.expected_rows,
        "buckets_different": len(verdict.buckets), "keys": verdict.keys,
    }  # fmt: skip
    details["compared"] = ["its changes", *([] if source is None else ["its source"])]
    details["changes_cut_before"] = cut_before(run.runtime.storage, run.layout.state)
    details["source"] = None if source is None else asdict(source)
    if source is not None and equal and not held and not source.unsettled:
        totals.complete_until = source.looked_at
    return run.answer(totals, details, (held or unfinished) if equal else _difference(run.spec, verdict, source))


def _held(run: TableRun) -> FatalError | None:
    """Why a table is not equal to anything though it is what its changes give; None: nothing is held."""
    states = [ledger.state for ledger in run.ledgers()]
    held = next((state.held for state in states if state.held is not None), None)
    if held is None:
        return None
    what = f"{run.spec.table} has rows that its newest full load lacks: {notices.lacking(held)}"
    return FatalError(SWEEP_HELD, what, where=run.spec.table, remedy=notices.release(run.spec.table))


def _judged_by_shard(
    run: TableRun, totals: RunTotals
) -> tuple[list[tuple[Verdict, SourceVerdict | None]], FatalError | None]:
    """The verdicts on a table, or on its sources, and the error of the first of these with an unfinished batch."""
    verdicts, unfinished = [], None
    for one in run.shard_runs() or (run,):
        try:
            judged = _judged(one, totals)
        except FatalError as error:
            if error.code != BATCH_UNFINISHED or not one.shard:
                raise
            unfinished = unfinished or error
            continue
        verdicts += [] if judged is None else [judged]
    if unfinished is not None and not verdicts:
        raise unfinished
    former = {one.shard: one.own_state().rows for one in run.former_shards}
    totals.warn(notices.of_former_shards(former, "were not compared"))
    return verdicts, unfinished


def _judged(run: TableRun, totals: RunTotals) -> tuple[Verdict, SourceVerdict | None] | None:
    """The verdicts on a table, or on the rows of one of its sources; None: nothing of it was loaded."""
    ledger = run.ledger()
    if ledger.state.keys is None:
        context = run.context()
        notices.require_tables(run, ledger.state, changes_exist=has_tables(run, context, ledger.state))
        notices.require_first_load(run.spec.table, ledger)
        if ledger.plan() is None and not run.shard:
            there = DeltaCommits(run.runtime.storage).exists(run.layout.changes)
            notices.require_tables(run, ledger.state, changes_exist=there)
        return None
    notices.require_finished(run, ledger, then="verify")
    require_same_identity(run.spec, ledger.state)
    context = run.context()
    require_loaded_tables(context, ledger.state)
    table_schema = context.stored_schema(ledger.state)
    totals.warn(warnings_of(foreign_commits(run, ledger)))
    verdict = context.stored.verify(table_schema, ledger.state.swept, _asked(run).limit)
    if not (connection := run.source_connection):
        return verdict, None
    if run.shard or not table_schema.keys:
        reason = "a table of several sources" if run.shard else "a table without keys, whose rows can't be matched,"
        message = f"{reason} is compared with its changes alone, not with its source"
        totals.warn([RunWarning(code=SOURCE_NOT_COMPARED, message=message)])
        return verdict, None
    with opened(url_of(connection, run.runtime.environ), run.spec.name_in_source) as table:
        columns, now = Columns.of(table, table_schema), run.runtime.clock()
        return verdict, SourceComparison(context, ledger.state, table, columns, _asked(run), now).verdict()


def _by_windows(run: TableRun, totals: RunTotals) -> JobResult:
    """Compare what was changed lately with the source, by windows of time; see `Verify.since_seconds`.

    The result has failed with `WINDOW_DIFFERENT` when some differ.

    Raises:
        FatalError: as `verify`.
    """
    ledgers = run.ledgers()
    if all(ledger.state.keys is None for ledger in ledgers):
        notices.require_first_load(run.spec.table, ledgers[0])
        totals.warn([notices.not_loaded(run.spec.table)])
        return run.result(totals)
    now = run.runtime.clock()
    window_verdict = _against_source_by_windows(run, now)
    if window_verdict is None:
        totals.warn([_not_by_windows(run)])
        windows = tuple(grid_of(_asked(run), now).windows())
        window_verdict = WindowVerdict(column="", since=windows[0].start, windows=windows, looked_at=iso(now))
    entries = (entry for ledger in ledgers for entry in ledger.all_entries().values())
    spans = [(e.min_commit_ts, e.max_commit_ts) for e in entries if e.min_commit_ts and e.max_commit_ts]
    grid = grid_of(_asked(run), datetime.fromisoformat(window_verdict.looked_at))
    window_verdict = replace(window_verdict, windows=tuple(with_files(window_verdict.windows, grid, spans)))
    totals.warn(_columns_left_out(window_verdict))
    wrong, held = [window for window in window_verdict.windows if window.is_wrong], _held(run)
    totals.complete_until = None if held else window_verdict.proven_until
    verdict = "different" if wrong else "held" if held else "equal" if window_verdict.column else "not compared"
    details = {"verdict": verdict, WINDOWS: asdict(window_verdict)}
    return run.answer(totals, details, _wrong_windows(run.spec, wrong) if wrong else held)


def _against_source_by_windows(run: TableRun, now: datetime) -> WindowVerdict | None:
    """Null: it can't be compared."""
    connection = run.source_connection
    if run.spec.shards or not connection:
        return None
    url, ledger = url_of(connection, run.runtime.environ), run.ledger()
    notices.require_finished(run, ledger, then="verify")
    require_same_identity(run.spec, ledger.state)
    if not run.spec.keys:
        return None
    context = run.context()
    require_loaded_tables(context, ledger.state)
    schema = context.stored_schema(ledger.state)
    with opened(url, run.spec.name_in_source) as table:
        return SourceComparison(context, ledger.state, table, Columns.of(table, schema), _asked(run), now).in_windows()


def _not_by_windows(run: TableRun) -> RunWarning:
    if run.spec.shards:
        why = "rows of a table of several sources are not compared"
    elif not run.source_connection:
        why = "no connection to the source is named"
    elif not run.spec.keys:
        why = "rows of a table without keys can't be matched"
    else:
        named = _asked(run).window_column
        why = f"source and replica have no column of times {named or 'that tells when a row was changed'}"
    message = f"{why}; the files of each window are counted, and nothing is said of what is missing"
    return RunWarning(code=WINDOWS_NOT_COMPARED, message=message)


def _wrong_windows(spec: TableSpec, wrong: Sequence[Window]) -> FatalError:
    """The windows in which something is missing, and the commands that bring it."""
    shown = [f"{one.start} ({one.missing} missing, {one.different} different, {one.extra} extra)" for one in wrong]
    what = f"windows differ from the source: {few(shown, _WINDOWS_NAMED)}"
    remedy = (
        f"put the files of these times back into landing, then `gddl run --table {spec.table}`; where they are lost, "
        f"`gddl verify --table {spec.table}`, then `gddl resync --differences --table {spec.table}`"
    )
    return FatalError(WINDOW_DIFFERENT, what, remedy=remedy)


_WINDOWS_NAMED = 3


def _asked(run: TableRun) -> Verify:
    return run.job.options.asked(Verify)


def _columns_left_out(verdict: ComparedWithSource) -> Warnings:
    """A warning where columns that both sides should have were not compared."""
    done, every = verdict.columns
    why = {name: reason for name, reason in verdict.not_compared.items() if reason != ABSENT}
    named = ", ".join(f"{name} ({reason})" for name, reason in why.items())
    message = f"compared with the source in {done} of {every} columns; nothing is known of {named}"
    return notices.of_names(COLUMNS_NOT_COMPARED, message, list(why)) if done != every else ()


def _unsettled(source: SourceVerdict) -> RunWarning:
    message = "keys differ from the source, and their changes may not have arrived yet; verify again later"
    sample = tuple(k["key"] for k in source.keys if not k["settled"])[:5]
    return RunWarning(code=SOURCE_UNSETTLED, message=message, count=source.unsettled, sample=sample)


def _difference(spec: TableSpec, verdict: Verdict, source: SourceVerdict | None) -> FatalError:
    """The comparison that failed, and the command that repairs it."""
    if not verdict.equal:
        what = (
            f"{len(verdict.buckets)} of {BUCKETS} buckets differ: {verdict.rows} rows, {verdict.expected_rows} expected"
        )
        remedy = f"`gddl rebuild --table {spec.table}` makes the replica again; `details.keys` of the result names keys"
        return FatalError(VERIFY_DIFFERENT, what, remedy=remedy)
    count = 0 if source is None else source.different
    what = f"{count} keys of the replica differ from the source, and no newer changes of them can be on their way"
    remedy = (
        f"the replica holds what its files say: `gddl resync --differences --table {spec.table}` reads these rows from "
        "the source, or let the CDC service load the table again; `details.source.keys` of the result names keys"
    )
    return FatalError(SOURCE_DIFFERENT, what, remedy=remedy)
