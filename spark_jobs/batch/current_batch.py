"""A batch while it is carried out: what it may and must do, what of it is written, its commit, and tidying."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import ICEBERG_KINDS
from airflow_gddl.contract.layout import FEW_ROWS
from airflow_gddl.contract.result import MainCounts
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage, lake_files
from spark_jobs.batch.notices import versions_of
from spark_jobs.batch.pending import NextBatch
from spark_jobs.batch.runtime import TableRun
from spark_jobs.dialects.protocol import Dialect, Unreadable
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.applied_settings import history_begins, settings_of
from spark_jobs.plan.discover import Discovery, SweepRule, generation_low_watermarks_of, held_sweep, state_after
from spark_jobs.plan.identity import vacuum_hours
from spark_jobs.plan.planned_batch import (
    BatchCommit,
    BatchPlan,
    FileEntry,
    ForeignCommit,
    HeldSweep,
    HeldTruncate,
    PlannedFile,
    TableState,
)
from spark_jobs.plan.sequence import (
    LONGEST_TRANSACTION,
    greater,
    is_after,
    log_began_of,
    log_place,
    longest_transaction,
    require_one_form,
    require_one_width,
    widths_of,
)
from spark_jobs.plan.sharding import refreshed
from spark_jobs.plan.source_snapshots import generation_after
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.errors_table import MISFIT_CODE
from spark_jobs.rules.evaluate import require_within_limits
from spark_jobs.rules.figures import DecodedBatch, Figures, FileFigures, LogRestart
from spark_jobs.rules.step_results import NOTHING_APPENDED, Appended, Overlap
from spark_jobs.rules.sweep import unknown_truncates
from spark_jobs.rules.texts import forms_of
from spark_jobs.tables.delta_log import APPEND, version_of
from spark_jobs.tables.engine import AppendedWork, TableContext, TableWork


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A planned batch on its way.

    Attributes:
        left: what waits after it.
        foreign: commits that others made to the tables before it.
        of_reload: what it makes is judged as a whole before it replaces anything, also what a file lacks.
    """

    coming: NextBatch
    ledger: Ledger
    claim: Claim
    left: Discovery
    foreign: tuple[ForeignCommit, ...] = ()
    of_reload: bool = False

    @property
    def plan(self) -> BatchPlan:
        return self.coming.plan

    def decided(self, plan: BatchPlan | None) -> Batch:
        """The batch with what its files have decided; null: nothing."""
        if plan is None:
            return self
        left = self.left if plan.files == self.plan.files else replace(self.left, listed_in_full_at=None)
        return replace(self, coming=replace(self.coming, plan=plan), left=left)


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """What of a batch has reached the change table and the quarantine.

    Attributes:
        work: null when no file could be read.
        plan: the batch's plan with what its files have decided; null: as it was.
        purged_at: when old tombstones were removed in this batch; null when it wasn't their time.
        held: the batch has written nothing, since a truncate of this file waits for a user's release; null: none does.
        set_aside: files with truncates alone, for which the batch has written nothing: there is no table yet.
    """

    work: AppendedWork | None = None
    plan: BatchPlan | None = None
    bad_files: tuple[Unreadable, ...] = ()
    purged_at: str | None = None
    held: HeldTruncate | None = None
    set_aside: tuple[str, ...] = ()

    @property
    def decoded_batch(self) -> DecodedBatch | None:
        return None if self.work is None else self.work.decoded_batch

    @property
    def opens(self) -> bool:
        """A generation is opened by a readable load file or a missing folder; not by a damaged file."""
        return self.work is not None or not self.bad_files

    @property
    def appended(self) -> Appended:
        return NOTHING_APPENDED if self.work is None else self.work.appended


_SMALL_BYTES = 4 * 1024**2


def require_sound(dialect: Dialect, decoded_batch: DecodedBatch, state: TableState) -> None:
    """Refuse an invalid batch before anything is written."""
    spec, figures = dialect.spec, decoded_batch.figures
    if decoded_batch.rows_by_footer is not None and decoded_batch.rows_by_footer != figures.rows:
        raise FatalError(
            "BATCH_UNBALANCED",
            f"the files' footers state {decoded_batch.rows_by_footer} rows, {figures.rows} were read",
            where=spec.table,
            remedy="report this with the job's log; nothing was written",
        )
    if figures.quarantined and spec.on_bad_row == "fail" and decoded_batch.schema_of:
        bad = {path: f.quarantined for path, f in figures.files.items() if f.quarantined}
        raise FatalError(
            "BAD_ROWS",
            f"{figures.quarantined} bad rows in {', '.join(sorted(bad))}; the first: {figures.first_bad}",
            where=spec.table,
            remedy="correct them at the source, or set on_bad_row to quarantine; nothing was written",
        )
    if decoded_batch.schema_of:
        require_within_limits(spec, figures.tallies)
    _require_ordered_text(dialect, decoded_batch, state)
    if decoded_batch.schema.table_schema.log_positions:
        require_one_log(spec, figures, state)


def require_one_log(spec: TableSpec, figures: Figures, state: TableState) -> None:
    """Refuse changes that were committed after all known ones, but precede them in the source's log.

    A file that came late was committed earlier too, and so were changes that are captured again. Between files all of a
    file is compared with all before it, inside a file each change with those before it.

    Raises:
        FatalError: `SOURCE_LOG_RESTARTED`.
    """
    timed = [(path, f) for path, f in figures.files.items() if f.max_sequence and f.min_commit_ts and f.max_commit_ts]
    known, newest = log_place(state.max_sequence), state.log_time or state.max_commit_ts
    for path, file in sorted(timed, key=lambda entry: entry[1].min_commit_ts or ""):
        place, since, inside = log_place(file.max_sequence), file.min_commit_ts or "", figures.restarts.get(path)
        if known and newest and place and place < known and _are_later(file, newest, known):
            raise _restarted(spec, path, LogRestart(place=place, known=known, since=since, until=since, newest=newest))
        if inside and (newest is None or _is_later(inside.until, newest, longest_transaction(inside.known))):
            since = inside.since if newest is None or inside.since > newest else inside.until
            raise _restarted(spec, path, replace(inside, since=since, newest=max(inside.newest, newest or "")))
        newest = newest if known and place and place < known else max(newest or "", file.max_commit_ts or "")
        known = max(known or "", place or "")


def log_time(figures: Figures, state: TableState) -> str | None:
    """Latest commit time of changes at the end of the source's log or behind it; null while there is none."""
    known, newest = log_place(state.max_sequence), state.log_time or state.max_commit_ts
    ends = [f for f in figures.files.values() if f.max_commit_ts and (log_place(f.max_sequence) or "") >= (known or "")]
    return max((t for t in (newest, *(f.max_commit_ts for f in ends)) if t is not None), default=None)


def _restarted(spec: TableSpec, path: str, found: LogRestart) -> FatalError:
    again = refreshed(spec, "run a rebuild")
    return FatalError(
        "SOURCE_LOG_RESTARTED",
        f"{spec.table}: changes committed from {found.since} on are at {found.place} in the source's log, before "
        f"{found.known}, which was committed by {found.newest}: the log was reset; nothing was written",
        where=path,
        remedy=f"set options.log_began to the time of the reset, {found.since} at the latest, e.g. "
        f'["{found.since}"], and run again; where changes were ingested meanwhile, {again} to put them in order',
    )


def _are_later(file: FileFigures, newest: str, known: str) -> bool:
    """Whether all changes of a file were committed later, or some so much later that no transaction explains it."""
    return _is_later(file.min_commit_ts, newest, longest_transaction(known)) or _is_later(
        file.max_commit_ts, newest, LONGEST_TRANSACTION
    )


def _is_later(time: str | None, newest: str, longest: timedelta) -> bool:
    return time is not None and datetime.fromisoformat(time) - datetime.fromisoformat(newest) > longest


def files_before_log_began(spec: TableSpec, ledger: Ledger) -> tuple[str, ...]:
    """Files ingested under another `log_began` than the row's, with changes from after a moment that differs.

    Their positions lack the number of that beginning, or have another's.
    """
    before, now = set(ledger.state.log_began), set(log_began_of(spec))
    if before == now or ledger.state.max_sequence is None:
        return ()
    moment = min(moment_of(text) for text in before ^ now)
    times = {path: entry.max_commit_ts for path, entry in ledger.all_entries().items()}
    return tuple(sorted(path for path, time in times.items() if time is not None and moment_of(time) >= moment))


def _require_ordered_text(dialect: Dialect, decoded_batch: DecodedBatch, state: TableState) -> None:
    table_schema, figures = decoded_batch.schema.table_schema, decoded_batch.figures
    ends = {end: path for path, f in figures.files.items() for end in (f.min_sequence, f.max_sequence)}
    examples = {end: path for end, path in {**ends, state.max_sequence: ""}.items() if end is not None}
    again = refreshed(dialect.spec, "run a rebuild")
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
    for column, found in figures.forms.items():
        require_one_form(column, found, known.get(column, ()), _remedy_of_forms(column, again))


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
    """The same after a batch."""
    known = known_forms(state, table_schema)
    names = [name for name in table_schema.text_sequence if name in table_schema.ordered_text]
    return {name: tuple(sorted({*known.get(name, ()), *figures.forms.get(name, {})})) for name in names}


def is_small(plan: BatchPlan, state: TableState) -> bool:
    """Whether batch and table are so small that planning costs more than the work."""
    return sum(f.size for f in plan.files) < _SMALL_BYTES and has_few_rows(state)


def has_few_rows(state: TableState) -> bool:
    """The same of a table at rest."""
    return state.rows < FEW_ROWS


def schema_changes(decoded_batch: DecodedBatch, state: TableState) -> bool:
    """Whether the tables have to change for this batch."""
    schema = decoded_batch.schema
    planned = (*schema.plan.additions, *schema.plan.widenings, *schema.before.additions, *schema.before.widenings)
    return (
        bool(planned or schema.new_technical)
        or (schema.table_schema.rescues and not schema.table_schema.rescued)
        or schema.schemas != state.schemas
        or schema.table_schema.sequence_type != state.sequence_type
    )


def with_decision(plan: BatchPlan, schema: BatchSchema, state: TableState) -> BatchPlan:
    """The plan with what the batch adds to the ledger's schemas, and changes in the order and generations of the table.

    A run that resumes the batch from the change table has no files to decide it from, and one that resumes it after the
    tables changed sees no column that becomes text.
    """
    if schema.schemas != state.schemas:
        plan = replace(plan, schemas=schema.schemas)
    ordered = schema.table_schema
    if ordered.sequence and (ordered.sequence, ordered.sequence_type) != (state.sequence_by, state.sequence_type):
        plan = replace(plan, sequence_by=ordered.sequence, sequence_type=ordered.sequence_type)
    if schema.snapshots != state.snapshots:
        generation = generation_after(schema.snapshots, plan.generation)
        plan = replace(plan, snapshots=schema.snapshots, generation=generation)
    if ordered.truncates != state.truncates:
        plan = replace(plan, truncates=ordered.truncates)
    if any(str(widening.after) == "string" for widening in schema.plan.widenings):
        plan = replace(plan, unlocks=True)
    return plan


def held_truncate(spec: TableSpec, plan: BatchPlan, figures: Figures, state: TableState) -> HeldTruncate | None:
    """The first file of a batch with a truncate that waits for a user's release; null: none does."""
    found = unknown_truncates(state.truncates, figures.truncates)
    if spec.truncate != "hold" or plan.releases or not found:
        return None
    of_file = {one.source_file: one for one in reversed(found)}
    first = next(file for file in plan.files if file.path in of_file)
    one = of_file[first.path]
    return HeldTruncate(
        path=first.path, fingerprint=first.fingerprint, sequence=one.sequence, commit_ts=one.commit_ts,
        since=plan.planned_at,
    )  # fmt: skip


def loads_that_hold(context: TableContext, plan: BatchPlan, bad_files: Sequence[Unreadable]) -> tuple[Unreadable, ...]:
    """Load files that can't be read, for which all of their batch waits, unless its changes are in the change table."""
    loads = tuple(u for u in bad_files if u.file.kind == "load")
    if loads and context.engine.last_transaction(context.layout.changes, APPEND) >= version_of(plan):
        return ()
    return loads


def load_is_whole(plan: BatchPlan, bad_files: Sequence[Unreadable], ledger: Ledger) -> bool:
    """Whether every file of the full load is readable: rows of unreadable files must not be swept."""
    if any(u.file.kind == "load" for u in bad_files):
        return False
    planned = {f.path for f in plan.files}
    others = (e for path, e in ledger.entries().items() if path not in planned)
    return not any(e.kind == "load" and e.state == "unreadable" and e.generation == plan.generation for e in others)


def overlap_of(figures: Figures, plan: BatchPlan, ledger: Ledger) -> Overlap:
    """Overlap of the batch's changes with earlier batches, by the ledger."""
    lows = [f.min_sequence for f in figures.files.values() if f.min_sequence is not None]
    known = ledger.state.max_sequence
    loads = any(
        e.kind == "load" and e.generation == plan.generation and e.state == "committed"
        for e in ledger.entries().values()
    )
    changes = known is not None and not all(is_after(low, known) for low in lows)
    return Overlap(
        changes=changes,
        loads=bool(figures.loads) and loads,
        later=not changes and _of_now(plan),
    )


def is_late_as_a_whole(figures: Figures, state: TableState) -> bool:
    """Whether a batch has changes, and each precedes one of an earlier batch."""
    highs = [f.max_sequence for f in figures.files.values() if f.max_sequence is not None]
    known = state.max_sequence
    return known is not None and bool(highs) and all(is_after(known, high) for high in highs)


def _of_now(plan: BatchPlan) -> bool:
    """Whether a batch has only changes of the table's newest generation. Replayed rows may be of any."""
    return plan.source == "files" and all(f.kind == "change" and f.generation == plan.generation for f in plan.files)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Result of a sweep.

    Attributes:
        done: rows of older generations were removed; false also where the batch does not sweep.
        held: why they were not, though the full load is complete; null: not held.
    """

    done: bool = False
    counts: MainCounts = field(default_factory=MainCounts)
    held: HeldSweep | None = None


NOT_SWEPT = Swept()


def sweep(context: TableContext, work: TableWork, plan: BatchPlan) -> Swept:
    """Sweep, unless it would remove a larger share of the replica than the row allows without a release."""
    rows, live = work.sweepable()
    held = held_sweep(plan, rows, live, SweepRule.of(context.spec))
    return Swept(held=held) if held is not None else Swept(done=True, counts=work.sweep())


def sweep_alone(context: TableContext, plan: BatchPlan, state: TableState, *, sweeps: bool) -> Swept:
    """Run a batch without rows: for a missing folder, or a settled reload.

    Args:
        sweeps: remove rows of older generations; else tables are only reconciled with the row.
    """
    changed = state.applied != settings_of(context.spec)
    if not context.engine.exists(context.layout.replica) or not (sweeps or changed):
        return Swept(done=sweeps)
    work = context.engine.table_work(context, plan, context.stored_schema(state))
    if changed:
        work.ensure_tables()
    swept = sweep(context, work, plan) if sweeps else NOT_SWEPT
    derived = swept.done or history_begins(context.spec, state.applied)
    if derived and context.spec.history and context.spec.keys:
        vanished = plan.generation if swept.done else state.swept
        work.history(generation_low_watermarks_of(plan, state), swept=vanished)
    return swept


_MISPLACED = 1000
"""Most paths that the ledger keeps of files with positions of another log."""


def commit_of(context: TableContext, batch: Batch, done: Ingested, swept: Swept, grown: int) -> BatchCommit:
    """
    Args:
        grown: rows that the replica has gained.
    """
    plan, before = batch.plan, batch.ledger.state
    after = _state_of(context, batch, done, before, swept=swept.done)
    unlocked, replayed = _unlocked(context, plan, batch.ledger)
    after = replace(
        after,
        rows=max(0, before.rows + grown),
        tombstones_purged_at=done.purged_at or after.tombstones_purged_at,
        delta_versions=versions_of(context.engine, context.layout),
        foreign=batch.foreign,
        held=swept.held or (None if swept.done else after.held),
        unlocked=unlocked,
        replayed=replayed,
    )
    return BatchCommit(
        number=plan.number, plan=plan, files=_entries_of(context.storage, plan, done, before), state=after
    )


def has_unresolved(context: TableContext) -> bool:
    """Whether anything is in quarantine."""
    return context.engine.exists(context.layout.errors) and context.engine.in_quarantine(context)[0] > 0


def _unlocked(context: TableContext, plan: BatchPlan, ledger: Ledger) -> tuple[int, int]:
    """`TableState.unlocked` and `replayed` after a batch; of a table of several sources they only grow."""
    state = ledger.state
    if plan.source == "quarantine" and (not plan.codes or MISFIT_CODE in plan.codes):
        return (state.unlocked, ledger.unlocked) if plan.shard else (0, 0)
    if (plan.unlocks or state.unlocked) and has_unresolved(context):
        return state.unlocked + plan.unlocks, state.replayed
    return (state.unlocked, state.replayed) if plan.shard else (0, 0)


def _entries_of(storage: Storage, plan: BatchPlan, done: Ingested, state: TableState) -> tuple[FileEntry, ...]:
    """A row for each readable or unreadable file of the plan; none for files that were removed.

    What was read of a file that was written meanwhile may be a part of it, also if its content is in the end what it
    was: its row says so by having no fingerprint, and the next listing takes it as written again.
    """
    bad = {u.file.path for u in done.bad_files}
    rows = []
    for file in plan.files:
        if file.path in bad:
            reopens = not done.opens and file.kind == "load" and file.generation > max(state.generation, 1)
            generation = max(state.generation, 1) if reopens else file.generation
            rows.append(replace(file.entry(plan.number), state="unreadable", generation=generation, reopens=reopens))
        elif done.decoded_batch is not None and file.path in done.decoded_batch.schema_of:
            rows.append(_read_entry(file, plan, done.decoded_batch))
    as_listed = {file.path for file in plan.files if storage.is_as_listed(file, file.fingerprint)}
    return tuple(row if row.path in as_listed else replace(row, fingerprint="", etag="") for row in rows)


def _read_entry(file: PlannedFile, plan: BatchPlan, decoded_batch: DecodedBatch) -> FileEntry:
    entry = replace(file.entry(plan.number), schema=decoded_batch.schema_of[file.path], rows=0)
    figures = decoded_batch.figures.files.get(file.path)
    return entry if figures is None else replace(entry, **asdict(figures))


def _state_of(context: TableContext, batch: Batch, done: Ingested, state: TableState, *, swept: bool) -> TableState:
    """The table's state by the batch's files.

    Args:
        swept: rows of older generations were removed.
    """
    decoded_batch, spec = done.decoded_batch, context.spec
    plan = batch.plan if done.opens else replace(batch.plan, generation=max(state.generation, 1))
    landing, times = context.layout.landing, context.dialect.times
    after = state_after(plan, state, landing=landing, left=batch.left, times=times)
    if swept:
        after = replace(after, swept=plan.generation)
    if decoded_batch is None:
        return after
    highest, newest = state.max_sequence, state.max_commit_ts
    for figures in decoded_batch.figures.files.values():
        highest = greater(highest, figures.max_sequence)
        newest = max(filter(None, (newest, figures.max_commit_ts)), default=None)
    table_schema = decoded_batch.schema.table_schema
    return replace(
        after,
        keys=spec.keys,
        sequence_by=table_schema.sequence or state.sequence_by,
        sequence_type=table_schema.sequence_type if table_schema.sequence else state.sequence_type,
        sequence_forms=forms_after(decoded_batch.figures, state, table_schema),
        log_began=log_began_of(spec),
        misplaced=tuple(dict.fromkeys((*state.misplaced, *files_before_log_began(spec, batch.ledger))))[:_MISPLACED],
        log_time=log_time(decoded_batch.figures, state) if table_schema.log_positions else None,
        schemas=decoded_batch.schema.schemas,
        max_sequence=highest,
        max_commit_ts=newest,
        applied=settings_of(spec),
    )


TABLES = ("changes", "replica", "history", "errors", "tombstones")
BATCHES_PER_TIDYING = 100
"""It lists the table's folders: on S3 one call per thousand files, far below what so many batches cost."""
_LOG = logging.getLogger(__name__)


def is_due(batch: int, done: int) -> bool:
    """
    Args:
        batch: number of the last batch.
        done: batches of this run.
    """
    return batch // BATCHES_PER_TIDYING > (batch - done) // BATCHES_PER_TIDYING


def tidy(run: TableRun, context: TableContext, ledger: Ledger, claim: Claim, batches: int) -> None:
    """Remove files that no version needs, after `vacuum_retention`, and archive run records; if due.

    Errors are only logged: the batches are done, and the next tidying finds what is left.

    Args:
        batches: of this run.
    """
    if not has_few_rows(ledger.state) or not is_due(ledger.state.batch, batches):
        return
    try:
        hours = vacuum_hours(run.spec)
        lake_files.compact(run.runtime.storage, context.layout.runs)
        for name in TABLES:
            if name in ICEBERG_KINDS and run.spec.iceberg:  # its readers may use files that Delta does not need
                continue
            if context.engine.exists(path := getattr(context.layout, name)):
                claim.check()
                context.engine.maintenance(context).vacuum(path, hours, dry_run=False)
    except Exception as error:  # noqa: BLE001 - as said above
        _LOG.warning("old files of %s stay: %s", run.spec.table, error)
