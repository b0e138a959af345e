"""Tasks that maintain or verify the tables of a tier."""

from __future__ import annotations

from typing import Any, Literal

from airflow_gddl.operators.jobs import JobTask

Upkeep = Literal["maintain", "verify"]


class GddlUpkeepOperator(JobTask):
    """Maintains or verifies all enabled tables of a tier in jobs, and fails at the end if a table failed.

    A retry skips tables that succeeded in this run.

    Args:
        tier: tier of the tables; the run's param `tables` selects some of them.
        action: action to run on them.
    """

    execution = "airflow_gddl.operators.maintenance_execution"
    ui_color = "#e8e4f0"

    def __init__(self, *, tier: str, action: Upkeep, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tier = tier
        self.action: Upkeep = action
