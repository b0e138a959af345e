"""The batches of a full refresh: where they are built, and which a new or interrupted refresh would make."""

from __future__ import annotations

from dataclasses import replace

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from spark_jobs.actions import refresh_generations
from spark_jobs.delta.commits import version_of
from spark_jobs.engines.port import TableContext
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.discover import Discovery
from spark_jobs.table.foreign import has_all_changes
from spark_jobs.table.next_batch import batches_ahead, moment
from spark_jobs.table.outcome import RunTotals
from spark_jobs.table.run import TableRun
from spark_jobs.table.runtime import iso


def new_plan(
    run: TableRun, ledger: Ledger, interrupted: BatchPlan | None = None, context: TableContext | None = None
) -> BatchPlan:
    """Plan of a refresh that starts now, as the table's next batch, in place of a started one.

    Args:
        context: to see which numbers of batches the tables have where the ledger does not know them; null: not asked.
    """
    state = ledger.state
    known = max(state.batch, 0 if context is None else _unknown_batches(context, ledger))
    return BatchPlan(
        number=known + 1, mode="refresh", planned_at=iso(moment(run, ledger, interrupted)),
        generation=max(state.generation, 1), files=(), interrupted=interrupted,
    )  # fmt: skip


def _unknown_batches(context: TableContext, ledger: Ledger) -> int:
    """Greatest number of a batch in the change table that the ledger lacks; no later one may have it again."""
    is_lost = ledger.state.batch == 0
    if not is_lost and has_all_changes(context.spec, context.storage, context.layout, ledger):
        return 0
    if not context.engine.exists(context.layout.changes):
        return 0
    return max((file.batch for file in context.engine.recorded_files(context)), default=0)


def shadow_of(run: TableRun, plan: BatchPlan) -> TableRun:
    """The run of the shadow table: its tables and its ledger lie below the state folder of the live table."""
    live = run.layout
    root = join(live.state, "refresh", f"{plan.batch_id}-{version_of(plan)}")
    layout = replace(
        live, changes=join(root, "changes"), errors=join(root, "errors"), state=join(root, "ledger"),
        replica=join(root, "replica"), history=join(root, "history"),
    )  # fmt: skip
    # A partition column may come with a later file; the new tables are checked once all files are read.
    return replace(run, layout_override=layout, spec=replace(run.spec, history=False, partition_by=()))


def is_sealed(fresh: Ledger) -> bool:
    """Whether the shadow table has all files: only the swap is left."""
    last = fresh.last_commit()
    return last is not None and last.number > 1 and not last.plan.files


def nothing_to_refresh(table: str, landing: str) -> FatalError:
    what = f"{table}: no file below {landing} can be read"
    return FatalError("NOTHING_TO_REFRESH", what, remedy="restore the files; the tables are unchanged")


def rebuild_batches(run: TableRun) -> tuple[list[tuple[BatchPlan, bool]], Discovery]:
    """As `refresh_batches`, of a rebuild from the change table."""
    ledger = run.ledger()
    begun, found = ledger.plan(), run.discover(ledger)
    resumed = begun is not None and begun.mode == "refresh"
    plan = begun if begun is not None and resumed else replace(new_plan(run, ledger), source="changes")
    state = replace(ledger.state, batch=plan.number)
    return [(plan, resumed), *batches_ahead(run, None, state, found)], found


def refresh_batches(run: TableRun, totals: RunTotals) -> tuple[list[tuple[BatchPlan, bool]], Discovery]:
    """Remaining batches of a reload, each with whether it is resumed, and what was found; writes nothing.

    Of one that has only its swap left, the batch is the reload itself, without files. Where the ledger is
    lost, generations are inferred from the times of the files; the run takes them from the change table.

    Raises:
        FatalError: `NOTHING_TO_REFRESH`; as `notices.require_known_generations`.
    """
    ledger = run.ledger()
    begun = ledger.plan()
    begun = begun if begun is not None and begun.mode == "refresh" else None
    shadow = shadow_of(run, begun or new_plan(run, ledger))
    fresh = shadow.ledger()
    found = shadow.discover(fresh)
    if begun is not None and is_sealed(fresh):
        return [(begun, True)], found
    found = refresh_generations.by_ledger(run, ledger, found, totals)
    if not found.waiting and fresh.state.batch <= 1:
        raise nothing_to_refresh(run.spec.table, run.layout.landing)
    state = fresh.state if fresh.state.batch else refresh_generations.seed(ledger.state, None, run.dialect)
    ahead = batches_ahead(shadow, fresh.plan(), state, found)
    # The first commit of the shadow ledger has no files.
    return [(replace(p, number=p.number - 1, mode="refresh", sweep=False), resumed) for p, resumed in ahead], found
