"""Actions of a job beside loading, imported when they are asked for.

A module that has `act` is named as its action; the others are parts of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.codes import ACTION_MISSING
from spark_jobs.rooms import found

if TYPE_CHECKING:
    from airflow_gddl.contract.result import JobResult
    from spark_jobs.batch.table_run import TableRun
    from spark_jobs.batch.totals import RunTotals

    Act = Callable[[TableRun, RunTotals], JobResult]


def action(name: str) -> Act:
    """What a job does for a table under this name.

    Raises:
        FatalError: `ACTION_MISSING`: this installation lacks the module.
    """
    what = f"this job has no action {name!r}"
    return cast("Act", found(f"{__name__}.{name}", "act", ACTION_MISSING, what))
