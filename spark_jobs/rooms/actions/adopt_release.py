"""`gddl adopt --release`: a replica becomes a plain Delta table that is nobody's, and what only we keep of it goes.

the ledger ─► `_gddl` and our properties of the replica, in one commit ─► our other tables, the change table last. Until
the last of them is gone no run takes the table for a new one; interrupted anywhere, it is run again.
"""

from __future__ import annotations

from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.codes import ADOPT_RELEASE_UNCONFIRMED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import remove_table
from spark_jobs.batch import notices
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.adoption import in_order_of_removal
from spark_jobs.rooms.actions.adopt_checks import refused
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.engine import Engine

_OURS = ("history", "errors", "tombstones", "changes")
"""Our tables beside the replica, in the order in which they go."""


def give_back(run: TableRun, totals: RunTotals) -> JobResult:
    """Give the table back; `details["release"]` says what of it is written again, and what goes.

    Raises:
        FatalError: `ADOPT_REFUSED`: the table is none of ours, or rows of it are marked deleted;
            `ADOPT_RELEASE_UNCONFIRMED`; `BATCH_UNFINISHED`.
        RetriableError: `TABLE_BUSY`, `DELTA_CONFLICT`.
    """
    if run.spec.shards:
        raise refused(run, "a table of several sources can't be given back", "write one table for each source")
    if run.job.options.dry_run:
        return run.answer(totals, {"release": _found(run, run.context())})
    with run.claim() as claim:
        context = run.context()
        found = _found(run, context)
        if not run.job.options.asked(Adopt).confirmed:
            waiting = found["in_quarantine"]
            waits = f"; {waiting} rows wait in quarantine and go with it" if waiting else ""
            again = f"{found['files']} of {found['of']} data files ({found['bytes']} bytes) have _gddl"
            what = f"{again} and are written again without it; the ledger and our other tables go{waits}"
            remedy = "`--dry-run` lists it; --yes gives the table back"
            raise FatalError(
                ADOPT_RELEASE_UNCONFIRMED, f"{run.spec.table}: {what}", where=run.layout.replica, remedy=remedy
            )
        claim.check()
        storage, layout = run.runtime.storage, run.layout
        for name in in_order_of_removal([item.name for item in storage.list(layout.state)]):  # all but this run's claim
            storage.delete(join(layout.state, name))
        run.report("plan")
        if context.tables.exists(layout.replica):
            claim.check()
            context.baseline.unmark()
            run.report("replica")
        for name in _OURS:
            remove_table(storage, getattr(layout, name))
        run.report("done")
    return run.answer(totals, {"release": found})


def _found(run: TableRun, context: Engine) -> dict[str, object]:
    layout, ledger = context.layout, run.ledger()
    if ledger.state.batch:
        notices.require_finished(run, ledger, then="adopt --release")
    logs = DeltaCommits(context.storage)  # a release that was interrupted leaves parts of tables, which can't be opened
    there = [name for name in _OURS if logs.exists(getattr(layout, name))]
    if not there and not (context.tables.exists(layout.replica) and context.stored.is_ours(layout.replica)):
        raise refused(run, "nothing of it is ours", "there is nothing to give back")
    marked = context.baseline.marked()
    if marked.soft:
        remedy = "set delete: hard and run the table, which removes rows that are marked deleted; then give it back"
        raise refused(run, "its rows may be marked deleted, and would be ordinary rows then", remedy)
    waiting = context.quarantine.counts()[0] if ledger.state.batch else 0
    return {
        "files": marked.files, "bytes": marked.bytes, "of": marked.of, "tables": there, "in_quarantine": waiting,
        "batches": ledger.state.batch,
    }  # fmt: skip
