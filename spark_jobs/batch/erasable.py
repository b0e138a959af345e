"""Whether a key can be erased: asked by an erasure, and by its dry run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.batch import notices
from spark_jobs.batch.pending import can_let_go
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.tables.vacuum import vacuum_hours

if TYPE_CHECKING:
    from spark_jobs.tables.engine import Engine


def require_erasable(run: TableRun, context: Engine, ledger: Ledger) -> None:
    """Refuse what can't be erased from now; writes nothing. Which key is meant is not judged here.

    Raises:
        FatalError: `TABLE_WITHOUT_KEYS`, `KEYS_CHANGED`, `BATCH_UNFINISHED`; as `ErasureRegister.require_salt`.
    """
    notices.require_keyed(run.spec, ledger.state)
    require_same_identity(run.spec, ledger.state)
    vacuum_hours(run.spec)
    plan = ledger.plan()
    if plan is not None and not can_let_go(context, plan):
        notices.require_finished(run, ledger, then="erase")
    context.erasures.require_salt()
