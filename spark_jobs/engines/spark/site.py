"""Where a batch works: its tables, plan and shape, and the names of its transactions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.engines.spark.decode import Stamp
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.plan.batch import BatchPlan

APPEND, QUARANTINE, TOMBSTONES, MERGE, SWEEP, HISTORY = (
    f"gddl:{step}" for step in ("append", "quarantine", "tombstones", "merge", "sweep", "history")
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Site:
    """What every step of one batch of one table needs."""

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    shape: Shape

    @property
    def transaction(self) -> int:
        """The version under which each step of the batch is written once."""
        return version_of(self.plan)

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.plan.batch_id, self.plan.planned_at)

    def changes(self) -> DataFrame:
        """This batch's rows of the change table."""
        return self.tables.read(self.layout.changes).where(F.col(GDDL)["batch_id"] == self.plan.batch_id)


def version_of(plan: BatchPlan) -> int:
    """Microseconds of the plan's time since 1970.

    Plans of a table are ever later (`planning.moment`), those of a ledger begun anew too: a table that remembers the
    transactions of a lost ledger takes none of the new ones for one of those.
    """
    return round((datetime.fromisoformat(plan.planned_at) - _EPOCH) / timedelta(microseconds=1))
