"""When a decoded batch is refused, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.codes import BAD_ROWS, BATCH_UNBALANCED
from airflow_gddl.contract.errors import FatalError
from spark_jobs.batch.source_log import require_one_log
from spark_jobs.dialects.protocol import Dialect
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.sequence import require_one_form, require_one_width, widths_of
from spark_jobs.plan.sharding import rebuild_of
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.evaluate import require_within_limits
from spark_jobs.rules.figures import DecodedBatch, Figures
from spark_jobs.rules.texts import forms_of


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
    if decoded_batch.schema_of:
        require_within_limits(spec, figures.tallies)
    _require_ordered_text(dialect, decoded_batch, state)
    if decoded_batch.schema.table_schema.log_positions:
        known = state.snapshots
        # Those that were known before the row said when a log began have its places of before.
        servers = dialect.replaced_snapshots(known).servers if known is not None and known.servers else ()
        require_one_log(spec, decoded_batch, state, servers)


def _require_ordered_text(dialect: Dialect, decoded_batch: DecodedBatch, state: TableState) -> None:
    table_schema, figures = decoded_batch.schema.table_schema, decoded_batch.figures
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
        require_one_form(column, forms, known.get(column, ()), _remedy_of_forms(column, again))


def _remedy_of_forms(column: str, again: str) -> str:
    return (
        "deliver times as in ISO 8601 (2025-09-30T02:30:00+02:00), numbers without signs and exponents, identifiers "
        f"with a fixed width; or declare `options.types` (e.g. {column}: decimal(38,0)), or name another column in "
        f"`sequence_by`; where changes were loaded before, {again}, which also puts times of several zones in order"
    )


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
