"""Read: a batch's files become rows. What can't be read goes to the quarantine, what must wait waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch import notices
from spark_jobs.batch.pending import withdraw
from spark_jobs.batch.refusals import require_sound
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.dialects.protocol import KEYS_UNKNOWN, Unreadable
from spark_jobs.plan.planned_batch import BatchPlan, HeldTruncate, TableState
from spark_jobs.plan.sharding import require_same_order
from spark_jobs.plan.table_schema import beyond, protected_missing
from spark_jobs.rules.figures import DecodedBatch, Figures
from spark_jobs.rules.truncates import unknown_truncates
from spark_jobs.tables.table_context import TableContext


def read(table: TableSession, batch: Batch) -> Batch:
    """Decode the files or records of a batch, and refuse what must not be loaded.

    Raises:
        FatalError: the batch as a whole is refused, see `refusals.require_sound`.
    """
    plan, state = batch.plan, table.state
    work, unreadable = table.context.decode_files(plan, state)
    if waiting := tuple(u.file.path for u in unreadable if u.code == KEYS_UNKNOWN):
        withdraw(table.context, plan, table.ledger)
        return replace(batch, set_aside=waiting)
    table.note(notices.of_files(unreadable) if unreadable else ())
    bad_files = tuple(u for u in unreadable if u.code != "FILE_VANISHED")
    bad_loads = () if batch.of_reload else loads_that_hold(table.context, plan, bad_files)
    if work is None or bad_loads:
        if work is not None:
            work.discard()
        return replace(batch, bad_files=bad_loads or bad_files)
    decoded = work.decoded_batch
    held = held_truncate(table.spec, plan, decoded.figures, state) if decoded.figures.truncates else None
    if held is not None:
        work.discard()
        withdraw(table.context, plan, table.ledger)
        return replace(batch, held=held)
    _note(table, plan, decoded)
    _require_protected(table, decoded)
    require_sound(table.run.dialect, decoded, state)
    table.claim.check()
    _require_order(table, plan, decoded)
    table.run.report("read", plan.number, decoded.figures.rows)
    return replace(batch, work=work, bad_files=bad_files)


def _note(table: TableSession, plan: BatchPlan, decoded: DecodedBatch) -> None:
    """Count and note what is in the rows."""
    spec, figures, totals = table.spec, decoded.figures, table.totals
    if figures.truncates:
        totals.truncates += len(unknown_truncates(table.state.truncates, figures.truncates))
        table.note(notices.of_truncates(spec, plan, figures.truncates, table.state))
    if decoded.erased:
        table.note(notices.of_erased(decoded.erased))
    if plan.mode == "initial" and 2 * figures.quarantined > figures.rows:
        table.note(notices.of_bad_first_rows(figures.quarantined, figures.first_bad))
    if figures.reduced:
        table.note(notices.of_times(figures.reduced, spec.sub_microseconds))
    if figures.rescued:
        table.note(notices.of_rescues(figures.rescued))
        totals.rescued += figures.rescued
    if figures.incomplete:
        table.note(notices.of_incomplete_moves(figures.incomplete))
    if figures.partial:
        table.note(notices.of_partial_updates(spec, figures.partial))
    if figures.empty_texts:
        table.note(notices.of_empty_texts(spec, figures.empty_texts))
    if figures.tallies:
        table.note(notices.of_expectations(spec, figures.tallies))
        totals.tally(spec, figures.tallies)
    totals.filtered += decoded.filtered


def _require_protected(table: TableSession, decoded: DecodedBatch) -> None:
    """Require that files have each column that `mask` and `exclude_columns` name.

    Raises:
        FatalError: `PROTECTED_COLUMN_MISSING`, unless our own load from the source has left the columns out.
    """
    missing = decoded.schema.missing
    if missing and (load := table.run.source_load) is not None:
        missing = beyond(missing, load.left_out)
    if missing:
        raise protected_missing(table.spec.table, missing, [column.name for column in decoded.schema.table_schema.data])


def _require_order(table: TableSession, plan: BatchPlan, decoded: DecodedBatch) -> None:
    """Require that all sources of the table order changes by the same columns and types.

    Raises:
        FatalError: as `require_same_order`; nothing waits for the batch then.
    """
    schema = decoded.schema.table_schema
    try:
        require_same_order(table.spec.table, table.run.shard, (schema.sequence, schema.sequence_type), table.run.others)
    except FatalError:
        withdraw(table.context, plan, table.ledger)
        raise


def loads_that_hold(context: TableContext, plan: BatchPlan, bad_files: Sequence[Unreadable]) -> tuple[Unreadable, ...]:
    """Load files that can't be read, for which all of their batch waits, unless its changes are in the change table."""
    loads = tuple(u for u in bad_files if u.file.kind == "load")
    if loads and context.has_appended(plan):
        return ()
    return loads


def held_truncate(spec: TableSpec, plan: BatchPlan, figures: Figures, state: TableState) -> HeldTruncate | None:
    """The first file of a batch with a truncate that waits for a user's release; None: none does."""
    unknown = unknown_truncates(state.truncates, figures.truncates)
    if spec.truncate != "hold" or plan.releases or not unknown:
        return None
    of_file = {one.source_file: one for one in reversed(unknown)}
    first = next(file for file in plan.files if file.path in of_file)
    one = of_file[first.path]
    return HeldTruncate(
        path=first.path, fingerprint=first.fingerprint, sequence=one.sequence, commit_ts=one.commit_ts,
        since=plan.planned_at,
    )  # fmt: skip
