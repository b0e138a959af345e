"""Actions of a job beside loading, imported when they are asked for.

A module that has `act` is named as its action; the others are parts of these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.codes import ACTION_MISSING
from airflow_gddl.contract.errors import FatalError

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
    module = f"{__name__}.{name}"
    try:
        return cast("Act", importlib.import_module(module).act)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        what, remedy = f"this job has no action {name!r}", "install all of airflow-gddl where the job runs"
        raise FatalError(ACTION_MISSING, what, where=module, remedy=remedy) from None
