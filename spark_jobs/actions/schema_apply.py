"""Gives a table new columns and wider types before files bring them; a killed one is run again."""

from __future__ import annotations

from airflow_gddl.contract.actions import SchemaApply
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import require_sound_tables
from spark_jobs.plan.applied_schema import AppliedSchema, applied, refusal, types_of
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.tables.engine import TableContext


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Apply the schema; `details` has `before`, `after`, `added` and `widened`. A dry run only asks for it.

    Raises:
        FatalError: `SCHEMA_NOT_APPLIED`; as `require_sound_tables` and `require_same_identity`.
        RetriableError: `TABLE_BUSY`.
    """
    if run.job.options.dry_run:
        found, before = _asked(run, run.context(), run.ledger())
    else:
        with run.claim() as claim:
            ledger, context = run.ledger(), run.context()
            found, before = _asked(run, context, ledger)
            claim.check()
            plan = BatchPlan(
                number=ledger.state.batch, mode="incremental", planned_at=iso(run.runtime.clock()),
                generation=ledger.state.generation, files=(),
            )  # fmt: skip
            # Also where the change table has the columns: a killed attempt may have left the others as they were.
            context.engine.table_work(context, plan, found.schema).ensure_tables()
            run.report("replica", plan.number)
    details = {
        "before": before,
        "after": types_of(found.schema.data),
        "added": [c.name for c in found.added],
        "widened": [c.name for c in found.widened],
        "dry_run": run.job.options.dry_run,
    }
    totals.schema_changes += [f"added column {column}" for column in found.added]
    totals.schema_changes += [f"widened column {column}" for column in found.widened]
    return run.result(totals, status="succeeded", details=details)


def _asked(run: TableRun, context: TableContext, ledger: Ledger) -> tuple[AppliedSchema, dict[str, str]]:
    """What the table becomes, and its columns now."""
    spec, state, columns = run.spec, ledger.state, dict(run.job.options.asked(SchemaApply).columns)
    if state.keys is None:
        what, remedy = f"{spec.table} has no table yet", f"load it: `gddl run --table {spec.table}`"
        raise FatalError("SCHEMA_NOT_APPLIED", what, remedy=remedy)
    if ledger.plan() is not None:
        what = f"{spec.table}: a run has left an unfinished batch; nothing was written"
        raise RetriableError("TABLE_BUSY", what, remedy=f"finish it with `gddl run --table {spec.table}`")
    require_same_identity(spec, state)
    require_sound_tables(run, context, ledger)
    schema = context.stored_schema(state)
    found = applied(schema, columns, spec)
    if found.refused:
        raise refusal(spec.table, schema, columns, found)
    return found, types_of(schema.data)
