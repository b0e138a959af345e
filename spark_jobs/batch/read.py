"""Read: a batch's files become rows. What can't be read goes to the quarantine, what must wait waits,
and a batch that must not be loaded is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_gddl.contract.codes import BAD_ROWS, BATCH_UNBALANCED, FILE_VANISHED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import ExpectationCount, summed
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch import notices
from spark_jobs.batch.pending import withdraw
from spark_jobs.batch.session import Batch, TableSession
from spark_jobs.batch.source_log import require_one_log
from spark_jobs.plan.planned_batch import BatchPlan, HeldTruncate, TableState
from spark_jobs.plan.sequence import require_one_form, require_one_width, widths_of
from spark_jobs.plan.sharding import rebuild_of, require_same_order
from spark_jobs.plan.table_schema import TableSchema, beyond, protected_missing
from spark_jobs.rooms.dialects.protocol import KEYS_UNKNOWN, Dialect
from spark_jobs.rules.evaluate import require_within_limits
from spark_jobs.rules.figures import DecodedBatch, Figures
from spark_jobs.rules.texts import forms_of
from spark_jobs.rules.truncates import unknown_truncates


def read(table: TableSession, batch: Batch) -> Batch:
    """Decode the files or records of a batch, and refuse what must not be loaded.

    Raises:
        FatalError: the batch as a whole is refused, see `require_sound`.
    """
    plan, state = batch.plan, table.state
    work, unreadable = table.context.decode_files(plan, state)
    if waiting := tuple(u.file.path for u in unreadable if u.code == KEYS_UNKNOWN):
        withdraw(table, plan)
        return replace(batch, set_aside=waiting)
    table.note(notices.of_files(unreadable) if unreadable else ())
    bad_files = tuple(u for u in unreadable if u.code != FILE_VANISHED)
    # For load files that can't be read all of their batch waits, unless its changes are in the change table.
    bad_loads = () if batch.of_reload else tuple(u for u in bad_files if u.file.kind == "load")
    bad_loads = () if bad_loads and table.context.has_appended(plan) else bad_loads
    if work is None or bad_loads:
        if work is not None:
            work.discard()
        return replace(batch, bad_files=bad_loads or bad_files)
    decoded = work.decoded_batch
    held = held_truncate(table.spec, plan, decoded.figures, state) if decoded.figures.truncates else None
    if held is not None:
        work.discard()
        withdraw(table, plan)
        return replace(batch, held=held)
    _note(table, plan, decoded)
    _require_protected(table, decoded)
    require_sound(table.run.dialect, decoded, state)
    table.claim.check_unless_young()
    _require_order(table, plan, decoded)
    table.run.report("read", plan.number, decoded.figures.rows)
    return replace(batch, work=work, bad_files=bad_files)


def _note(table: TableSession, plan: BatchPlan, decoded: DecodedBatch) -> None:
    """Count and note what is in the rows."""
    spec, figures, totals = table.spec, decoded.figures, table.totals
    if figures.truncates:
        totals.truncates += len(unknown_truncates(table.state.truncates, figures.truncates))
        table.note(notices.of_truncates(spec, plan, figures.truncates, table.state))
    table.note(notices.of_rows(spec, plan, decoded))
    totals.rescued += figures.rescued
    if figures.tallies:
        table.note(notices.of_expectations(spec, figures.tallies))
        counts = [
            ExpectationCount(name=name, on=spec.expect[name].on, checked=checked, failed=failed)
            for name, (checked, failed) in figures.tallies.items()
        ]
        totals.expectations = summed(totals.expectations, counts)
    totals.filtered += figures.filtered


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
    if not table.run.others:
        return
    try:
        require_same_order(table.spec.table, table.run.shard, (schema.sequence, schema.sequence_type), table.run.others)
    except FatalError:
        withdraw(table, plan)
        raise


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


def require_sound(dialect: Dialect, decoded_batch: DecodedBatch, state: TableState) -> None:
    """Refuse an invalid batch before anything is written."""
    spec, figures = dialect.spec, decoded_batch.figures
    if decoded_batch.rows_by_footer is not None and decoded_batch.rows_by_footer != figures.rows:
        raise FatalError(
            BATCH_UNBALANCED,
            f"the files' footers state {decoded_batch.rows_by_footer} rows, {figures.rows} were read",
            where=spec.table,
            remedy="report this with the job's log; nothing was written",
        )
    if figures.quarantined and spec.on_bad_row == "fail" and decoded_batch.schema_of:
        bad = {path: f.quarantined for path, f in figures.files.items() if f.quarantined}
        raise FatalError(
            BAD_ROWS,
            f"{figures.quarantined} bad rows in {', '.join(sorted(bad))}; the first: {figures.first_bad}",
            where=spec.table,
            remedy="correct them at the source, or set on_bad_row to quarantine; nothing was written",
        )
    if decoded_batch.schema_of and figures.tallies:
        require_within_limits(spec, figures.tallies)
    _require_ordered_text(dialect, decoded_batch, state)
    if decoded_batch.schema.table_schema.log_positions:
        known = state.snapshots
        # Those that were known before the row said when a log began have its places of before.
        servers = dialect.replaced_snapshots(known).servers if known is not None and known.servers else ()
        require_one_log(spec, decoded_batch, state, servers)


def _require_ordered_text(dialect: Dialect, decoded_batch: DecodedBatch, state: TableState) -> None:
    table_schema, figures = decoded_batch.schema.table_schema, decoded_batch.figures
    if not figures.widths and not figures.forms:
        return
    ends = {end: path for path, f in figures.files.items() for end in (f.min_sequence, f.max_sequence)}
    examples = {end: path for end, path in {**ends, state.max_sequence: ""}.items() if end is not None}
    again = rebuild_of(dialect.spec)
    remedy = (
        "take files of another connector out of the landing folder; where the source itself has changed, set "
        f"sequence_by to columns that both have (a time first) and {again}"
        if dialect.of_one_length and table_schema.sequence[:1] == dialect.total_order[:1]
        else "deliver them with a fixed width or as numbers, or declare `options.types` (e.g. decimal(38,0)) for the "
        f"column, and {again}"
    )
    # Behind a time, positions of another kind of source are compared only where that is equal.
    behind = table_schema.sequence[1:] if dialect.of_one_length else ()
    widths = {c: w for c, w in figures.widths.items() if c not in behind or c not in dialect.total_order}
    require_one_width(widths, widths_of(state.max_sequence, table_schema.sequence), examples, remedy)
    known = known_forms(state, table_schema)
    for column, forms in figures.forms.items():
        remedy = (
            "deliver times as in ISO 8601 (2025-09-30T02:30:00+02:00), numbers without signs and exponents, "
            f"identifiers with a fixed width; or declare `options.types` (e.g. {column}: decimal(38,0)), or name "
            f"another column in `sequence_by`; where changes were loaded before, {again}, which also puts times of "
            "several zones in order"
        )
        require_one_form(column, forms, known.get(column, ()), remedy)


def known_forms(state: TableState, table_schema: TableSchema) -> Mapping[str, tuple[str, ...]]:
    """Sequence column to the forms of its texts so far; where a ledger was made from tables, of the greatest alone."""
    if state.sequence_forms or state.max_sequence is None:
        return state.sequence_forms
    return forms_of(state.max_sequence, table_schema.sequence)


def forms_after(figures: Figures, state: TableState, table_schema: TableSchema) -> dict[str, tuple[str, ...]]:
    """Known forms of text sequences after a batch, by column."""
    known = known_forms(state, table_schema)
    names = [name for name in table_schema.text_sequence if name in table_schema.ordered_text]
    return {name: tuple(sorted({*known.get(name, ()), *figures.forms.get(name, {})})) for name in names}
