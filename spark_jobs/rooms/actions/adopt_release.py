"""`gddl adopt --release`: a replica becomes a plain Delta table that is nobody's, and what only we keep of it goes.

the ledger ─► `_gddl` and our properties of the replica, in one commit ─► our other tables, the change table last. Until
the last of them is gone no run takes the table for a new one; interrupted anywhere, it is run again.
"""

from __future__ import annotations

from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.codes import ADOPT_REFUSED, ADOPT_RELEASE_UNCONFIRMED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import Storage, remove_table
from spark_jobs.batch import notices
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.adoption import in_order_of_removal
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
        raise _refused(run, "a table of several sources can't be given back", "write one table for each source")
    if run.job.options.dry_run:
        return run.result(totals, status="succeeded", details={"release": _found(run, run.context())})
    with run.claim() as claim:
        context = run.context()
        found = _found(run, context)
        if not run.job.options.asked(Adopt).confirmed:
            what = f"{run.spec.table}: {_told(found)}"
            remedy = "`--dry-run` lists it; --yes gives the table back"
            raise FatalError(ADOPT_RELEASE_UNCONFIRMED, what, where=run.layout.replica, remedy=remedy)
        claim.check()
        _remove_ledger(run.runtime.storage, run.layout)
        run.report("plan")
        if context.tables.exists(run.layout.replica):
            claim.check()
            context.baseline.unmark()
            run.report("replica")
        for name in _OURS:
            remove_table(run.runtime.storage, getattr(run.layout, name))
        run.report("done")
    return run.result(totals, status="succeeded", details={"release": found})


def _found(run: TableRun, context: Engine) -> dict[str, object]:
    layout, ledger = context.layout, run.ledger()
    if ledger.state.batch:
        notices.require_finished(run, ledger, then="adopt --release")
    logs = DeltaCommits(context.storage)  # a release that was interrupted leaves parts of tables, which can't be opened
    there = [name for name in _OURS if logs.exists(getattr(layout, name))]
    if not there and not (context.tables.exists(layout.replica) and context.stored.is_ours(layout.replica)):
        raise _refused(run, "nothing of it is ours", "there is nothing to give back")
    marked = context.baseline.marked()
    if marked.soft:
        remedy = "set delete: hard and run the table, which removes rows that are marked deleted; then give it back"
        raise _refused(run, "its rows may be marked deleted, and would be ordinary rows then", remedy)
    waiting = context.quarantine.counts()[0] if ledger.state.batch else 0
    return {
        "files": marked.files, "bytes": marked.bytes, "of": marked.of, "tables": there, "in_quarantine": waiting,
        "batches": ledger.state.batch,
    }  # fmt: skip


def _told(found: dict[str, object]) -> str:
    waiting = f"; {found['in_quarantine']} rows wait in quarantine and go with it" if found["in_quarantine"] else ""
    again = f"{found['files']} of {found['of']} data files ({found['bytes']} bytes) have _gddl"
    return f"{again} and are written again without it; the ledger and our other tables go{waiting}"


def _remove_ledger(storage: Storage, layout: Layout) -> None:
    """All but claims: this run holds one."""
    for name in in_order_of_removal([item.name for item in storage.list(layout.state)]):
        storage.delete(join(layout.state, name))


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(ADOPT_REFUSED, f"{run.spec.table}: {what}", where=run.layout.replica, remedy=remedy)
