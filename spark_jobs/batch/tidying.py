"""What small tables remove themselves, after many batches."""

from __future__ import annotations

import logging

from airflow_gddl.contract.features import used_by
from airflow_gddl.stores import lake_files
from spark_jobs.batch.session import TableSession
from spark_jobs.plan.planned_batch import has_few_rows
from spark_jobs.tables.vacuum import vacuum_hours

TABLES = ("changes", "replica", "history", "errors", "tombstones")


BATCHES_PER_TIDYING = 100
"""It lists the table's folders: on S3 one call per thousand files, far below what so many batches cost."""


_LOG = logging.getLogger(__name__)


def is_due(batch: int, done: int) -> bool:
    """Whether this run has completed a round of batches after which a table is tidied.

    Args:
        batch: number of the last batch.
        done: batches of this run.
    """
    return batch // BATCHES_PER_TIDYING > (batch - done) // BATCHES_PER_TIDYING


def tidy(table: TableSession) -> None:
    """Remove files that no version needs, after `vacuum_retention`, and archive run records; if due.

    Errors are only logged: the batches are done, and the next tidying finds what is left.
    """
    if not has_few_rows(table.state) or not is_due(table.state.batch, table.totals.batches):
        return
    spec, context = table.spec, table.context
    read_elsewhere = {kind for feature in used_by(spec).values() for kind in feature.reads}
    try:
        hours = vacuum_hours(spec)
        lake_files.compact(table.run.runtime.storage, table.layout.runs)
        for name in TABLES:
            if name in read_elsewhere:  # by whom may use files that Delta does not need
                continue
            if context.tables.exists(path := getattr(context.layout, name)):
                table.claim.check()
                context.maintenance.vacuum(path, hours, dry_run=False)
    except Exception as error:  # noqa: BLE001 - as said above
        _LOG.warning("old files of %s stay: %s", spec.table, error)
