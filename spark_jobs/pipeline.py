"""The one page to read: a table's run, from discovery to ledger.

    discover ─► plan ─► read ─► decode ─► check ─► evolve ─► quarantine ─► append ─► tombstones ─► merge ─► sweep ─► history ─► commit

A batch is planned before it runs and committed last; every write between is idempotent under the batch's number, so that a run
that died is simply run again (docs/design.md, section 7, rule 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_gddl.contract import codec
from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult, MainCounts
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs import emptied, notices
from spark_jobs.claim import Claim
from spark_jobs.discovery import discover
from spark_jobs.dialects.probe import Unreadable
from spark_jobs.engines.spark.batch import Appended, Overlap, SparkBatch
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.desk import Desk
from spark_jobs.intake import Intake, take_in
from spark_jobs.ledger import Ledger
from spark_jobs.ledger_rows import Settled, entries_of, state_of
from spark_jobs.outcome import Outcome
from spark_jobs.plan.batch import BatchCommit, BatchPlan, TableState
from spark_jobs.plan.batching import Limits, next_batch
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.sequence import is_after, require_one_width
from spark_jobs.runtime import Runtime, Step, iso


_SMALL_BYTES, _SMALL_ROWS = 4 * 1024**2, 200_000


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """One table in one run.

    Attributes:
        beside: other places for its tables and state than the usual; a full refresh builds beside the living tables.
    """

    job: JobSpec
    spec: TableSpec
    runtime: Runtime
    beside: Layout | None = None

    @property
    def options(self) -> DmsOptions:
        return codec.decode(DmsOptions, dict(self.spec.options))

    @property
    def layout(self) -> Layout:
        return self.beside or Layout.of(self.job.roots, self.spec)

    def desk(self) -> Desk:
        return Desk(
            spec=self.spec,
            options=self.options,
            tier=self.job.tiers[self.spec.size],
            layout=self.layout,
            storage=self.runtime.storage,
            tables=Tables(self.runtime.spark.for_table()),
        )

    def ledger(self) -> Ledger:
        return Ledger.open(self.runtime.storage, self.layout.state)

    def discover(self, ledger: Ledger) -> Discovery:
        full = self.job.options.full_listing
        return discover(self.runtime.storage, self.layout.landing, self.options, ledger, self.runtime.clock(), full)

    def claim(self) -> Claim:
        options = self.job.options
        return Claim.acquire(
            self.runtime.storage, self.layout.state, self.job.run_id, self.runtime.clock, options.wait_seconds
        )

    def tell(self, step: str, batch: int = 0, rows: int = 0) -> None:
        self.runtime.observe(Step(table=self.spec.table, step=step, batch=batch, rows=rows))

    @property
    def limits(self) -> Limits:
        tier = self.job.tiers[self.spec.size]
        return Limits(max_files=tier.max_files_per_batch, max_bytes=tier.max_bytes_per_batch)


def run_table(run: TableRun, outcome: Outcome) -> JobResult:
    """Bring one table up to date; Spark starts only when there is work.

    Raises:
        GddlError: whatever stopped the table; `outcome` holds what was done before.
    """
    started = run.runtime.clock()
    ledger = run.ledger()
    run.tell("discover")
    found = run.discover(ledger)
    outcome.warn(notices.of_discovery(found, run.layout.landing))
    outcome.mode = "initial" if ledger.state.batch == 0 else "incremental"
    outcome.max_commit_ts = ledger.state.max_commit_ts
    replaying = run.job.options.action == "errors_replay"
    if found.waiting or ledger.plan() is not None or _is_emptied(run, found, ledger) or replaying:
        require_same_identity(run.spec, ledger.state)
        with run.claim() as claim:
            _work_off(run, claim, outcome)
    result = outcome.result(run.spec.table, run.job.run_id, started, run.runtime.clock())
    run.tell("done", outcome.batches, outcome.rows_read)
    return result


def _work_off(run: TableRun, claim: Claim, outcome: Outcome) -> None:
    """Batch after batch until nothing waits."""
    ledger, desk = run.ledger(), run.desk()
    if ledger.plan() is None or ledger.state.batch:
        notices.require_tables(run.spec.table, ledger.state, desk.tables.exists(desk.layout.changes), desk.layout.state)
    found = run.discover(ledger)
    limit = run.job.options.max_batches
    while limit is None or outcome.batches < limit:
        plan, begun = ledger.plan(), True
        if plan is None and run.job.options.action == "errors_replay":
            plan, begun = _replay_plan(run, ledger) if outcome.batches == 0 else None, False
        elif plan is None:
            plan, begun = _next_plan(run, found, ledger), False
        if plan is None:
            break
        if not begun:
            claim.check()
            ledger.write_plan(plan)
        run.tell("plan", plan.number)
        found = found.without(plan)
        run_batch(run, desk, Batch(plan=plan, ledger=ledger, claim=claim, left=found), outcome)
    if outcome.batches and desk.tables.exists(desk.layout.replica):
        outcome.main = replace(outcome.main, rows=desk.tables.count(desk.layout.replica))
        outcome.version = desk.tables.version(desk.layout.replica)


def _next_plan(run: TableRun, found: Discovery, ledger: Ledger) -> BatchPlan | None:
    now = run.runtime.clock()
    if _is_emptied(run, found, ledger):
        state = ledger.state
        return BatchPlan(number=state.batch + 1, mode="incremental", planned_at=iso(now), generation=state.generation + 1,
                         files=(), sweep=True)  # fmt: skip
    return next_batch(found.waiting, limits=run.limits, state=ledger.state, now=now)


def _replay_plan(run: TableRun, ledger: Ledger) -> BatchPlan | None:
    state = ledger.state
    if state.keys is None:
        return None
    return BatchPlan(number=state.batch + 1, mode="incremental", planned_at=iso(run.runtime.clock()),
                     generation=state.generation, files=(), source="quarantine")  # fmt: skip


def _is_emptied(run: TableRun, found: Discovery, ledger: Ledger) -> bool:
    """The folder is gone, the row says that this empties the table, and no batch has done so yet."""
    if not (found.folder_missing and run.options.missing_folder == "empty" and ledger.state.batch):
        return False
    last = ledger.last_commit()
    return last is None or not last.plan.sweep or bool(last.plan.files)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A planned batch on its way.

    Attributes:
        left: what waits after it.
    """

    plan: BatchPlan
    ledger: Ledger
    claim: Claim
    left: Discovery


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """What of a batch has reached the change table and the quarantine.

    Attributes:
        spark, intake: null when no file could be read.
    """

    spark: SparkBatch | None
    intake: Intake | None
    bad_files: tuple[Unreadable, ...]
    appended: Appended


def run_batch(run: TableRun, desk: Desk, batch: Batch, outcome: Outcome) -> None:
    """Carry out one planned batch and commit it."""
    plan, state = batch.plan, batch.ledger.state
    desk.tables.suit(small=is_small(plan, state))
    done = ingest(run, desk, batch, outcome)
    sweeps = plan.sweep and load_is_whole(plan, done.bad_files, batch.ledger)
    if done.spark is not None:
        main = _apply(run, done.spark, batch, outcome, sweeps=sweeps)
        if plan.source == "quarantine":
            done.spark.resolve()
    else:
        main = emptied.sweep_all(desk, plan, state, floors_of(plan, state)) if sweeps else MainCounts()
    commit(run, desk, batch, done, swept=sweeps, grown=main.inserted - main.deleted)
    if done.intake is not None:
        done.intake.decoded.unpersist()
    count(outcome, plan, done)
    outcome.count(main)
    outcome.max_commit_ts = batch.ledger.state.max_commit_ts


def ingest(run: TableRun, desk: Desk, batch: Batch, outcome: Outcome) -> Ingested:
    """From files to change table and quarantine."""
    plan, state = batch.plan, batch.ledger.state
    intake, unreadable = take_in(desk, plan, state)
    outcome.warn(notices.of_files(unreadable))
    bad_files = tuple(u for u in unreadable if u.code != "FILE_VANISHED")
    if intake is None:
        if bad_files:
            emptied.quarantine_files(desk, plan, state, bad_files)
        return Ingested(spark=None, intake=None, bad_files=bad_files, appended=Appended(written=0, redelivered=0))
    _check(run, intake, state)
    spark = _spark_batch(desk, plan, intake, state)
    batch.claim.check()
    spark.ensure_tables()
    if plan.source == "files":
        spark.quarantine(intake.groups, bad_files, _known(batch))
    run.tell("quarantine", plan.number, intake.figures.quarantined)
    appended = spark.append(overlap_of(intake, plan, batch.ledger))
    run.tell("append", plan.number, appended.written)
    outcome.warn((*intake.schema.warnings, *appended.warnings))
    outcome.schema_changes += [c for c in intake.schema.plan.changes if c not in outcome.schema_changes]
    return Ingested(spark=spark, intake=intake, bad_files=bad_files, appended=appended)


def is_small(plan: BatchPlan, state: TableState) -> bool:
    """Whether batch and table are so small that planning costs more than the work."""
    return sum(f.size for f in plan.files) < _SMALL_BYTES and state.rows < _SMALL_ROWS


def load_is_whole(plan: BatchPlan, bad_files: Sequence[Unreadable], ledger: Ledger) -> bool:
    """Whether every file of the full load could be read: rows of a file that couldn't must not vanish for it."""
    if any(u.file.kind == "load" for u in bad_files):
        return False
    planned = {f.path for f in plan.files}
    others = (e for path, e in ledger.entries().items() if path not in planned)
    return not any(e.kind == "load" and e.state == "unreadable" and e.generation == plan.generation for e in others)


def commit(run: TableRun, desk: Desk, batch: Batch, done: Ingested, *, swept: bool = False, grown: int = 0) -> None:
    """Make the batch count: the last of its writes."""
    plan = batch.plan
    run.tell("commit", plan.number)
    batch.claim.check()
    state = batch.ledger.state
    settled = Settled(spec=run.spec, plan=plan, intake=done.intake, unreadable=done.bad_files, swept=swept)
    entries = entries_of(settled, state)
    after = state_of(settled, state, desk.layout.landing, batch.left)
    after = replace(after, rows=max(0, state.rows + grown))
    batch.ledger.commit(BatchCommit(number=plan.number, plan=plan, files=entries, state=after))
    run.tell("committed", plan.number)


def _check(run: TableRun, intake: Intake, state: TableState) -> None:
    """Refuse, before anything is written, what no row may decide for itself."""
    figures = intake.figures
    if intake.rows_by_footer is not None and intake.rows_by_footer != figures.rows:
        raise FatalError("BATCH_UNBALANCED", f"the files' footers say {intake.rows_by_footer} rows, {figures.rows} were read",
                         where=run.spec.table, remedy="report this with the job's log; nothing was written")  # fmt: skip
    if figures.quarantined and run.spec.on_bad_row == "fail" and intake.schema_of:
        bad = {path: f.quarantined for path, f in figures.files.items() if f.quarantined}
        raise FatalError("BAD_ROWS", f"{figures.quarantined} bad rows in {', '.join(sorted(bad))}", where=run.spec.table,
                         remedy="correct them at the source, or set on_bad_row to quarantine; nothing was written")  # fmt: skip
    require_one_width(figures.widths, state.max_sequence, run.spec.table)


def _spark_batch(desk: Desk, plan: BatchPlan, intake: Intake, state: TableState) -> SparkBatch:
    return SparkBatch(
        tables=desk.tables,
        layout=desk.layout,
        tier=desk.tier,
        plan=plan,
        shape=intake.schema.shape,
        decoded=intake.decoded,
        figures=intake.figures,
        schemas=intake.change_schemas,
        epoch=state.epoch or plan.planned_at,
    )


def _apply(run: TableRun, spark: SparkBatch, batch: Batch, outcome: Outcome, *, sweeps: bool) -> MainCounts:
    """From appended changes to replica and history."""
    plan = batch.plan
    if not spark.shape.keys:
        applied = spark.append_only()
        run.tell("merge", plan.number)
        swept = spark.sweep() if sweeps else MainCounts()
        return replace(applied.main, deleted=applied.main.deleted + swept.deleted)
    net = spark.net()
    spark.tombstones(net)
    run.tell("tombstones", plan.number)
    applied = spark.merge(net)
    outcome.warn(applied.warnings)
    swept = spark.sweep() if sweeps else MainCounts()
    run.tell("merge", plan.number, applied.main.inserted + applied.main.updated + applied.main.deleted)
    if run.spec.history:
        spark.history(net, floors_of(plan, batch.ledger.state), everything=sweeps)
        run.tell("history", plan.number)
    net.rows.unpersist()
    return replace(applied.main, deleted=applied.main.deleted + swept.deleted)


def floors_of(plan: BatchPlan, state: TableState) -> tuple[str | None, ...]:
    """Greatest sequence ingested before each generation, the plan's own included."""
    return state.generation_floor + (state.max_sequence,) * (plan.generation - len(state.generation_floor))


def overlap_of(intake: Intake, plan: BatchPlan, ledger: Ledger) -> Overlap:
    """Whether the change table can hold changes of this batch already, as far as the ledger tells."""
    lows = [f.min_sequence for f in intake.figures.files.values() if f.min_sequence is not None]
    known = ledger.state.max_sequence
    loads = any(
        e.kind == "load" and e.generation == plan.generation and e.state == "committed" for e in ledger.entries().values()
    )
    return Overlap(
        changes=known is not None and not all(is_after(low, known) for low in lows), loads=bool(intake.figures.loads) and loads
    )


def _known(batch: Batch) -> list[str]:
    """Files of the plan that the ledger knows in an earlier version."""
    entries = batch.ledger.entries()
    return [f.path for f in batch.plan.files if f.path in entries]


def count(outcome: Outcome, plan: BatchPlan, done: Ingested) -> None:
    outcome.batches += 1
    outcome.files += len(plan.files)
    outcome.changes_written += done.appended.written
    outcome.redelivered += done.appended.redelivered
    if done.intake is not None:
        outcome.rows_read += done.intake.figures.rows
        outcome.quarantined += done.intake.figures.quarantined
