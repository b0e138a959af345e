"""What a small table removes by itself, between batches, so that nothing grows with the number of its runs.

Maintenance (`spark_jobs.maintenance`) does this and more, for tables of every size.
"""

from __future__ import annotations

import logging

from airflow_gddl.stores import lake_files
from spark_jobs.engines.port import TableContext
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.identity import vacuum_hours
from spark_jobs.table.batch import has_few_rows
from spark_jobs.table.run import TableRun

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
            if name == "replica" and run.spec.iceberg:  # its readers may use files that Delta does not need
                continue
            if context.engine.exists(path := getattr(context.layout, name)):
                claim.check()
                context.engine.maintenance(context).vacuum(path, hours, dry_run=False)
    except Exception as error:  # noqa: BLE001 - as said above
        _LOG.warning("old files of %s stay: %s", run.spec.table, error)
